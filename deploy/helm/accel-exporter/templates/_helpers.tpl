{{- define "accel-exporter.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* With room for a flavour behind it: names have at most 63 characters. */}}
{{- define "accel-exporter.fullname" -}}
{{- $name := include "accel-exporter.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "accel-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "accel-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "accel-exporter.labels" -}}
{{ include "accel-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "accel-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "accel-exporter.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* The vendors' flavours, each named as its collector. */}}
{{- define "accel-exporter.vendors" -}}
nvidia amd neuron gaudi tpu
{{- end }}

{{/* The flavours that are enabled, with spaces between. */}}
{{- define "accel-exporter.enabled" -}}
{{- $found := list }}
{{- range splitList " " (include "accel-exporter.vendors" .) }}
{{- if (index $.Values .).enabled }}{{ $found = append $found . }}{{ end }}
{{- end }}
{{- if and .Values.auto.enabled $found }}
{{- fail (printf "auto.enabled and %s.enabled exclude each other: two agents would read the same devices. Set auto.enabled to false, or leave %s to auto" (first $found) (first $found)) }}
{{- end }}
{{- if .Values.auto.enabled }}{{ $found = list "auto" }}{{ end }}
{{- if and .Values.web.tls (not .Values.web.configSecret) }}
{{- fail "web.tls says that the agents serve TLS: name the Secret with their web configuration in web.configSecret (docs/web-config.md)" }}
{{- end }}
{{- if not $found }}
{{- fail "no flavour is enabled: set auto.enabled, or nvidia.enabled, amd.enabled, neuron.enabled, gaudi.enabled or tpu.enabled, to true" }}
{{- end }}
{{- join " " $found }}
{{- end }}

{{- define "accel-exporter.image" -}}
{{- $image := .root.Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- $suffix := ternary "" (printf "-%s" .settings.imageTarget) (eq .settings.imageTarget "all") }}
{{- printf "%s:%s%s" $image.repository ($image.tag | default .root.Chart.AppVersion) $suffix }}
{{- end }}
{{- end }}

{{/* The agent's configuration as the flavour has it: the chart's, then `config`, then the flavour's `config`. */}}
{{- define "accel-exporter.config" -}}
{{- $config := dict
  "listen" (list (printf "%s:%v" .root.Values.listenAddress .root.Values.port))
  "labels" (dict "node" false)
}}
{{- if ne .flavour "auto" }}
{{- $collectors := dict }}
{{- range without (splitList " " (include "accel-exporter.vendors" .root)) .flavour }}
{{- $_ := set $collectors . (dict "enabled" false) }}
{{- end }}
{{- $_ := set $config "collectors" $collectors }}
{{- end }}
{{- mergeOverwrite $config (deepCopy .root.Values.config) (deepCopy .settings.config) | toYaml }}
{{- end }}

{{/*
What a configuration makes the agent ask of Kubernetes, as YAML. `auto` counts as yes: the agent decides on the node.
  kubelet, apiserver, kubeletPods, namespaces, dra
*/}}
{{- define "accel-exporter.asks" -}}
{{- $kubernetes := dig "attribution" "kubernetes" dict . }}
{{- $kubelet := ne (toString (dig "enabled" "auto" $kubernetes)) "false" }}
{{- $from := dig "pods_from" "auto" $kubernetes }}
{{- dict
  "kubelet" $kubelet
  "apiserver" (and $kubelet (has $from (list "auto" "apiserver")))
  "kubeletPods" (and $kubelet (eq $from "kubelet"))
  "namespaces" (and $kubelet (ne $from "none") (dig "namespaces" false $kubernetes))
  "dra" (and $kubelet (ne (toString (dig "dra" "auto" $kubernetes)) "false"))
| toYaml }}
{{- end }}

{{/* The same of all flavours together. */}}
{{- define "accel-exporter.allAsks" -}}
{{- $all := dict }}
{{- range splitList " " (include "accel-exporter.enabled" .) }}
{{- $config := include "accel-exporter.config" (dict "root" $ "flavour" . "settings" (index $.Values .)) | fromYaml }}
{{- range $what, $yes := include "accel-exporter.asks" $config | fromYaml }}
{{- $_ := set $all $what (or $yes (dig $what false $all)) }}
{{- end }}
{{- end }}
{{- $all | toYaml }}
{{- end }}

{{/* The name of the volume of a host's path: /etc/sensors.d → host-etc-sensors-d. */}}
{{- define "accel-exporter.volume" -}}
{{- printf "host%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-") | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Whether anything is asked of an API, for which a token is needed. */}}
{{- define "accel-exporter.token" -}}
{{- if or .apiserver .kubeletPods .namespaces .dra }}true{{ else }}false{{ end }}
{{- end }}

{{/*
The two endpoints of a monitor. With honorLabels the target's own namespace, pod and container would stand on each series that
has none, and a free device would seem to be worked by the agent's pod: they are dropped.
*/}}
{{- define "accel-exporter.endpoints" -}}
{{- $monitor := .Values.podMonitor }}
{{- range $schema := list "common" "raw" }}
{{- $endpoint := index $monitor $schema }}
{{- if $endpoint.enabled }}
- port: metrics
  path: /metrics
  params:
    schema: [{{ $schema }}]
  honorLabels: {{ eq $schema "common" }}
  {{- if $.Values.web.tls }}
  scheme: https
  {{- end }}
  {{- with $monitor.tlsConfig }}
  tlsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $monitor.basicAuth }}
  basicAuth:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $monitor.interval }}
  interval: {{ . }}
  {{- end }}
  {{- with $monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  relabelings:
    - {action: replace, sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
    # The node, not the pod's address: the series go on when the pod is made anew.
    - {action: replace, sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: instance}
    - {action: replace, replacement: {{ $endpoint.job | quote }}, targetLabel: job}
    {{- if eq $schema "common" }}
    - {action: labeldrop, regex: namespace|pod|container}
    {{- end }}
    {{- with $endpoint.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $endpoint.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
