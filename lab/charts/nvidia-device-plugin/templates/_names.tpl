{{/* What all objects are named after: at most 63 characters, as a label's value may have. */}}
{{- define "names.cut" -}}{{ . | trunc 63 | trimSuffix "-" }}{{- end }}

{{- define "names.chart" -}}{{ .Values.nameOverride | default .Chart.Name }}{{- end }}

{{- define "names.whole" -}}
{{- $chart := include "names.chart" . -}}
{{- $found := printf "%s-%s" .Release.Name $chart -}}
{{- if contains $chart .Release.Name }}{{ $found = .Release.Name }}{{ end -}}
{{- include "names.cut" (.Values.fullnameOverride | default $found) -}}
{{- end }}

{{- define "names.namespace" -}}{{ .Values.namespaceOverride | default .Release.Namespace }}{{- end }}

{{- define "names.account" -}}{{ include "names.whole" . }}-service-account{{- end }}

{{/* Empty where the plugin gets no configurations. */}}
{{- define "names.configurations" -}}
{{- if .Values.config.name }}{{ .Values.config.name }}
{{- else if .Values.config.map }}{{ include "names.whole" . }}-configs
{{- end -}}
{{- end }}

{{/* All DaemonSets' pods have the same ones, and so have their selectors. */}}
{{- define "labels.pods" -}}
app.kubernetes.io/name: {{ include "names.cut" (include "names.chart" .) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- range $name, $value := .Values.selectorLabelsOverride }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "labels.selector" -}}
{{- if .Values.selectorLabelsOverride }}{{ toYaml .Values.selectorLabelsOverride }}
{{- else }}{{ include "labels.pods" . }}
{{- end -}}
{{- end }}

{{- define "labels.objects" -}}
{{ include "labels.pods" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ include "names.cut" (printf "%s-%s" (include "names.chart" .) .Chart.Version) }}
{{- end }}
