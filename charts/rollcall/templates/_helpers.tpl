{{- /*
Objects in the namespace have fixed names, as with kustomize, so a namespace holds one release. Those of the cluster are
named after the release.
*/ -}}

{{- define "rollcall.selectorLabels" -}}
app.kubernetes.io/name: rollcall
{{- end }}

{{- define "rollcall.labels" -}}
{{ include "rollcall.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The annotations of an object: list CONTEXT ANNOTATIONS, of which the second are the object's own. */ -}}
{{- define "rollcall.annotations" -}}
{{- $root := index . 0 }}
{{- with mergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (index . 1 | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* An object with the user's changes: list YAML OVERRIDES. */ -}}
{{- define "rollcall.overridden" -}}
{{- $overrides := index . 1 }}
{{- if $overrides }}
{{- $object := index . 0 | fromYaml }}
{{- include "rollcall.override" (list $object $overrides) }}
{{- toYaml $object }}
{{- else }}
{{- index . 0 }}
{{- end }}
{{- end }}

{{- /* Changes an object in place: list OBJECT OVERRIDES. null removes a field; the lists in $keys are merged as kubectl merges them. */ -}}
{{- define "rollcall.override" -}}
{{- $object := index . 0 }}
{{- $keys := dict "containers" "name" "initContainers" "name" "env" "name" "volumes" "name" "volumeMounts" "mountPath"
  "ports" "containerPort" "endpoints" "port" }}
{{- range $field, $value := index . 1 }}
{{- $now := get $object $field }}
{{- $key := get $keys $field }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $object $field }}
{{- else if and (kindIs "map" $value) (kindIs "map" $now) }}
{{- include "rollcall.override" (list $now $value) }}
{{- else if and $key (kindIs "slice" $value) (kindIs "slice" $now) }}
{{- $merged := $now }}
{{- range $item := $value }}
{{- $found := false }}
{{- range $now }}
{{- if eq (toString (get . $key)) (toString (get $item $key)) }}
{{- $found = true }}
{{- include "rollcall.override" (list . $item) }}
{{- end }}
{{- end }}
{{- if not $found }}{{ $merged = append $merged $item }}{{ end }}
{{- end }}
{{- $_ := set $object $field $merged }}
{{- else }}
{{- $_ := set $object $field $value }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollcall.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "rollcall" }}
{{- end }}

{{- /* Gives the manager rights to what it watches: list CONTEXT NAME RULES. In the whole cluster, or in each of its namespaces. */ -}}
{{- define "rollcall.rights" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $rules := index . 2 -}}
{{- if $root.Values.rbac.clusterRole -}}
{{ include "rollcall.role" (list $root "ClusterRole" $name $rules) }}
{{- else -}}
{{- $listed := $root.Values.config.namespaces }}
{{- if or (not $listed) (kindIs "map" $listed) }}{{ fail "rbac.clusterRole: with false, list the namespaces in config.namespaces" }}{{ end }}
{{- range $listed }}
{{ include "rollcall.role" (list $root "Role" $name $rules .) }}
---
{{- end }}
{{- end }}
{{- end }}

{{- /* A role that the manager has: list CONTEXT KIND NAME RULES, and the namespace of a Role. */ -}}
{{- define "rollcall.role" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}{{ $name := index . 2 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ index . 4 }}
  {{- end }}
  labels:
    {{- include "rollcall.labels" $root | nindent 4 }}
  {{- include "rollcall.annotations" (list $root dict) }}
rules:
{{ toYaml (index . 3) }}
---
{{ include "rollcall.binding" (eq $kind "Role" | ternary (list $root $kind $name (last .)) (list $root $kind $name)) }}
{{- end }}

{{- /* Gives the manager a role: list CONTEXT KIND NAME, of which the name is the binding's too, and a namespace, if it is not the manager's. */ -}}
{{- define "rollcall.binding" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}{{ $name := index . 2 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ gt (len .) 3 | ternary (last .) $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "rollcall.labels" $root | nindent 4 }}
  {{- include "rollcall.annotations" (list $root dict) }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "rollcall.serviceAccount" $root }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{- define "rollcall.image" -}}
{{- with (.Values.global | default dict).imageRegistry | default .Values.image.registry }}{{ . }}/{{ end }}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The webhook configuration is the cluster's, and the Service and the Secret have its name. */ -}}
{{- define "rollcall.evictions" -}}
{{ dig "evictions" "name" "" .Values.config | default (printf "%s-evictions" .Release.Name) }}
{{- end }}

{{- /* The configuration that the manager gets. */ -}}
{{- define "rollcall.config" -}}
{{- $config := deepCopy .Values.config }}
{{- if not $config.registry }}{{ $config = omit $config "registry" }}{{ end }}
{{- if and (dig "evictions" "enabled" false $config) (ne .Release.Name "rollcall") }}
{{- $_ := set $config.evictions "name" (include "rollcall.evictions" .) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Whether the metrics go out over HTTPS to those whom the API server allows: where something in the chart reads them. */ -}}
{{- define "rollcall.secure" -}}
{{- with .Values.metrics }}{{ if and .secure (or .service.enabled .serviceMonitor.enabled) }}true{{ end }}{{ end }}
{{- end }}

{{- /* Whether the managers write nothing, by the last flag that tells, as Go's flags are read: --dry-run, -dry-run, --dry-run=true. */ -}}
{{- define "rollcall.dryRun" -}}
{{- $dry := "" }}
{{- range .Values.extraArgs }}
{{- if regexMatch "^--?dry-run(=(1|t|T|true|TRUE|True))?$" . }}{{ $dry = "true" }}
{{- else if regexMatch "^--?dry-run=" . }}{{ $dry = "" }}{{ end }}
{{- end }}
{{- $dry }}
{{- end }}

{{- define "rollcall.check" -}}
{{- $config := .Values.config }}
{{- if not $config.cluster }}
{{- fail "config.cluster is empty: set the name of this cluster, such as --set config.cluster=prod-1" }}
{{- end }}
{{- if not (or $config.registry $config.registries) }}
{{- fail "config.registry is empty: set the registry's driver and endpoint, such as --set config.registry.driver=consul --set config.registry.endpoint=https://consul.example.com:8501" }}
{{- end }}
{{- if and $config.registry $config.registries }}
{{- fail "config.registry and config.registries are both set: keep one of them" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false: set serviceAccount.name to the ServiceAccount that you created" }}
{{- end }}
{{- if and (not .Values.rbac.create) (eq .Values.uninstall.mode "clean") }}
{{- fail "rbac.create is false, and uninstall.mode clean needs a ClusterRole of its own: set uninstall.mode to check or none, and run kubectl rollcall uninstall before helm uninstall" }}
{{- end }}
{{- end }}

{{/* fixed is what a running manager does not take: each registry stays what it is. */}}
{{- define "rollcall.fixed" -}}
{{- $registries := dict }}
{{- range .Values.config.registries | default (list (merge (dict "name" "default") .Values.config.registry)) }}
{{- $_ := set $registries .name (pick . "driver" "endpoint" "options") }}
{{- end }}
{{- set (pick .Values.config "cluster" "namespaces" "leaseDuration" "enroll" "podCondition" "statusPage" "evictions") "registries" $registries | toJson }}
{{- end }}
