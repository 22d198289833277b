{{/* What everything is called: the release, with the chart's name in it. */}}
{{- define "quorumlog.name" -}}
{{- if contains "quorumlog" .Release.Name }}{{ .Release.Name | trunc 50 }}{{ else }}{{ printf "%s-quorumlog" .Release.Name | trunc 50 }}{{ end -}}
{{- end }}

{{/* The service whose names lead to single nodes. */}}
{{- define "quorumlog.nodes" -}}
{{ include "quorumlog.name" . }}-nodes
{{- end }}

{{/* Behind a pod's name: where it is reached. */}}
{{- define "quorumlog.domain" -}}
{{ include "quorumlog.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The port at which nodes reach each other. */}}
{{- define "quorumlog.peerPort" -}}
{{ if .Values.tls.secret }}19093{{ else }}19092{{ end }}
{{- end }}

{{/* Who forms the cluster: node 1 is the pod with the ordinal 0. */}}
{{- define "quorumlog.controllers" -}}
{{- $listed := list }}
{{- range $ordinal := until (int .Values.controllers) }}
{{- $pod := printf "%s-%d.%s" (include "quorumlog.name" $) $ordinal (include "quorumlog.domain" $) }}
{{- $listed = append $listed (printf "%d@%s:%s" (add1 $ordinal) $pod (include "quorumlog.peerPort" $)) }}
{{- end }}
{{- join "," $listed }}
{{- end }}

{{- define "quorumlog.selector" -}}
app.kubernetes.io/name: quorumlog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The services select nodes: a mirror's pod has another name. */}}
{{- define "quorumlog.mirrorSelector" -}}
app.kubernetes.io/name: quorumlog-mirror
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quorumlog.labels" -}}
{{ include "quorumlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
