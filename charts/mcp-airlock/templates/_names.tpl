{{/* The name of everything the release has: <release>-mcp-airlock, as long as a Service may be called. */}}
{{- define "mcp-airlock.fullname" -}}
{{- printf "%s-mcp-airlock" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "mcp-airlock.selectorLabels" -}}
app.kubernetes.io/name: mcp-airlock
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "mcp-airlock.labels" -}}
{{ include "mcp-airlock.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "mcp-airlock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The Secret the optional keys come from; empty when there is none. */}}
{{- define "mcp-airlock.secretName" -}}
{{- if .Values.existingSecret -}}{{ .Values.existingSecret }}
{{- else if .Values.generateJwtSecret -}}{{ include "mcp-airlock.fullname" . }}
{{- end -}}
{{- end -}}

{{/* Keys of that Secret which are used when they are there. */}}
{{- define "mcp-airlock.optionalKeys" -}}
AIRLOCK_JWT_SECRET AIRLOCK_AUDIT_DSN AIRLOCK_UPSTREAM_AUTH AIRLOCK_APPROVAL_WEBHOOK OTEL_EXPORTER_OTLP_HEADERS
{{- end -}}

{{/* Keys of existingSecret that must be there, and only with sharedStore: a fixed signing key next to state in memory
     would let a used confirmation run again after a restart. */}}
{{- define "mcp-airlock.sharedKeys" -}}
AIRLOCK_STORE_DSN AIRLOCK_SECRET
{{- end -}}

{{/* Variables that hold a credential: never in the open. The last two have no key in existingSecret. */}}
{{- define "mcp-airlock.credentials" -}}
{{ include "mcp-airlock.optionalKeys" . }} {{ include "mcp-airlock.sharedKeys" . }} OTEL_EXPORTER_OTLP_TRACES_HEADERS PGPASSWORD
{{- end -}}

{{/* "true" for a whole number. Numbers of a values file arrive as floats. */}}
{{- define "mcp-airlock.whole" -}}
{{- if or (kindIs "int" .) (kindIs "int64" .) -}}true
{{- else if kindIs "float64" . -}}{{- if eq . (floor .) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* A scalar as text. Without this 104857600 from a values file would read 1.048576e+08. */}}
{{- define "mcp-airlock.scalar" -}}
{{- if and (kindIs "float64" .) (eq (include "mcp-airlock.whole" .) "true") -}}{{ printf "%.0f" . }}
{{- else -}}{{ toString . }}
{{- end -}}
{{- end -}}
