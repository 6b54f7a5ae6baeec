"""The requests that the HPA controller sends for an autoscaler, without I/O.

`rules.hpa.reading` has the same requests for `explain hpa`, which reads the scale subresource.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from adapter.cluster.value_index import Item
from rules.errors import RulesError, UnknownResourceError
from rules.hpa import autoscaler
from rules.hpa.autoscaler import Metric, Reference
from rules.hpa.reading import CUSTOM, EXTERNAL
from rules.kinds import WORKLOADS, GroupResource, Kinds
from rules.selectors.selectors import Selector

RESOURCE = "metrics.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is kept of an HPA."""

    namespace: str
    name: str
    uid: str
    target: Reference
    metrics: tuple[Metric, ...]
    replicas: int
    """Present replicas of the target. Without any, the controller reads no metrics of pods."""


def parse(document: Mapping[str, Any]) -> Item[Watched]:
    """Return the HPA in a JSON document of autoscaling/v2, without a value if it cannot be read.

    Raises KeyError, TypeError and AttributeError for what is no object.
    """
    metadata = document["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    try:
        hpa = autoscaler.autoscaler(document)
    except (RulesError, KeyError, TypeError, ValueError, AttributeError):
        return Item(namespace, name, None)  # such as a type of metrics of a later release
    watched = Watched(
        namespace=namespace,
        name=name,
        uid=str(metadata["uid"]),
        target=hpa.target,
        metrics=hpa.metrics,
        replicas=hpa.current,
    )
    return Item(namespace, name, watched)


def path_of(metric: Metric, hpa: Watched, kinds: Kinds, selector: Selector | None) -> str:
    """Return the path and query of the request for a metric; empty if there is none now.

    Metrics of pods need `selector`, that of the target; see `workload`.
    """
    below = f"namespaces/{quote(hpa.namespace)}"
    name = quote(metric.name, safe="")
    query = {"metricLabelSelector": metric.selector} if metric.selector else {}
    if metric.type == "External":
        labels = {"labelSelector": metric.selector, **query} if query else {}
        return _join(f"/apis/{EXTERNAL}/v1beta1/{below}/{name.lower()}", labels)
    if metric.type == "Object":
        return _join(f"/apis/{CUSTOM}/v1beta1/{below}/{_object(metric, kinds)}/{name}", query)
    if not selector or not hpa.replicas:
        return ""
    labels = {"labelSelector": str(selector)}
    if metric.type == "Pods":
        return _join(f"/apis/{CUSTOM}/v1beta1/{below}/pods/*/{name}", {**labels, **query})
    return _join(f"/apis/{RESOURCE}/v1beta1/{below}/pods", labels)


def _object(metric: Metric, kinds: Kinds) -> str:
    described = metric.described
    assert described is not None  # the API server requires it for Object metrics
    if described.kind == "Namespace" and not described.group:
        return "metrics"
    resource = _plural(described, kinds)
    return f"{resource}/{quote(described.name)}"


def workload(target: Reference, kinds: Kinds) -> GroupResource | None:
    """Return the resource of a scale target if it is one of `WORKLOADS`, whose pods are known."""
    found = GroupResource(target.group, _plural(target, kinds).partition(".")[0])
    return found if found in WORKLOADS else None


def _plural(reference: Reference, kinds: Kinds) -> str:
    """Return the resource of a kind as URLs spell it; the kind in lower case if it is unknown."""
    try:
        kind = kinds.resolve(reference.kind.lower(), reference.group)
    except UnknownResourceError:
        return str(GroupResource(reference.group, reference.kind.lower()))
    return str(kind.group_resource)


def _join(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
