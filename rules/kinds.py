"""The resource kinds that a cluster serves, and their resolution by name.

`Kinds` resolves the singular or plural in any case, with or without a group, as the RESTMapper of
the original does. `adapter.clients.kube_discovery` reads the kinds from a cluster. Where there is
none, they are those of every cluster: stable versions only, as in Kubernetes 1.34.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from rules.errors import UnknownResourceError

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


@dataclass(frozen=True, slots=True, order=True)
class GroupResource:
    """Plural name and API group of a resource; the core group is ""."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


NODES = GroupResource("", "nodes")
PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")
WORKLOADS = (
    GroupResource("apps", "deployments"),
    GroupResource("apps", "statefulsets"),
    GroupResource("apps", "replicasets"),
    GroupResource("batch", "jobs"),
)
"""Resources whose `spec.selector` selects their pods."""
SCALE_TARGETS = (
    GroupResource("argoproj.io", "rollouts"),
    GroupResource("disaggregatedset.x-k8s.io", "disaggregatedsetrolescalers"),
    GroupResource("leaderworkerset.x-k8s.io", "leaderworkersets"),
    GroupResource("workload.serving.volcano.sh", "modelservings"),
    GroupResource("workloads.x-k8s.io", "rolebasedgroupscalingadapters"),
)
"""Default of `--scale-targets`: resources whose scale subresource selects their pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """One entry of an APIResourceList."""

    name: str
    """The plural; with a `/` in it, a subresource, which `Kinds` ignores."""
    singular: str = ""
    """Empty if discovery omits it; then it is the kind in lower case."""
    kind: str
    namespaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiGroup:
    """One group of API discovery."""

    name: str
    versions: tuple[str, ...]
    """In the order of discovery."""
    preferred: str
    resources: Mapping[str, Sequence[ApiResource]]
    """Version -> its resources, without the versions whose discovery failed."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A resource in one version of its group."""

    group: str
    version: str
    kind: str
    resource: str
    singular: str
    namespaced: bool

    @functools.cached_property
    def group_resource(self) -> GroupResource:
        """The resource without its version."""
        return GroupResource(self.group, self.resource)

    @property
    def api_version(self) -> str:
        """Group and version as in a manifest: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


_Index = Mapping[tuple[str, str], Kind]
"""(group, spelling) -> kind; the group "" stands for any group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """All kinds of a cluster. Iteration yields each version of each kind, in discovery order."""

    groups: tuple[ApiGroup, ...]
    scale_targets: tuple[GroupResource, ...] = ()
    """Resources whose scale subresource selects their pods, as far as the cluster serves them."""
    _kinds: tuple[Kind, ...] = field(repr=False, compare=False)
    _preferred: _Index = field(repr=False, compare=False)
    _first: _Index = field(repr=False, compare=False)

    @classmethod
    def of(cls, groups: Iterable[ApiGroup], scale_targets: Iterable[GroupResource] = ()) -> Kinds:
        """Index the kinds of `groups`, which are in discovery order."""
        groups = tuple(groups)
        kinds: list[Kind] = []
        preferred: dict[tuple[str, str], tuple[tuple[int, int], Kind]] = {}
        first: dict[tuple[str, str], Kind] = {}
        for position, group in enumerate(groups):
            for version in group.versions:
                for resource in group.resources.get(version, ()):
                    if "/" in resource.name:
                        continue
                    kind = Kind(
                        group=group.name,
                        version=version,
                        kind=resource.kind,
                        resource=resource.name,
                        singular=resource.singular or resource.kind.lower(),
                        namespaced=resource.namespaced,
                    )
                    kinds.append(kind)
                    rank = _rank(position, group, version)
                    for key in product({"", kind.group}, {kind.resource, kind.singular}):
                        first.setdefault(key, kind)
                        if key not in preferred or rank < preferred[key][0]:
                            preferred[key] = (rank, kind)
        served = {kind.group_resource for kind in kinds if kind.namespaced}
        return cls(
            groups=groups,
            scale_targets=tuple(each for each in scale_targets if each in served),
            _kinds=tuple(kinds),
            _preferred={key: kind for key, (_, kind) in preferred.items()},
            _first=first,
        )

    @classmethod
    @functools.cache
    def builtin(cls) -> Kinds:
        """Return the kinds that every cluster serves, to work without a cluster."""
        groups: dict[str, dict[str, list[ApiResource]]] = {}
        for group, version, plural, kind, namespaced in resources():
            resource = ApiResource(name=plural, kind=kind, namespaced=namespaced)
            groups.setdefault(group, {}).setdefault(version, []).append(resource)
        return cls.of(
            ApiGroup(
                name=name,
                versions=tuple(versions),
                preferred=next(iter(versions)),
                resources=versions,
            )
            for name, versions in groups.items()
        )

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    @property
    def workloads(self) -> tuple[GroupResource, ...]:
        """Resources whose pods are known."""
        return (*WORKLOADS, *self.scale_targets)

    def find(self, resource: str, group: str = "") -> Kind | None:
        """Return the kind of a resource: singular or plural, any case; None if there is none.

        `group` is a group or the beginning of one. Without it the core group has priority, then the
        first group of discovery, in its preferred version. Follows restmapper/discovery.go of
        client-go.
        """
        return self._find(self._preferred, resource, group)

    def resolve(self, resource: str, group: str = "") -> Kind:
        """Return the kind of a resource as `find`. Raises UnknownResourceError."""
        if kind := self.find(resource, group):
            return kind
        raise _unknown(resource, group)

    def first(self, resource: str, group: str = "") -> Kind:
        """Return the first match in discovery order, which may not be the preferred version.

        Raises UnknownResourceError if there is none.
        """
        if kind := self._find(self._first, resource, group):
            return kind
        raise _unknown(resource, group)

    def _find(self, index: _Index, resource: str, group: str) -> Kind | None:
        spelling = resource.lower()
        if kind := index.get((group, spelling)):
            return kind
        if group:
            for each in self.groups:
                if each.name.startswith(group) and (kind := index.get((each.name, spelling))):
                    return kind
        return None


def _unknown(resource: str, group: str) -> UnknownResourceError:
    of_group = f' in the API group "{group}"' if group else ""
    return UnknownResourceError(f'the cluster does not serve the resource "{resource}"{of_group}')


def _rank(position: int, group: ApiGroup, version: str) -> tuple[int, int]:
    """Return the priority of a version in the RESTMapper; the lowest is preferred."""
    if group.name == "" and version == "v1":
        return 0, 0
    return position + 1, 0 if version == group.preferred else group.versions.index(version) + 1
