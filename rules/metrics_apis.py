"""The API groups of metrics: names, versions, and the paths of requests for metrics.

Server, clients and commands take them from here, and build no such path themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

ALL_OBJECTS = "*"
"""Name that stands for all objects in the path of a request."""
_NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True)
class MetricsApi:
    """An API group with metrics."""

    name: str
    versions: tuple[str, ...]
    """First the version that all clients can read, which clients and documents use by default; last
    the newest, which clients prefer that choose by discovery."""

    @property
    def apiservices(self) -> tuple[str, ...]:
        """Names of the APIServices, one for each version."""
        return tuple(f"{version}.{self.name}" for version in self.versions)

    def group_version(self, version: str = "") -> str:
        """Return the `apiVersion` of documents, of the first version by default."""
        return f"{self.name}/{version or self.versions[0]}"

    def path(self, version: str = "") -> str:
        """Return the path that lists the metrics, of the first version by default."""
        return f"/apis/{self.group_version(version)}"

    def has(self, path: str) -> bool:
        """Return whether a path is below the group."""
        return path.startswith(f"/apis/{self.name}/")


CUSTOM = MetricsApi("custom.metrics.k8s.io", ("v1beta1", "v1beta2"))
"""Metrics that describe objects of the cluster."""
EXTERNAL = MetricsApi("external.metrics.k8s.io", ("v1beta1",))
"""Metrics that describe no object of the cluster."""
USAGE = MetricsApi("metrics.k8s.io", ("v1beta1", "v1"))
"""CPU and memory of pods and nodes; both versions have the same types. The HPA controller reads
v1beta1 only, in Kubernetes 1.37, too; `kubectl top` reads v1 from 1.37 on if it is registered."""
APIS = (CUSTOM, EXTERNAL, USAGE)
"""In the order of discovery."""
OPENAPI_TITLE = "gpu-metrics-adapter"
"""Title of the OpenAPI documents of each group, if this program serves it."""


def custom_metric(
    metric: str, resource: str, name: str, *, namespace: str = "", version: str = ""
) -> str:
    """Return the path of a custom metric of an object, or of all that a selector matches.

    `resource` is plural, with its group if that is not empty: `deployments.apps`. `name` may be
    ALL_OBJECTS. `namespace` is empty at cluster scope.
    """
    named = name if name == ALL_OBJECTS else _segment(name)
    if resource == _NAMESPACES and not namespace:
        below = f"{_NAMESPACES}/{named}/metrics"
    else:
        below = f"{_within(namespace)}{_segment(resource)}/{named}"
    return f"{CUSTOM.path(version)}/{below}/{_segment(metric)}"


def external_metric(metric: str, namespace: str) -> str:
    """Return the path of an external metric."""
    return f"{EXTERNAL.path()}/{_within(namespace)}{_segment(metric)}"


def pod_usage(namespace: str) -> str:
    """Return the path of the CPU and memory of pods, as the HPA controller requests them."""
    return f"{USAGE.path()}/{_within(namespace)}pods"


def openapi(apiservice: str) -> str:
    """Return the path of the OpenAPI document of the program behind an APIService."""
    version, _, group = apiservice.partition(".")
    return f"/openapi/v3/apis/{group}/{version}"


def _within(namespace: str) -> str:
    return f"{_NAMESPACES}/{_segment(namespace)}/" if namespace else ""


def _segment(text: str) -> str:
    return quote(text, safe="")
