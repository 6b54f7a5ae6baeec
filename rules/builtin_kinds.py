"""The resources that every Kubernetes cluster serves, in the order of API discovery.

Stable versions only, as in Kubernetes 1.34. They are used where no cluster is available.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_KINDS = """
v1 Binding ComponentStatus* ConfigMap Endpoints Event LimitRange Namespace* Node*
    PersistentVolumeClaim PersistentVolume* Pod PodTemplate ReplicationController ResourceQuota
    Secret ServiceAccount Service
apiregistration.k8s.io/v1 APIService*
apps/v1 ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
events.k8s.io/v1 Event
authentication.k8s.io/v1 SelfSubjectReview* TokenReview*
authorization.k8s.io/v1 LocalSubjectAccessReview SelfSubjectAccessReview*
    SelfSubjectRulesReview* SubjectAccessReview*
autoscaling/v2 HorizontalPodAutoscaler
autoscaling/v1 HorizontalPodAutoscaler
batch/v1 CronJob Job
certificates.k8s.io/v1 CertificateSigningRequest*
networking.k8s.io/v1 IngressClass* Ingress IPAddress* NetworkPolicy ServiceCIDR*
policy/v1 PodDisruptionBudget
rbac.authorization.k8s.io/v1 ClusterRoleBinding* ClusterRole* RoleBinding Role
storage.k8s.io/v1 CSIDriver* CSINode* CSIStorageCapacity StorageClass* VolumeAttachment*
    VolumeAttributesClass*
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration* ValidatingAdmissionPolicy*
    ValidatingAdmissionPolicyBinding* ValidatingWebhookConfiguration*
apiextensions.k8s.io/v1 CustomResourceDefinition*
scheduling.k8s.io/v1 PriorityClass*
coordination.k8s.io/v1 Lease
node.k8s.io/v1 RuntimeClass*
discovery.k8s.io/v1 EndpointSlice
resource.k8s.io/v1 DeviceClass* ResourceClaim ResourceClaimTemplate ResourceSlice*
flowcontrol.apiserver.k8s.io/v1 FlowSchema* PriorityLevelConfiguration*
"""
"""Group and version, and their kinds; `*` marks those without namespaces.

The preferred version of a group comes first.
"""
_PLURALS = ((r"^endpoints$", "endpoints"), (r"y$", "ies"), (r"s$", "ses"), (r"$", "s"))
"""Ending of a kind in lower case -> that of its plural."""


def resources() -> Iterator[tuple[str, str, str, str, bool]]:
    """Yield group, version, plural and kind of each resource, and whether it is namespaced."""
    group = version = ""
    for word in _KINDS.split():
        kind = word.rstrip("*")
        if kind[0].islower():
            group, _, version = kind.rpartition("/")
        else:
            ending, plural = next(each for each in _PLURALS if re.search(each[0], kind.lower()))
            yield group, version, re.sub(ending, plural, kind.lower()), kind, kind == word
