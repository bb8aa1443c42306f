{{/* The variables of the container: plain settings, keys of the Secret, then extraEnv. No name twice. */}}
{{- define "mcp-airlock.env" -}}
{{- $secret := include "mcp-airlock.secretName" . -}}
{{- $replaced := list -}}
{{- range .Values.extraEnv -}}
{{- $replaced = append $replaced .name -}}
{{- end -}}
{{- range $name, $value := .Values.env }}
- name: {{ $name | quote }}
  value: {{ include "mcp-airlock.scalar" $value | quote }}
{{- end }}
{{- if .Values.sharedStore }}
{{- range $key := splitList " " (include "mcp-airlock.sharedKeys" .) }}
- name: {{ $key }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret | quote }}
      key: {{ $key }}
{{- end }}
{{- end }}
{{- if $secret }}
{{- range $key := splitList " " (include "mcp-airlock.optionalKeys" .) }}
{{- if not (has $key $replaced) }}
- name: {{ $key }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret | quote }}
      key: {{ $key }}
      optional: true
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
