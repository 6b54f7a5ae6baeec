"""The past of an autoscaler from Prometheus: its metrics, replicas, and how long pods start."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import Range
from adapter.doctor.client import CannotTellError, Client
from rules import promql
from rules.errors import PlanError, UnreadableError
from rules.hpa import reading
from rules.hpa.autoscaler import Autoscaler, Metric
from rules.hpa.reading import Request
from rules.hpa.replay import Sync
from rules.query import confined

MAX_SECONDS = 31 * 86_400.0
_MAX_STEPS = 10_000
"""Points of a range query; Prometheus refuses more than 11 000."""
_STATUS = "kube_horizontalpodautoscaler_status_"
CURRENT, DESIRED = f"{_STATUS}current_replicas", f"{_STATUS}desired_replicas"
TARGET_METRIC = f"{_STATUS}target_metric"
_SUM, _COUNT = "sum", "count"
_PODS = {
    "Deployment": "-[a-z0-9]+-[a-z0-9]{5}",
    "ReplicaSet": "-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
}
"""What follows the name of a workload in those of its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What Prometheus knows of an HPA."""

    hpa: Autoscaler
    history: tuple[Sync, ...]
    """From the first sync at which each metric had a value."""
    queries: int
    seconds: float
    """What the range queries took together."""
    from_kube_state_metrics: bool
    """Whether the replicas are those that kube-state-metrics has; else the pods with values."""
    late: bool
    """Whether the history begins later than requested."""


async def read(
    client: Client, prometheus: Prometheus, namespace: str, name: str, *, since: float, step: float
) -> Past:
    """Read the last `since` seconds of an HPA. Raises CannotTellError with what to do."""
    try:
        observed = await client.run(reading.read(namespace, name, time.time))
        requests = await client.run(reading.requests(observed.hpa))
    except UnreadableError as error:
        raise CannotTellError(str(error), status=error.status) from error
    hpa, started = observed.hpa, time.monotonic()
    now = math.floor(time.time() / step) * step
    begin = now - min(since, MAX_SECONDS)
    reader = _Reader(prometheus, begin, now, step)
    metrics = []
    for metric, request in zip(hpa.metrics, requests, strict=True):
        query = await _query(client, hpa, metric, request)
        metrics.append(await reader.points(query))
        if not metrics[-1][_SUM]:
            raise CannotTellError(
                f"Prometheus has no history of {metric.name} for this period. Look whether it has "
                f"results of the query, or choose another --since: {query}"
            )
    replicas = (await reader.points(_replicas(hpa)))[_SUM]
    if not replicas and all(each.type != "Pods" for each in hpa.metrics):
        raise CannotTellError(
            f"the replicas of the past are not known: Prometheus has no {DESIRED} of this HPA. Let "
            "it scrape kube-state-metrics"
        )
    times = [begin + index * step for index in range(round((now - begin) / step) + 1)]
    history = [
        Sync(
            time=each,
            values=tuple(_value(hpa.metrics[i], of, each) for i, of in enumerate(metrics)),
            pods=tuple(int(of[_COUNT].get(each, 0)) for of in metrics),
            replicas=_desired(hpa, replicas, metrics, each),
        )
        for each in times
    ]
    first = next((i for i, each in enumerate(history) if None not in each.values), None)
    if first is None:
        names = " and ".join(each.name for each in hpa.metrics)
        raise CannotTellError(f"{names} never had values at the same time in this period")
    return Past(
        hpa=hpa,
        history=tuple(history[first:]),
        queries=reader.queries,
        seconds=time.monotonic() - started,
        from_kube_state_metrics=bool(replicas),
        late=first > 1,
    )


def _value(metric: Metric, of: Mapping[str, Mapping[float, float]], at: float) -> float | None:
    total, count = of[_SUM].get(at), of[_COUNT].get(at)
    if total is None or not count:
        return None
    return total / count if metric.type == "Pods" else total


def _desired(
    hpa: Autoscaler,
    replicas: Mapping[float, float],
    metrics: Sequence[Mapping[str, Mapping[float, float]]],
    at: float,
) -> int | None:
    if replicas:
        return int(replicas[at]) if at in replicas else None
    of_pods = [
        int(of[_COUNT][at])
        for metric, of in zip(hpa.metrics, metrics, strict=True)
        if metric.type == "Pods" and at in of[_COUNT]
    ]
    return max(of_pods, default=None)


class _Reader:
    """Evaluates queries over the period, in parts that Prometheus accepts."""

    def __init__(self, prometheus: Prometheus, begin: float, end: float, step: float) -> None:
        self._prometheus = prometheus
        self._begin, self._end, self._step = begin, end, step
        self.queries = 0

    async def points(self, query: str) -> dict[str, dict[float, float]]:
        """Return sum and number of the query's samples, by Unix seconds. Raises CannotTellError."""
        text = " or ".join(
            f'label_replace({function}({query}), "of", "{function}", "", "")'
            for function in (_SUM, _COUNT)
        )
        found: dict[str, dict[float, float]] = {_SUM: {}, _COUNT: {}}
        begin = self._begin
        while begin <= self._end:
            end = min(begin + (_MAX_STEPS - 1) * self._step, self._end)
            for each in await self._part(text, begin, end):
                points = found[each.labels["of"]]
                points |= {at: value for at, value in each.points if math.isfinite(value)}
            begin = end + self._step
        return found

    async def _part(self, text: str, begin: float, end: float) -> Sequence[Range]:
        self.queries += 1
        try:
            found = await self._prometheus.query_range(text, begin, end, self._step)
        except errors.BackendError as error:
            raise CannotTellError(
                f"Prometheus did not answer: {error}. Correct --prometheus-url, or choose a "
                "shorter --since"
            ) from error
        return found.content


