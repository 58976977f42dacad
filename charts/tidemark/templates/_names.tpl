{{/* The namespaces that are watched, with commas; "*" for all. Without a value that of the release. */}}
{{- define "tidemark.watched" -}}
{{ join "," (.Values.watchNamespaces | default (list .Release.Namespace)) }}
{{- end }}

{{- define "tidemark.serviceAccount" -}}
{{ (.Values.serviceAccount | default dict).name | default "tidemark-operator" }}
{{- end }}

{{/* Namespaces with NetworkPolicies for brokers and audits: those that are watched, where they are named. */}}
{{- define "tidemark.policyNamespaces" -}}
{{ $watched := include "tidemark.watched" . }}
{{- $named := .Values.networkPolicies.namespaces | default list }}
{{- if ne $watched "*" }}{{ $named = concat (splitList "," $watched) $named }}{{ end }}
{{- join "," (uniq $named) }}
{{- end }}

{{/* spec of the BrokerPool `default`, with the pull secrets of the chart unless it has its own. */}}
{{- define "tidemark.defaultPool" -}}
{{ $more := dict }}
{{- with .Values.imagePullSecrets }}{{ $more = dict "imagePullSecrets" . }}{{ end }}
{{- toJson (merge (dict) .Values.defaultPool $more) }}
{{- end }}

{{/* Stop an upgrade that would watch fewer namespaces than before though nobody said so. */}}
{{- define "tidemark.checkUpgrade" -}}
{{- if not .Values.watchNamespaces }}
{{- $found := lookup "apps/v1" "Deployment" .Release.Namespace "tidemark-operator" }}
{{- range (($found.spec | default dict).template | default (dict "spec" dict)).spec.containers }}
{{- range .env }}
{{- if and (eq .name "TIDEMARK_WATCH_NAMESPACES") (has (.value | default "*") (list "*")) }}
{{- fail (printf "watchNamespaces: the operator that is installed watches all namespaces, and without a value it would watch %s only. Set watchNamespaces to [\"*\"] to go on, or to the namespaces that have Topics and BrokerPools." $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidemark.labels" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidemark.chaosSelector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/component: chaos-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidemark.chaosLabels" -}}
{{ include "tidemark.chaosSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What the operator may do with the objects of the namespaces that it serves. */}}
{{- define "tidemark.rules" -}}
- apiGroups: [tidemark.dev]
  resources: [topics]
  verbs: [get, list, watch, create, update, delete]     # write: for clients of Kafka's admin APIs
- apiGroups: [tidemark.dev]
  resources: [brokerpools]
  verbs: [get, list, watch, create, update]     # create: the pool `default`; update: spec.security that is absent
- apiGroups: [tidemark.dev]
  resources: [replicationaudits]
  verbs: [get, list, watch]
- apiGroups: [tidemark.dev]
  resources: [topics/status, brokerpools/status, replicationaudits/status]
  verbs: [update]
- apiGroups: [tidemark.dev]
  resources: [brokerpools/finalizers, replicationaudits/finalizers]   # to own pods where OwnerReferencesPermissionEnforcement is on
  verbs: [update]
- apiGroups: [tidemark.dev]
  resources: [brokers]
  verbs: [get, list, create, update]
- apiGroups: [tidemark.dev]
  resources: [partitionslices]
  verbs: [get, list, create, update, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, delete]    # delete: those of a listener that there is no more
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, create, update, delete]
{{- if .Values.sparkApplications }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [list, create, delete]
- apiGroups: [sparkoperator.k8s.io]
  resources: [scheduledsparkapplications]
  verbs: [get, create, update, delete]
{{- end }}
- apiGroups: [""]
  resources: [events]                   # incidents of audits, and what the controller decides
  verbs: [get, create, update]          # the same again raises an Event's count
- apiGroups: [""]
  resources: [configmaps]               # <pool>-trust: certificate authorities of a pool with TLS
  verbs: [get, create, update]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create]
- apiGroups: [authorization.k8s.io]
  resources: [localsubjectaccessreviews]    # what clients of brokers may do
  verbs: [create]
{{- end }}

{{/* Alert rules; their runbooks are under the URL that the values name. */}}
{{- define "tidemark.alertRules" -}}
{{- $url := printf "runbook_url: %sdocs/runbooks/" .Values.monitoring.runbookBaseUrl -}}
{{- .Files.Get "rules/alerts.yaml" | replace "runbook_url: docs/runbooks/" $url -}}
{{- end -}}
