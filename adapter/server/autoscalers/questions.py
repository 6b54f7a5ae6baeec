"""What is kept of a watched HPA, and the requests that the controller sends for it.

`rules.hpa.reading` derives the requests. Here, the resources and the selector that they need come
from what the server watches, instead of the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.clients import collection
from adapter.clients.value_index import Item
from rules import limits
from rules.errors import UnknownResourceError
from rules.hpa import autoscaler, reading
from rules.hpa.autoscaler import MetricSpec, Reference
from rules.hpa.reading import ApiRequest
from rules.kinds import WORKLOADS, GroupResource, Kinds
from rules.limits import HPA_TEXT, Limits, name_of
from rules.selectors.selectors import Selector

UNREADABLE = "unreadable"
"""Reason for which a metric is left out, beside the names of limits."""
_METRICS, _TEXT = name_of("hpa_metrics"), name_of("hpa_metric_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedHpa:
    """What is kept of an HPA."""

    namespace: str
    name: str
    uid: str
    target: Reference
    metrics: tuple[MetricSpec, ...]
    replicas: int
    """Present replicas of the target. Without any, the controller reads no metrics of pods."""
    left_out: Mapping[str, int]
    """Number of further metrics, by the reason for which they are not watched."""


def parse(document: Mapping[str, Any], limits: Limits = limits.DEFAULT) -> Item[WatchedHpa]:
    """Return the HPA in a JSON document of autoscaling/v2.

    Metrics beyond a limit are not parsed; they are left out, as are those that cannot be read, such
    as a type of metrics of a later release. Any exception says that the HPA itself cannot be read.
    """
    metadata, spec = document["metadata"], document["spec"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    target = spec["scaleTargetRef"]
    every = spec.get("metrics") or ()
    text = len(orjson.dumps(target))
    if text > limits.hpa_metric_text:
        raise ValueError(f"its scaleTargetRef has {text} bytes: --limit={_TEXT}={text} allows it")
    metrics: list[MetricSpec] = []
    left_out = Counter({_METRICS: max(0, len(every) - limits.hpa_metrics)})
    for each in every[: limits.hpa_metrics]:
        size = len(orjson.dumps(each))
        if size > limits.hpa_metric_text:
            left_out[_TEXT] += 1
        elif isinstance(metric := collection.attempt(each, autoscaler.metric), MetricSpec):
            metrics.append(metric)
            text += size
        else:
            left_out[UNREADABLE] += 1
    watched = WatchedHpa(
        namespace=namespace,
        name=name,
        uid=str(metadata["uid"]),
        target=autoscaler.reference(target),
        metrics=tuple(metrics),
        replicas=(document.get("status") or {}).get("currentReplicas") or 0,
        left_out=+left_out,
    )
    created = str(metadata.get("creationTimestamp") or "")
    return Item(namespace, name, watched, created, max(1, len(metrics), text // HPA_TEXT))


def request_of(
    metric: MetricSpec, hpa: WatchedHpa, kinds: Kinds, selector: Selector | None
) -> ApiRequest | None:
    """Return the request that the controller sends for a metric; None if it sends none now.

    Metrics of pods need `selector`, that of the target; see `workload`.
    """
    if metric.type not in {"External", "Object"} and (not selector or not hpa.replicas):
        return None
    described = reading.object_of(metric)
    return reading.request_for(
        metric,
        hpa.namespace,
        pods=str(selector or ""),
        resource=_plural(described, kinds) if described else "",
    )


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
