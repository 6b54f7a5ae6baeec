"""Replicas that each metric of a watched HPA proposes, from what its own request was answered.

What else the controller saw is noted with the answer: a moment later the controller changes it. So
neither Prometheus nor the API server gets a request. HPAs that send the same request cannot be told
apart: its last answer counts for each of them. CPU and memory have no proposal: that needs the
requests and start times of pods, which only complete pods have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from adapter.clients.value_index import ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.api.outcomes import Outcome
from adapter.server.autoscalers import watched_hpa
from adapter.server.autoscalers.watched_hpa import WatchedHpa
from adapter.server.cluster.contents import ReplicaStatus, WorkloadIndex
from adapter.server.cluster.object_index import ObjectIndex
from rules.hpa import proposal
from rules.hpa.autoscaler import MetricSpec, Pod, Scale
from rules.hpa.proposal import PodValue
from rules.kinds import PODS, Kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the controller saw when the request for a metric was answered."""

    outcome: Outcome
    status: ReplicaStatus | None = None
    """Of the target; None if it is not watched, as one that is read from its scale, and for Pods
    metrics."""
    pending: frozenset[str] | None = None
    """Selected pods whose phase is Pending; None if they are not watched, and for other metrics."""
    deleted: frozenset[str] = frozenset()
    """Selected pods that are being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """Notes what the controller sees."""

    pods: WatchCaches[ObjectIndex]
    pending: WatchCaches[ValueIndex[bool]]
    workloads: WatchCaches[WorkloadIndex]

    def note(self, hpa: WatchedHpa, metric: MetricSpec, outcome: Outcome, kinds: Kinds) -> Seen:
        """Return what the controller sees now. A request waits: only names of pods are compared."""
        if metric.type == "Pods":
            kind = kinds.first(PODS.resource, PODS.group)
            pods, pending = self.pods.index(kind), self.pending.index(kind)
            if pods is None or pending is None:
                return Seen(outcome=outcome)
            return Seen(
                outcome=outcome,
                pending=_those_in(pending.of(hpa.namespace), outcome.selected),
                deleted=_those_in(pods.deleted(hpa.namespace), outcome.selected),
            )
        resource, status = watched_hpa.workload(hpa.target, kinds), None
        if resource is not None and resource not in kinds.scale_targets:
            workloads = self.workloads.index(kinds.first(resource.resource, resource.group))
            status = workloads.status(hpa.namespace, hpa.target.name) if workloads else None
        return Seen(outcome=outcome, status=status)


def replicas(hpa: WatchedHpa, metric: MetricSpec, seen: Seen) -> int | None:
    """Return the replicas that a metric proposes before limits and stabilization.

    None if it has no value, or if what the controller needs is not watched. A pod whose phase is
    Succeeded counts as absent here, but as one without a value in the controller. For a target of
    type Value, pods that are being deleted do not count as ready here: workloads do not count them.
    """
    values, current = seen.outcome.values, hpa.replicas
    if not hpa.reads_metrics or not values:
        return None
    if metric.type == "Pods" and isinstance(values, Mapping) and seen.pending is not None:
        pods = [
            Pod(
                name=name,
                phase="Pending" if name in seen.pending else "Running",
                deleted=name in seen.deleted,
                ready="",
            )
            for name in seen.outcome.selected
        ]
        of_pods = {name: PodValue(value=each.milli) for name, each in values.items()}
        proposed = proposal.of_pods(
            metric, of_pods, pods, current=current, tolerances=hpa.tolerances
        )
        return proposed.replicas
    if metric.type == "External":
        value = proposal.total(metric, seen.outcome.external)
    elif metric.type == "Object" and isinstance(values, Mapping) and len(values) == 1:
        (value,) = (each.milli for each in values.values())
    else:
        return None
    status = seen.status
    ready = status.ready if status and status.present else None
    scale = Scale(spec=current, status=status.present if status else current, selector="")
    return proposal.of_value(metric, value, ready, scale, tolerances=hpa.tolerances).replicas


def _those_in(some: Collection[str], names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(each for each in names if each in some) if some else frozenset()
