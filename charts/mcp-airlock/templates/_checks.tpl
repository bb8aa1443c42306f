{{/* What is refused at render time, with the values and what to do about it. Values of settings are never shown. */}}
{{- define "mcp-airlock.check" -}}
{{- include "mcp-airlock.checkBasics" . -}}
{{- include "mcp-airlock.checkVolume" . -}}
{{- include "mcp-airlock.checkReplicas" . -}}
{{- include "mcp-airlock.checkStopping" . -}}
{{- include "mcp-airlock.checkEnv" . -}}
{{- include "mcp-airlock.checkExtraEnv" . -}}
{{- include "mcp-airlock.checkExtraArgs" . -}}
{{- end -}}

{{- define "mcp-airlock.checkBasics" -}}
{{- if or (not (kindIs "string" .Values.upstream)) (not (trim (toString .Values.upstream))) -}}
{{- fail "upstream is required: the MCP endpoint behind the gateway, for example --set upstream=http://my-mcp-server:8080/mcp" -}}
{{- end -}}
{{- if or (not (kindIs "string" .Values.policy)) (not (trim (toString .Values.policy))) -}}
{{- fail "policy is required: the text of the policy file, for example --set-file policy=policy.yaml" -}}
{{- end -}}
{{- if and .Values.sharedStore (not .Values.existingSecret) -}}
{{- fail "sharedStore needs existingSecret: a Secret with AIRLOCK_STORE_DSN and AIRLOCK_SECRET" -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkVolume" -}}
{{- $kinds := keys (.Values.dataVolume | default dict) | sortAlpha -}}
{{- if not $kinds -}}
{{- fail "dataVolume is empty: it needs exactly one volume source, for example emptyDir: {}" -}}
{{- end -}}
{{- if and (has "emptyDir" $kinds) (gt (len $kinds) 1) -}}
{{- fail "dataVolume has emptyDir next to another volume source: set dataVolume.emptyDir=null, Helm merges maps" -}}
{{- end -}}
{{- if gt (len $kinds) 1 -}}
{{- fail (printf "dataVolume needs exactly one volume source and has %s" (join ", " $kinds)) -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkReplicas" -}}
{{- if ne (include "mcp-airlock.whole" .Values.replicaCount) "true" -}}
{{- fail "replicaCount must be a whole number" -}}
{{- end -}}
{{- $replicas := int64 .Values.replicaCount -}}
{{- if lt $replicas 1 -}}
{{- fail "replicaCount must be at least 1" -}}
{{- end -}}
{{- if and (gt $replicas 1) (not .Values.sharedStore) -}}
{{- fail "replicaCount above 1 needs sharedStore: pods that remember apart would let one confirmation run more than once" -}}
{{- end -}}
{{- if and (gt $replicas 1) (not (hasKey .Values.dataVolume "emptyDir")) -}}
{{- fail "replicaCount above 1 needs an emptyDir as dataVolume: pods that share one audit file would fork its hash chain. Use AIRLOCK_AUDIT_DSN to keep the audit" -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkStopping" -}}
{{- if ne (include "mcp-airlock.whole" .Values.preStopSeconds) "true" -}}
{{- fail "preStopSeconds must be a whole number" -}}
{{- end -}}
{{- if ne (include "mcp-airlock.whole" .Values.terminationGracePeriodSeconds) "true" -}}
{{- fail "terminationGracePeriodSeconds must be a whole number" -}}
{{- end -}}
{{- $sleep := int64 .Values.preStopSeconds -}}
{{- if lt $sleep 0 -}}
{{- fail "preStopSeconds must not be negative" -}}
{{- end -}}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $sleep -}}
{{- fail "terminationGracePeriodSeconds must be more than preStopSeconds: the sleep, the open calls and the last export of spans must fit" -}}
{{- end -}}
{{- if and (gt $sleep 0) (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "preStopSeconds above 0 uses the native sleep of Kubernetes 1.30 and this is %s: set preStopSeconds=0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkEnv" -}}
{{- $credentials := splitList " " (include "mcp-airlock.credentials" .) -}}
{{- range $name, $value := .Values.env -}}
{{- if has $name $credentials -}}
{{- fail (printf "env.%s is a credential and would be readable in the pod spec: put it in existingSecret, or in extraEnv with a valueFrom" $name) -}}
{{- end -}}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) (kindIs "invalid" $value) -}}
{{- fail (printf "env.%s must be a text, a number or a boolean" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkExtraEnv" -}}
{{- $values := .Values -}}
{{- $credentials := splitList " " (include "mcp-airlock.credentials" .) -}}
{{- $shared := splitList " " (include "mcp-airlock.sharedKeys" .) -}}
{{- $seen := dict -}}
{{- range $n, $entry := .Values.extraEnv -}}
{{- if not (kindIs "map" $entry) -}}
{{- fail (printf "extraEnv[%d] must be a map with a name" $n) -}}
{{- end -}}
{{- $name := get $entry "name" -}}
{{- if or (not (kindIs "string" $name)) (not (trim (toString $name))) -}}
{{- fail (printf "extraEnv[%d] has no name" $n) -}}
{{- end -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "extraEnv lists %s twice: one container cannot set a name twice" $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- if hasKey ($values.env | default dict) $name -}}
{{- fail (printf "%s stands in env and in extraEnv: one container cannot set a name twice" $name) -}}
{{- end -}}
{{- if and $values.sharedStore (has $name $shared) -}}
{{- fail (printf "extraEnv must not set %s with sharedStore: it comes from existingSecret" $name) -}}
{{- end -}}
{{- if and (has $name $credentials) (or (hasKey $entry "value") (not (get $entry "valueFrom"))) -}}
{{- fail (printf "extraEnv sets %s in the open and it is a credential: use a valueFrom" $name) -}}
{{- end -}}
{{- if and (hasKey $entry "value") (not (kindIs "string" (get $entry "value"))) -}}
{{- fail (printf "the value of %s in extraEnv must be a string: quote it" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcp-airlock.checkExtraArgs" -}}
{{- range $n, $word := .Values.extraArgs -}}
{{- if or (kindIs "map" $word) (kindIs "slice" $word) (kindIs "invalid" $word) -}}
{{- fail (printf "extraArgs[%d] must be a text, a number or a boolean" $n) -}}
{{- end -}}
{{- end -}}
{{- end -}}
