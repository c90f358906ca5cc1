{{/* Labels of every object. */}}
{{- define "mainspring.labels" -}}
app.kubernetes.io/name: mainspring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What selects the pods of one component, from (list context component). */}}
{{- define "mainspring.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "mainspring.secret" -}}
{{ .Values.secret.name | default .Release.Name }}
{{- end }}

{{- define "mainspring.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* A pod that is not root. */}}
{{- define "mainspring.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* A container that can change nothing but /tmp. */}}
{{- define "mainspring.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "mainspring.environment" -}}
envFrom:
  - configMapRef:
      name: {{ .Release.Name }}
  - secretRef:
      name: {{ include "mainspring.secret" . }}
{{- end }}

{{/* The scale behaviour, the same for both autoscalers. */}}
{{- define "mainspring.behavior" -}}
behavior:
  scaleUp:
    stabilizationWindowSeconds: 60
    policies:
      - type: Percent
        value: 50
        periodSeconds: 60
  scaleDown:
    stabilizationWindowSeconds: 300
    policies:
      - type: Pods
        value: 2
        periodSeconds: 120
{{- end }}
