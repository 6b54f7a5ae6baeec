"""The resources that every Kubernetes cluster serves, in the order of API discovery.

Stable versions only, as in Kubernetes 1.34. They are used where no cluster is available.
"""

from __future__ import annotations

Resource = tuple[str, str, bool]
"""Plural, kind, and whether it is namespaced. The singular is the kind in lower case."""

GROUPS: tuple[tuple[str, tuple[str, ...], tuple[Resource, ...]], ...] = (
    (
        "",
        ("v1",),
        (
            ("bindings", "Binding", True),
            ("componentstatuses", "ComponentStatus", False),
            ("configmaps", "ConfigMap", True),
            ("endpoints", "Endpoints", True),
            ("events", "Event", True),
            ("limitranges", "LimitRange", True),
            ("namespaces", "Namespace", False),
            ("nodes", "Node", False),
            ("persistentvolumeclaims", "PersistentVolumeClaim", True),
            ("persistentvolumes", "PersistentVolume", False),
            ("pods", "Pod", True),
            ("podtemplates", "PodTemplate", True),
            ("replicationcontrollers", "ReplicationController", True),
            ("resourcequotas", "ResourceQuota", True),
            ("secrets", "Secret", True),
            ("serviceaccounts", "ServiceAccount", True),
            ("services", "Service", True),
        ),
    ),
    (
        "apiregistration.k8s.io",
        ("v1",),
        (("apiservices", "APIService", False),),
    ),
    (
        "apps",
        ("v1",),
        (
            ("controllerrevisions", "ControllerRevision", True),
            ("daemonsets", "DaemonSet", True),
            ("deployments", "Deployment", True),
            ("replicasets", "ReplicaSet", True),
            ("statefulsets", "StatefulSet", True),
        ),
    ),
    (
        "events.k8s.io",
        ("v1",),
        (("events", "Event", True),),
    ),
    (
        "authentication.k8s.io",
        ("v1",),
        (
            ("selfsubjectreviews", "SelfSubjectReview", False),
            ("tokenreviews", "TokenReview", False),
        ),
    ),
    (
        "authorization.k8s.io",
        ("v1",),
        (
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
            ("subjectaccessreviews", "SubjectAccessReview", False),
        ),
    ),
    (
        "autoscaling",
        ("v2", "v1"),
        (("horizontalpodautoscalers", "HorizontalPodAutoscaler", True),),
    ),
    (
        "batch",
        ("v1",),
        (
            ("cronjobs", "CronJob", True),
            ("jobs", "Job", True),
        ),
    ),
    (
        "certificates.k8s.io",
        ("v1",),
        (("certificatesigningrequests", "CertificateSigningRequest", False),),
    ),
    (
        "networking.k8s.io",
        ("v1",),
        (
            ("ingressclasses", "IngressClass", False),
            ("ingresses", "Ingress", True),
            ("ipaddresses", "IPAddress", False),
            ("networkpolicies", "NetworkPolicy", True),
            ("servicecidrs", "ServiceCIDR", False),
        ),
    ),
    (
        "policy",
        ("v1",),
        (("poddisruptionbudgets", "PodDisruptionBudget", True),),
    ),
    (
        "rbac.authorization.k8s.io",
        ("v1",),
        (
            ("clusterrolebindings", "ClusterRoleBinding", False),
            ("clusterroles", "ClusterRole", False),
            ("rolebindings", "RoleBinding", True),
            ("roles", "Role", True),
        ),
    ),
    (
        "storage.k8s.io",
        ("v1",),
        (
            ("csidrivers", "CSIDriver", False),
            ("csinodes", "CSINode", False),
            ("csistoragecapacities", "CSIStorageCapacity", True),
            ("storageclasses", "StorageClass", False),
            ("volumeattachments", "VolumeAttachment", False),
            ("volumeattributesclasses", "VolumeAttributesClass", False),
        ),
    ),
    (
        "admissionregistration.k8s.io",
        ("v1",),
        (
            ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
            ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
            ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
        ),
    ),
    (
        "apiextensions.k8s.io",
        ("v1",),
        (("customresourcedefinitions", "CustomResourceDefinition", False),),
    ),
    (
        "scheduling.k8s.io",
        ("v1",),
        (("priorityclasses", "PriorityClass", False),),
    ),
    (
        "coordination.k8s.io",
        ("v1",),
        (("leases", "Lease", True),),
    ),
    (
        "node.k8s.io",
        ("v1",),
        (("runtimeclasses", "RuntimeClass", False),),
    ),
    (
        "discovery.k8s.io",
        ("v1",),
        (("endpointslices", "EndpointSlice", True),),
    ),
    (
        "resource.k8s.io",
        ("v1",),
        (
            ("deviceclasses", "DeviceClass", False),
            ("resourceclaims", "ResourceClaim", True),
            ("resourceclaimtemplates", "ResourceClaimTemplate", True),
            ("resourceslices", "ResourceSlice", False),
        ),
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        ("v1",),
        (
            ("flowschemas", "FlowSchema", False),
            ("prioritylevelconfigurations", "PriorityLevelConfiguration", False),
        ),
    ),
)
"""Group, versions (the preferred one first) and the resources of each version."""
