"""The resources that every Kubernetes cluster serves, in the order of API discovery.

Stable versions only, as in Kubernetes 1.34. They are used where no cluster is available.
"""

from __future__ import annotations

_ADMISSION = "admissionregistration.k8s.io"
_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"

RESOURCES: tuple[tuple[str, str, str, str, bool], ...] = (
    ("", "v1", "bindings", "Binding", True),
    ("", "v1", "componentstatuses", "ComponentStatus", False),
    ("", "v1", "configmaps", "ConfigMap", True),
    ("", "v1", "endpoints", "Endpoints", True),
    ("", "v1", "events", "Event", True),
    ("", "v1", "limitranges", "LimitRange", True),
    ("", "v1", "namespaces", "Namespace", False),
    ("", "v1", "nodes", "Node", False),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True),
    ("", "v1", "persistentvolumes", "PersistentVolume", False),
    ("", "v1", "pods", "Pod", True),
    ("", "v1", "podtemplates", "PodTemplate", True),
    ("", "v1", "replicationcontrollers", "ReplicationController", True),
    ("", "v1", "resourcequotas", "ResourceQuota", True),
    ("", "v1", "secrets", "Secret", True),
    ("", "v1", "serviceaccounts", "ServiceAccount", True),
    ("", "v1", "services", "Service", True),
    ("apiregistration.k8s.io", "v1", "apiservices", "APIService", False),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", True),
    ("apps", "v1", "daemonsets", "DaemonSet", True),
    ("apps", "v1", "deployments", "Deployment", True),
    ("apps", "v1", "replicasets", "ReplicaSet", True),
    ("apps", "v1", "statefulsets", "StatefulSet", True),
    ("events.k8s.io", "v1", "events", "Event", True),
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False),
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False),
    ("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True),
    ("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True),
    ("batch", "v1", "cronjobs", "CronJob", True),
    ("batch", "v1", "jobs", "Job", True),
    ("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False),
    ("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", True),
    ("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True),
    ("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", True),
    ("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
    ("storage.k8s.io", "v1", "csinodes", "CSINode", False),
    ("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", False),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False),
    ("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False),
    (_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    (_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
    (
        _ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        False,
    ),
    (_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
    ("coordination.k8s.io", "v1", "leases", "Lease", True),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True),
    ("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False),
    ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True),
    ("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True),
    ("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False),
    (_FLOW_CONTROL, "v1", "flowschemas", "FlowSchema", False),
    (_FLOW_CONTROL, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False),
)
"""Group, version, plural, kind, and whether it is namespaced; the preferred version comes first.

The singular is the kind in lower case.
"""
