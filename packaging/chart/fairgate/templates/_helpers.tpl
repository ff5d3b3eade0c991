{{/* The name of all objects of a release. */}}
{{- define "fairgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fairgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "fairgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "fairgate.secretName" -}}
{{- .Values.secret.existing | default (printf "%s-env" (include "fairgate.fullname" .)) -}}
{{- end -}}

{{- define "fairgate.adminPort" -}}
{{- ternary "admin" "http" .Values.admin.separate -}}
{{- end -}}

{{- define "fairgate.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.tls.existing "") -}}
{{- end -}}

{{/* The configuration file: that of the values, and what the chart decides. */}}
{{- define "fairgate.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "listen" "0.0.0.0:8080" -}}
{{- $_ := set $config "data_dir" "/data" -}}
{{- $admin := dict "token" (dict "env" "FAIRGATE_ADMIN_TOKEN") -}}
{{- if .Values.admin.separate -}}
{{- $_ := set $admin "listen" "0.0.0.0:8081" -}}
{{- end -}}
{{- $_ := set $config "admin" $admin -}}
{{- if .Values.tls.existing -}}
{{- $_ := set $config "tls" (dict "cert" "/etc/fairgate/tls/tls.crt" "key" "/etc/fairgate/tls/tls.key") -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The part of the values whose change needs a restart. A change of anything else is a reload. */}}
{{- define "fairgate.restartPart" -}}
{{- $config := .Values.config -}}
{{- $pools := dict -}}
{{- range $config.pools -}}
{{- $_ := set $pools (toString .name) (pick . "max_queue" "brownout" "overlap_credit") -}}
{{- end -}}
{{- $part := dict "admin" .Values.admin "tls" .Values.tls "secret" .Values.secret "pools" $pools -}}
{{- $_ := set $part "store" (pick ($config.store | default dict) "url" "spool" "spool_size_max" "clickhouse") -}}
{{- $_ := set $part "journal" (toString $config.journal) -}}
{{- $_ := set $part "metrics" (toString $config.metrics) -}}
{{- $_ := set $part "fleet" (omit ($config.fleet | default dict) "webhooks") -}}
{{- toYaml $part -}}
{{- end -}}
