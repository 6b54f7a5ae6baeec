"""What is kept of a watched HPA, and the requests that the controller sends for it.

`rules.hpa.reading` derives the requests. Here, the resources and the selector that they need come
from what the server watches, instead of the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from adapter.clients import collection
from adapter.clients.value_index import Item
from adapter.server.cluster.scales import ScaleTarget
from rules import limits
from rules.hpa import autoscaler, decision, reading
from rules.hpa.autoscaler import MetricSpec, Reference
from rules.hpa.reading import ApiRequest
from rules.kinds import GroupResource, Kinds
from rules.limits import HPA_TEXT, Limits, name_of
from rules.selectors.selectors import Selector

UNREADABLE, UNLISTED = "unreadable", "unlisted"
"""Reasons for which a metric is left out, beside the names of limits: pods of a kind that is not in
--scale-targets are unlisted."""
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
    """Present replicas of the target."""
    is_new: bool
    """Whether the controller has never synced it, so its status has no replicas yet."""
    tolerances: tuple[float, float]
    reads_metrics: bool
    """Whether the controller reads metrics while the target has so many replicas."""
    left_out: Mapping[str, int]
    """Number of further metrics, by the reason for which they are not watched."""

    def needs(self, metric: MetricSpec) -> bool:
        """Return whether a metric should have a value: those of pods need a pod."""
        return metric.type in {"External", "Object"} or bool(self.replicas) or self.is_new


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
    without = autoscaler.autoscaler({**document, "spec": {**spec, "metrics": ()}})
    hpa = replace(without, metrics=tuple(metrics))
    watched = WatchedHpa(
        namespace=namespace,
        name=name,
        uid=hpa.uid,
        target=hpa.target,
        metrics=hpa.metrics,
        replicas=hpa.current,
        is_new=not hpa.conditions,
        tolerances=hpa.tolerances,
        reads_metrics=decision.needs_metrics(hpa, hpa.current),
        left_out=+left_out,
    )
    created = str(metadata.get("creationTimestamp") or "")
    return Item(namespace, name, watched, created, max(1, len(metrics), text // HPA_TEXT))


def request_of(
    metric: MetricSpec, hpa: WatchedHpa, kinds: Kinds, selector: Selector | None
) -> ApiRequest | None:
    """Return the request that the controller sends for a metric; None if that is not known.

    Metrics of pods need `selector`, that of the target; see `workload`.
    """
    if metric.type not in {"External", "Object"} and not selector:
        return None
    resource = ""
    if described := reading.object_of(metric):
        unknown = GroupResource(described.group, described.kind.lower())
        resource = str(resource_of(described, kinds) or unknown)
    return reading.request_for(metric, hpa.namespace, pods=str(selector or ""), resource=resource)


def resource_of(reference: Reference, kinds: Kinds) -> GroupResource | None:
    """Return the resource of a kind; None if the cluster does not serve it."""
    kind = kinds.find(reference.kind, reference.group)
    return kind.group_resource if kind else None


def workload(target: Reference, kinds: Kinds) -> GroupResource | None:
    """Return the resource of the target of an HPA if its pods are known."""
    found = resource_of(target, kinds)
    return found if found in kinds.workloads else None


def scale_targets(hpa: WatchedHpa, kinds: Kinds) -> Iterator[ScaleTarget]:
    """Yield the objects of an HPA whose scale has the selector of their pods.

    Those are its target, and what its Object metrics describe: rules may compute their metrics from
    the pods.
    """
    described = (reading.object_of(metric) for metric in hpa.metrics)
    for each in (hpa.target, *filter(None, described)):
        resource = workload(each, kinds)
        if resource in kinds.scale_targets:
            yield ScaleTarget(resource, hpa.namespace, each.name)
