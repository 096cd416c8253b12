{{- define "containers.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end }}

{{/* "true" where a configuration, or the settings, may have MIG devices: who looks at these needs a capability. */}}
{{- define "containers.mig" -}}
{{- $found := false -}}
{{- if .Values.migStrategy }}{{ $found = ne .Values.migStrategy "none" }}
{{- else if include "names.configurations" . }}{{ $found = true }}
{{- end -}}
{{ $found }}
{{- end }}

{{- define "containers.mounts" -}}
{{- $found := false -}}
{{- if .Values.deviceListStrategy }}{{ $found = contains "volume-mounts" .Values.deviceListStrategy }}
{{- else if include "names.configurations" . }}{{ $found = true }}
{{- end -}}
{{ $found }}
{{- end }}

{{/* Rights of a container: (list ROOT OWN), of which OWN goes before all else. */}}
{{- define "containers.rights" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 -}}
{{- if $own }}
{{ toYaml $own }}
{{- else if or (eq (include "containers.mig" $root) "true") (eq (include "containers.mounts" $root) "true") }}
capabilities: {add: [SYS_ADMIN]}
{{- else }}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}
{{- end }}

{{/* Environment of the program that copies a node's configuration: (list ROOT ONCE PROCESS), once or as a sidecar. */}}
{{- define "containers.manager" -}}
{{- $root := index . 0 }}{{ $once := index . 1 -}}
image: {{ include "containers.image" $root }}
command: [config-manager]
env:
- {name: ONESHOT, value: {{ $once | quote }}}
# Empty: by the pod's own service account. The API server drops the field.
- {name: KUBECONFIG, value: ""}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: NODE_LABEL, value: nvidia.com/device-plugin.config}
- {name: CONFIG_FILE_SRCDIR, value: /available-configs}
- {name: CONFIG_FILE_DST, value: /config/config.yaml}
- name: DEFAULT_CONFIG
  value: {{ $root.Values.config.default }}
- name: FALLBACK_STRATEGIES
  value: {{ join "," $root.Values.config.fallbackStrategies }}
- {name: SEND_SIGNAL, value: {{ not $once | quote }}}
- {name: SIGNAL, value: {{ ternary "" "1" $once | quote }}}
- {name: PROCESS_TO_SIGNAL, value: {{ ternary "" (index . 2) $once | quote }}}
volumeMounts:
- {name: available-configs, mountPath: /available-configs}
- {name: config, mountPath: /config}
{{- end }}

{{/* Variables for values that a person may give: (list ROOT KIND NAME VALUE ...), as far as they are of that kind. */}}
{{- define "containers.variables" -}}
{{- range $name, $value := . }}
{{- if or (kindIs "string" $value) (kindIs "bool" $value) }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
{{- end }}
