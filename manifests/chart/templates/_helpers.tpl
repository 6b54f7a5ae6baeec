{{/* `(.Values.KEY).NAME` is for sections that the original lacks: `--reuse-values` leaves them out. */}}
{{/* Name of the product in a release that is called so, else of the original, whose selector is immutable. */}}
{{- define "adapter.name" -}}
{{- $own := "gpu-metrics-adapter" -}}
{{- default (contains $own .Release.Name | ternary $own .Chart.Name) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "adapter.fullname" -}}
{{- $name := include "adapter.name" . -}}
{{- $made := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $made .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "adapter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "adapter.serviceAccount" -}}
{{- default (.Values.serviceAccount.create | ternary (include "adapter.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end -}}

{{/* As a JSON list. Without the key, those of the flag; an empty list means none. */}}
{{- define "adapter.scaleTargets" -}}
{{- kindIs "invalid" .Values.scaleTargets | ternary (.Files.Get "files/scale_targets.json") (toJson .Values.scaleTargets) -}}
{{- end -}}

{{/* Account whose token the other server of external metrics gets. */}}
{{- define "adapter.fallbackAccount" -}}
{{- (.Values.externalFallback).serviceAccount | default (printf "%s-external-fallback" (include "adapter.fullname" .)) -}}
{{- end -}}

{{- define "adapter.selector" -}}
app.kubernetes.io/name: {{ include "adapter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of all objects. part-of tells our Deployment from one of prometheus-adapter. */}}
{{- define "adapter.labels" -}}
{{- $fixed := dict "app.kubernetes.io/part-of" "gpu-metrics-adapter" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/component" "metrics"
  "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- mustMerge (fromYaml (include "adapter.selector" .)) $fixed .Values.customLabels $own | include "adapter.strings" -}}
{{- end -}}

{{/* A mapping whose values are strings: the API refuses `true` and 9090 as labels and annotations. */}}
{{- define "adapter.strings" -}}
{{- range $key, $value := . }}
{{ quote $key }}: {{ toString $value | quote }}
{{- end -}}
{{- end -}}

{{/* Metadata of an object: root, name; optional: namespace (true or a name), labels, annotations. */}}
{{- define "adapter.metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ kindIs "bool" . | ternary (include "adapter.namespace" $.root) . }}
{{- end }}
labels:
  {{- mustMerge (fromYaml (include "adapter.labels" .root)) (.labels | default dict) | include "adapter.strings" | indent 2 }}
{{- with mustMerge dict (.annotations | default dict) .root.Values.customAnnotations }}
annotations:
  {{- include "adapter.strings" . | indent 2 }}
{{- end }}
{{- end -}}

{{/* Repository, tag or digest. A value that names prometheus-adapter itself would run its program. */}}
{{- define "adapter.image" -}}
{{- $repository := .Values.image.repository | default "gpu-metrics-adapter" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion | toString -}}
{{- if include "adapter.originalImage" . -}}
{{- $repository = "gpu-metrics-adapter" -}}
{{- $tag = .Chart.AppVersion -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}{{ $repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ $tag }}{{ end -}}
{{- end -}}

{{/* The reason why the image is replaced; empty if it is not. */}}
{{- define "adapter.originalImage" -}}
{{- $image := .Values.image -}}
{{- if regexMatch "(^|/)(k8s-)?prometheus-adapter(-[a-z0-9]+)?$" ($image.repository | default "") -}}
image.repository {{ $image.repository }}
{{- else if and (eq ($image.repository | default "gpu-metrics-adapter") "gpu-metrics-adapter") (regexMatch "^v0[.]" ($image.tag | default "" | toString)) -}}
image.tag {{ $image.tag }}
{{- end -}}
{{- end -}}

{{/* The port follows the host, unless the host has one. */}}
{{- define "adapter.prometheusURL" -}}
{{- if include "adapter.embeddedOnly" . -}}
http://127.0.0.1:{{ .Values.prometheus.embedded.port }}
{{- else -}}
{{- $url := tpl (toString .Values.prometheus.url) . -}}
{{- $url = printf "%s%s" (contains "://" $url | ternary "" "http://") $url -}}
{{- with .Values.prometheus.port -}}
{{- if not (regexMatch "^[a-z]+://[^/?#]*:[0-9]+([/?#]|$)" $url) }}{{ $url = regexReplaceAll "^([a-z]+://[^/?#]*)" $url (printf "${1}:%v" .) }}{{ end -}}
{{- end -}}
{{ regexFind "^[^?#]*" $url }}{{ .Values.prometheus.path }}{{ regexFind "[?#].*" $url }}
{{- end -}}
{{- end -}}

{{/* "true" if the Prometheus in the pod is the only one: prometheus.url is the default, or empty. */}}
{{- define "adapter.embeddedOnly" -}}
{{- $url := .Values.prometheus.url -}}
{{- if and (.Values.prometheus.embedded).enabled (has $url (list "" nil "http://prometheus.default.svc")) }}true{{ end -}}
{{- end -}}

{{- define "adapter.embeddedImage" -}}
{{- $image := .Values.prometheus.embedded.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- with $image.tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/*
The flags --preset, one per line: `auto` before the default rules. Of two rules with one name the
later one is used, so the metrics of a release of prometheus-adapter keep their meaning.
*/}}
{{- define "adapter.presets" -}}
{{- $default := and .Values.rules.default (not .Values.rules.existing) -}}
{{- $presets := .Values.presets | default list -}}
{{- if $default }}{{ $presets = prepend $presets "prometheus-adapter" }}{{ end -}}
{{- if and $default (kindIs "invalid" .Values.presets) }}{{ $presets = prepend $presets "auto" }}{{ end -}}
{{- if and (.Values.resourceMetrics).enabled (not .Values.rules.resource) }}{{ $presets = append $presets "resource-metrics" }}{{ end -}}
{{- range $presets }}
- --preset={{ . }}
{{- end }}
{{- end -}}

{{/* Where the serving certificate comes from: own, cert-manager or files. */}}
{{- define "adapter.certificates" -}}
{{- $tls := .Values.tls -}}
{{- $pem := and (contains "-----BEGIN CERTIFICATE-----" (toString $tls.certificate)) (contains "PRIVATE KEY-----" (toString $tls.key)) -}}
{{- if .Values.certManager.enabled -}}cert-manager
{{- else if and $tls.enable (or $tls.existingSecret $pem) -}}files
{{- else -}}own
{{- end -}}
{{- end -}}

{{- define "adapter.certificateSecret" -}}
{{- if eq (include "adapter.certificates" .) "files" -}}
{{- .Values.tls.existingSecret | default (include "adapter.fullname" .) -}}
{{- else -}}
{{- include "adapter.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "adapter.ca" -}}
{{- if contains "-----BEGIN CERTIFICATE-----" (toString .Values.tls.ca) }}{{ .Values.tls.ca }}{{ end -}}
{{- end -}}

{{/*
"true" if the APIServices skip verification. Pods of prometheus-adapter serve a certificate that cannot
be verified, so the upgrade that replaces them keeps what it finds, and the next one turns it off.
*/}}
{{- define "adapter.insecure" -}}
{{- $value := (.Values.apiServices).insecureSkipTLSVerify -}}
{{- $name := include "adapter.fullname" . -}}
{{- $live := lookup "apps/v1" "Deployment" (include "adapter.namespace" .) $name -}}
{{- if kindIs "bool" $value -}}
{{- if $value }}true{{ end -}}
{{- else if and (eq (include "adapter.certificates" .) "files") (not (include "adapter.ca" .)) -}}
true
{{- else if and $live (ne (dig "metadata" "labels" "app.kubernetes.io/part-of" "" $live) "gpu-metrics-adapter") -}}
{{- $found := "" -}}
{{- range list "v1beta1.custom.metrics.k8s.io" "v1beta1.external.metrics.k8s.io" "v1beta1.metrics.k8s.io" -}}
{{- $api := lookup "apiregistration.k8s.io/v1" "APIService" "" . -}}
{{- if and (dig "spec" "insecureSkipTLSVerify" false $api) (eq (dig "spec" "service" "name" "" $api) $name) -}}
{{- $found = "true" -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}
{{- end -}}

{{/* The APIServices, as a YAML list of group, version and priority. */}}
{{- define "adapter.apiServices" -}}
{{- $rules := .Values.rules -}}
{{- $custom := (.Values.customMetrics).enabled -}}
{{- if kindIs "invalid" $custom }}{{ $custom = or .Values.presets $rules.default $rules.custom }}{{ end -}}
{{- $external := (.Values.externalMetrics).enabled -}}
{{- if kindIs "invalid" $external }}{{ $external = or $rules.external (.Values.externalFallback).service }}{{ end -}}
{{- $resource := (.Values.resourceMetrics).enabled -}}
{{- if kindIs "invalid" $resource }}{{ $resource = $rules.resource }}{{ end -}}
{{- $enabled := dict "custom.metrics.k8s.io" $custom "external.metrics.k8s.io" $external "metrics.k8s.io" $resource -}}
{{- range $group, $versions := .Files.Get "files/apiservices.json" | fromJson }}
{{- if get $enabled $group }}
{{ toYaml $versions }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A probe, with the httpGet of the default only if it has no other handler. */}}
{{- define "adapter.probe" -}}
{{- if or .exec .tcpSocket .grpc }}{{ toYaml (omit . "httpGet") }}{{ else }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* tlsConfig of a ServiceMonitor or PodMonitor; the argument has root and config. */}}
{{- define "adapter.scrapeTLS" -}}
{{- $mode := include "adapter.certificates" .root -}}
{{- $name := include "adapter.fullname" .root -}}
{{- if .config -}}
{{- toYaml .config -}}
{{- else if eq $mode "files" -}}
insecureSkipVerify: true
{{- else -}}
serverName: {{ $name }}.{{ include "adapter.namespace" .root }}.svc
ca:
  secret:
    name: {{ $name }}{{ eq $mode "own" | ternary "-tls" "" }}
    key: ca.crt
{{- end -}}
{{- end -}}

{{/* Keys of `values` that `known` lacks, one per line with the path in front. */}}
{{- define "adapter.unknown" -}}
{{- $known := .known -}}
{{- $path := .path -}}
{{- range $key, $value := .values -}}
{{- if not (hasKey $known $key) }}
{{ $path }}{{ $key }}
{{- else if and (kindIs "map" (get $known $key)) (kindIs "map" $value) -}}
{{- include "adapter.unknown" (dict "values" $value "known" (get $known $key) "path" (printf "%s%s." $path $key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Warnings, one per line. */}}
{{- define "adapter.warnings" -}}
{{- $reasons := .Files.Get "files/reasons.yaml" | fromYaml -}}
{{- $known := .Files.Get "files/keys.json" | fromJson -}}
{{- $unknown := include "adapter.unknown" (dict "values" (omit .Values "global") "known" $known "path" "") | trim -}}
{{- range $key := splitList "\n" $unknown | compact }}
{{- $reason := get $reasons $key -}}
{{- range $other := keys $known -}}
{{- if eq (lower $other) (lower $key) }}{{ $reason = printf "did you mean %s?" $other }}{{ end -}}
{{- end }}
{{ $key }} has no effect: {{ $reason | default "this chart has no such key" }}
{{- end -}}
{{- with include "adapter.originalImage" . }}
{{ . }} is prometheus-adapter's: {{ include "adapter.image" $ }} runs instead; set image.registry, or another image.repository
{{- end -}}
{{- $mode := include "adapter.certificates" . -}}
{{- if and .Values.tls.enable (eq $mode "own") }}
tls.enable has no effect, because tls.certificate and tls.key are not PEM: the adapter issues its own certificate
{{- else if and .Values.tls.enable (eq $mode "cert-manager") }}
tls.enable has no effect, because certManager.enabled names the same Secret
{{- else if and (eq $mode "files") (not (include "adapter.ca" .)) }}
tls.ca is not PEM: the APIServices skip the verification of the certificate
{{- else if include "adapter.insecure" . }}
The APIServices skip the verification of the certificate{{ if not (.Values.apiServices).insecureSkipTLSVerify }} while pods of prometheus-adapter are replaced: run the same `helm upgrade` again to turn it on{{ end }}
{{- end -}}
{{- if include "adapter.embeddedOnly" . -}}
{{- if or .Values.rules.resource (.Values.resourceMetrics).enabled }}
The Prometheus in the pod does not scrape cAdvisor: for CPU and memory, set prometheus.url
{{- end }}
{{- else if not (contains "://" (tpl (toString .Values.prometheus.url) .)) }}
prometheus.url has no scheme: http:// is added
{{- end -}}
{{- if not (include "adapter.apiServices" . | trim) }}
No metrics API is served: set presets, one of rules, or enabled of customMetrics, externalMetrics or resourceMetrics
{{- end -}}
{{- end -}}
