{{- /*
Objects in the namespace have fixed names, as with kustomize, so a namespace holds one release. Those of the cluster are
named after the release.
*/ -}}

{{- define "rollcall.selectorLabels" -}}
app.kubernetes.io/name: rollcall
{{- end }}

{{- define "rollcall.labels" -}}
{{ include "rollcall.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Gives the manager a role: list CONTEXT KIND NAME, of which the name is the binding's too. */ -}}
{{- define "rollcall.binding" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}{{ $name := index . 2 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "rollcall.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: rollcall
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{- define "rollcall.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The webhook configuration is the cluster's, and the Service and the Secret have its name. */ -}}
{{- define "rollcall.evictions" -}}
{{ .Release.Name }}-evictions
{{- end }}

{{- define "rollcall.check" -}}
{{- $config := .Values.config }}
{{- if not $config.cluster }}
{{- fail "config.cluster is empty: write the name of this cluster, such as --set config.cluster=prod-1" }}
{{- end }}
{{- if not (or $config.registry $config.registries) }}
{{- fail "config.registry is empty: write the registry's driver and endpoint, such as --set config.registry.driver=consul --set config.registry.endpoint=https://consul.example.com:8501" }}
{{- end }}
{{- if and $config.registry $config.registries }}
{{- fail "config.registry and config.registries are both set: write one of them" }}
{{- end }}
{{- if not $config.hooks.owned }}
{{- fail "config.hooks.owned is empty: write the label keys and finalizers that Rollcall sets and clears, such as --set 'config.hooks.owned={example.com/*}'" }}
{{- end }}
{{- if and (dig "audit" "path" "" $config) (not .Values.audit.enabled) (not .Values.extraVolumes) }}
{{- fail "config.audit.path is set and audit.enabled is not: the manager has no volume to write to; set audit.enabled, or mount one of your own by extraVolumes" }}
{{- end }}
{{- range $part, $on := dict "evictions" .Values.evictions.enabled "enroll" .Values.enroll.enabled }}
{{- if and $on (regexMatch " --?dry-run(=[1tT]\\w*)? " (printf " %s " (join "  " $.Values.extraArgs))) }}
{{- fail (printf "%s.enabled is set and extraArgs has --dry-run: a manager that writes nothing can't do that; leave %s.enabled out until the dry run has ended" $part $part) }}
{{- end }}
{{- end }}
{{- end }}

{{/* fixed is what a running manager does not take: each registry stays what it is. */}}
{{- define "rollcall.fixed" -}}
{{- $registries := dict }}
{{- range $name, $registry := .Values.config.registries | default (dict "default" .Values.config.registry) }}
{{- $_ := set $registries $name (pick $registry "driver" "endpoint" "options") }}
{{- end }}
{{- set (pick .Values.config "cluster" "namespaces" "audit") "registries" $registries | toJson }}
{{- end }}
