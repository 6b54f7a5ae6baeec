"""The past of an autoscaler from Prometheus: what its controller read at each sync.

`past_metric` has the values; the pods and the replicas are read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adapter.cli.doctor.client import ApiClient
from adapter.cli.doctor.past_metric import PastMetric
from adapter.cli.doctor.ranges import Point, Ranges
from adapter.clients.prometheus import Prometheus
from adapter.settings.flag import MAX_PERIOD
from rules import promql
from rules.errors import PlanError, UnreadableError
from rules.hpa import past_pods, reading
from rules.hpa.autoscaler import Autoscaler, MetricSpec, Reference
from rules.hpa.past_pods import NONE, PastPods, States
from rules.hpa.reading import ApiRequest
from rules.hpa.replay import MetricReading, Sync
from rules.kinds import PODS, GroupResource
from rules.query import delay, entry_document
from rules.query.catalog import Entry, ExternalEntry
from rules.selectors import selectors

_STATUS = "kube_horizontalpodautoscaler_status_"
CURRENT, DESIRED = f"{_STATUS}current_replicas", f"{_STATUS}desired_replicas"
TARGET_METRIC = f"{_STATUS}target_metric"
NOT_OF_RULES = ("Resource", "ContainerResource")
"""Types of metrics that come from metrics.k8s.io, so that they have no past."""

Progress = Callable[[float], None]
"""Is called with the part of the past that has been read, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What Prometheus knows of an HPA."""

    hpa: Autoscaler
    history: tuple[Sync, ...]
    """From the first sync at which a metric had a value."""
    metrics: tuple[MetricSpec, ...]
    """Those of the HPA, then the objective and the loads that there are."""
    totals: tuple[bool, ...]
    """Of each metric, whether it is the load of all pods together."""
    delays: tuple[float, ...]
    """Of each metric, the seconds after which its query shows a change in full."""
    queries: int
    replicas_known: bool
    """Whether the replicas are those that kube-state-metrics has; else the pods that there were."""
    pods: str
    """Where the past pods are from."""
    sources: tuple[str, ...]
    """Prometheus servers that the rules name."""
    late: bool
    """Whether the history begins later than requested."""
    partial: str
    """What Prometheus says that its responses lack; empty if they are whole."""


async def read(
    client: ApiClient,
    prometheus: Prometheus,
    hpa: Autoscaler,
    *,
    now: float,
    since: float,
    step: float,
    objective: Sequence[MetricSpec] = (),
    loads: Sequence[MetricSpec] = (),
    progress: Progress = lambda _: None,
) -> Past:
    """Read the last `since` seconds of an HPA. Raises UnreadableError with what to do.

    `now` is in Unix seconds. `objective` has the ways to request one further metric, of which the
    first with rules is read. `loads` are further metrics; those without rules are left out.
    """
    scale = await client.run(reading.scale_of(hpa))
    target = past_pods.of_scale(hpa.target, selectors.parse(scale.selector))
    every = (*hpa.metrics, *objective, *loads)
    found = await client.run(reading.requests(replace(hpa, metrics=every)))
    requests = dict(zip(every, found, strict=True))
    metrics = [
        PastMetric(hpa, metric, target, await _entry(client, metric, requests[metric]))
        for metric in hpa.metrics
    ]
    needed = len(metrics)
    if objective:
        first = await _first(client, hpa, target, objective, requests)
        if first is None:
            raise UnreadableError(
                f"{objective[0].name} has no value for {hpa.target}, for its pods or as an "
                f"external metric of {hpa.namespace}. Choose a metric of these"
            )
        metrics.append(first)
        needed += 1
    further = [await _first(client, hpa, target, [each], requests) for each in loads]
    metrics += [each for each in further if each is not None]
    ranges = Ranges(prometheus, round(step * 1000))
    end = math.floor(now / step) * ranges.step
    begin = end - round(min(since, MAX_PERIOD) * 1000)
    earlier = math.ceil(max(each.memory for each in metrics) / step) * ranges.step
    pods = {
        each: await _pods_of(ranges, hpa, each, metrics, begin, end)
        for each in {target: None, **{each.workload: None for each in metrics}}
    }
    history: list[Sync] = []
    for times in ranges.chunks(begin - earlier, end):
        history += await _syncs(ranges, hpa, target, metrics, pods, times)
        progress((times[-1] - begin + earlier) / (end - begin + earlier))
    history = [each for each in history if each.time >= begin / 1000]
    return _past(hpa, metrics, needed, pods[target], history, ranges)


async def _first(
    client: ApiClient,
    hpa: Autoscaler,
    target: Reference,
    choices: Sequence[MetricSpec],
    requests: Mapping[MetricSpec, ApiRequest | UnreadableError],
) -> PastMetric | None:
    """Return the first of the metrics for which there are rules. Raises UnreadableError."""
    for metric in choices:
        request = requests[metric]
        if not isinstance(request, UnreadableError):
            explained = await client.explanation(request)
            if explained.get("plan") is not None:
                return PastMetric(hpa, metric, target, _planned(metric, explained))
    return None


def _past(
    hpa: Autoscaler,
    metrics: Sequence[PastMetric],
    needed: int,
    pods: _Pods,
    history: Sequence[Sync],
    ranges: Ranges,
) -> Past:
    """Return the history from its first value on. Raises UnreadableError if something lacks.

    The first `needed` metrics must have values.
    """
    for index, each in enumerate(metrics[:needed]):
        if all(sync.readings[index].milli is None for sync in history):
            raise UnreadableError(
                f"Prometheus has no history of {each.metric.name} for this period. Look whether it "
                "has results of the query, whose range must cover two scrapes, or choose another "
                f"--since: {each.query}"
            )
    known = any(each.replicas is not None for each in history)
    if not known:
        if not pods.query:
            raise UnreadableError(
                f"the replicas of the past are not known: Prometheus has no {DESIRED} of this HPA. "
                "Let it scrape kube-state-metrics"
            )
        history = [replace(each, replicas=each.present) for each in history]
    has_value = (any(each.milli is not None for each in sync.readings) for sync in history)
    first = next((index for index, each in enumerate(has_value) if each), None)
    if first is None:
        raise UnreadableError("Prometheus has no values in this period. Choose another --since")
    return Past(
        hpa=hpa,
        history=tuple(history[first:]),
        metrics=tuple(each.metric for each in metrics),
        totals=tuple(each.total for each in metrics),
        delays=tuple(delay.of_query(each.query).seconds for each in metrics),
        queries=ranges.queries,
        replicas_known=known,
        pods=pods.note,
        sources=tuple(dict.fromkeys(name for each in metrics for name in each.sources)),
        late=first > 1,
        partial=ranges.partial,
    )


async def _entry(
    client: ApiClient, metric: MetricSpec, request: ApiRequest | UnreadableError
) -> tuple[Entry | ExternalEntry, tuple[str, ...]]:
    """Return the rules of a metric and the names of their sources. Raises UnreadableError."""
    if isinstance(request, UnreadableError):
        raise request
    if metric.type in NOT_OF_RULES:
        raise UnreadableError(
            f"{metric} has no history here: it comes from metrics.k8s.io, not from a rule"
        )
    explained = await client.explanation(request)
    if "plan" not in explained:
        raise UnreadableError(
            f"the adapter does not send the rules of {metric}: update it to this program's version"
        )
    if explained["plan"] is None:
        raise UnreadableError(f"{metric} has no query: {explained['verdict']}")
    return _planned(metric, explained)


def _planned(
    metric: MetricSpec, explained: Mapping[str, Any]
) -> tuple[Entry | ExternalEntry, tuple[str, ...]]:
    """Return the rules in an explanation and their sources. Raises UnreadableError."""
    described = metric.described
    resource = GroupResource(described.group, described.kind.lower()) if described else PODS
    try:
        entry = entry_document.read(explained["plan"], resource)
    except PlanError as error:
        raise UnreadableError(f"the query of {metric} cannot be replayed: {error}") from error
    return entry, entry_document.sources(explained["plan"])


async def _syncs(
    ranges: Ranges,
    hpa: Autoscaler,
    target: Reference,
    metrics: Sequence[PastMetric],
    pods: Mapping[Reference, _Pods],
    times: Sequence[int],
) -> Iterator[Sync]:
    """Return what the controller read at each time. Raises UnreadableError."""
    past = {each: await of.at(ranges, times) for each, of in pods.items()}
    read = [await each.readings(ranges, times, past[each.workload]) for each in metrics]
    desired = f"max({of_status(hpa.namespace, hpa.name, DESIRED)})"
    text = " or ".join(filter(None, [past_pods.replicas(hpa.namespace, target), desired]))
    replicas = {time: int(value) for _, time, value in await ranges.points(text, times)}
    known = bool(pods[target].query)

    def sync(time: int, now: PastPods, *readings: MetricReading) -> Sync:
        spec = replicas.get(time)
        return Sync(
            time=time / 1000,
            readings=readings,
            replicas=spec,
            present=now.active if known else spec or 0,
            pods=len(now.pods) if known else spec or 0,
            ready=now.ready if known else spec or 0,
        )

    return map(sync, times, past[target], *read)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """The pods of a workload, and how they are found."""

    namespace: str
    query: str
    """For their names, in the label `pod`; empty if they are not known."""
    states: States
    of_kube_state_metrics: bool
    ages: bool
    """Whether it matters since when they were Ready."""
    note: str

    async def at(self, ranges: Ranges, times: Sequence[int]) -> Sequence[PastPods]:
        """Return the pods at each time. Raises UnreadableError."""
        if not self.query:
            return [NONE] * len(times)
        names = await ranges.points(self.query, times)
        states: list[Point] = []
        if self.of_kube_state_metrics and names:
            every = {labels["pod"] for labels, _, _ in names}
            states = await ranges.points(
                past_pods.states(self.namespace, every, ages=self.ages), times
            )
        return self.states.read(names, states, times)


async def _pods_of(
    ranges: Ranges,
    hpa: Autoscaler,
    workload: Reference,
    metrics: Sequence[PastMetric],
    begin: int,
    end: int,
) -> _Pods:
    """Return how the past pods of a workload are found. Raises UnreadableError if they must be."""
    of_pods = [each for each in metrics if each.of_pods and each.workload == workload]
    ages = any(each.min_age is not None for each in of_pods)
    query = past_pods.owned(hpa.namespace, workload)
    known = await ranges.any(query, begin, end)
    note = "the pods are those that kube_pod_owner of kube-state-metrics recorded"
    if not known:
        note = (
            f"pods are those whose names are of {workload}, because Prometheus has no "
            "kube_pod_owner: a pod without a sample is not known"
        )
        steps = [step for each in of_pods for step in each.steps]
        query = past_pods.named(hpa.namespace, workload, steps) if steps else ""
        if ages:
            raise UnreadableError(
                "a rule has `minPodAge`, and when pods became Ready is not known: let Prometheus "
                "scrape kube-state-metrics"
            )
    return _Pods(
        namespace=hpa.namespace,
        query=query,
        states=States(),
        of_kube_state_metrics=known,
        ages=ages,
        note=note if query else "all replicas counted as Ready",
    )


def of_status(namespace: str, name: str, *series: str) -> str:
    """Return the query for the status of an HPA, as kube-state-metrics exports it.

    `exported_namespace` is its namespace if kube-state-metrics is scraped without honor_labels.
    """
    names = promql.matcher("__name__", "=~", "|".join(series))
    own = f"{names},{promql.matcher('horizontalpodautoscaler', '=', name)}"
    exported, plain = (
        promql.matcher(label, "=", namespace) for label in ("exported_namespace", "namespace")
    )
    return f'{{{own},{exported}}} or {{{own},{plain},exported_namespace=""}}'