async def _query(
    client: Client, hpa: Autoscaler, metric: Metric, request: Request | UnreadableError
) -> str:
    """Return the query of a metric for all pods that the target has had. Raises CannotTellError."""
    if isinstance(request, UnreadableError):
        raise CannotTellError(str(request), status=request.status) from request
    if metric.type in {"Resource", "ContainerResource"}:
        raise CannotTellError(
            f"{metric} has no history here: it comes from metrics.k8s.io, not from a rule"
        )
    explained = await client.explanation(request)
    queries = explained["queries"]
    if not queries:
        raise CannotTellError(f"{metric} has no query: {explained['verdict']}")
    try:
        return " or ".join(f"({text})" for text in _texts(hpa, metric, queries))
    except PlanError as error:
        raise CannotTellError(f"the query of {metric} cannot be replayed: {error}") from error


def _texts(hpa: Autoscaler, metric: Metric, queries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the query of each rule. Raises PlanError."""
    for each in queries:
        if metric.type != "Pods":
            yield each["promql"]
            continue
        suffix = _PODS.get(hpa.target.kind)
        if suffix is None:
            raise PlanError(
                f"the names of the past pods of a {hpa.target.kind} are not known; those of "
                f"{', '.join(_PODS)} are"
            )
        label = each["wantedLabels"][0]
        yield confined.of_names(each["promql"], label, f"{hpa.target.name}{suffix}")


def _replicas(hpa: Autoscaler) -> str:
    """Return the query for the desired replicas."""
    return f"max({of_status(hpa.namespace, hpa.name, DESIRED)})"


def of_status(namespace: str, name: str, *series: str) -> str:
    """Return the query for the status of an HPA, as kube-state-metrics exports it.

    `exported_namespace` is its namespace if kube-state-metrics is scraped without honor_labels.
    """
    names = promql.matcher("__name__", "=~", "|".join(series))
    of_name = promql.matcher("horizontalpodautoscaler", "=", name)
    return " or ".join(
        f"{{{names},{of_name},{promql.matcher(label, '=', namespace)}}}"
        for label in ("exported_namespace", "namespace")
    )
