"""What the HPA controller would have decided in the past, with the present or other settings.

The model: the load of all pods together was what it was, and each pod that has started gets an
equal part of it. A metric of one object with a target of type AverageValue is the load itself.
Where the pods were saturated, the load was at least what is known; such syncs are counted.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rules.errors import UnreadableError
from rules.hpa import autoscaler, decision, proposal, units
from rules.hpa.autoscaler import DOWNSCALE_WINDOW, Autoscaler, Metric, Pod, Scale, ScalingRules
from rules.hpa.decision import History
from rules.hpa.proposal import PodValue, Proposal

SYNC = 15.0
"""Default of `--horizontal-pod-autoscaler-sync-period`, in seconds."""
STARTUP = 60.0
"""Seconds until a new pod has a value, where the past does not tell."""
_SATURATED = 0.95
"""Part of its highest possible value from which on a metric no longer tells the load."""
_MAX_REPLICAS = 10_000
"""Pods that are simulated; beyond that, memory and time would have no bound."""
_PER_POD = ("Pods", "Resource", "ContainerResource")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
}
"""What the API server fills in. https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/autoscaling/v2/defaults.go"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """What was at the time of one sync."""

    time: float
    """Unix seconds."""
    values: tuple[float | None, ...]
    """Of each metric: the average of the pods, or the value; None if there was none."""
    pods: tuple[int, ...]
    """How many pods had a value of each metric; 1 for other metrics than those of pods."""
    replicas: int | None
    """Desired replicas; None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Settings to replay."""

    title: str
    hpa: Autoscaler


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a variant. Times are in seconds."""

    title: str
    replicas: tuple[int, ...]
    """At each sync."""
    pod_hours: float
    above: float
    """Time for which a metric was above its target."""
    saturated: float
    """Time for which a metric was at its highest possible value, or nearly."""
    ups: int
    downs: int
    largest: int
    """Most replicas that were added or removed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How far the replay of the present settings is from what the controller did."""

    equal: int
    near: int
    """Syncs that differ by one replica."""
    different: int


def variant(
    hpa: Autoscaler,
    title: str,
    *,
    target: tuple[int, int] | None = None,
    behavior: Mapping[str, Any] | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
) -> Variant:
    """Return other settings of an HPA. `target` is the position of a metric and its target.

    `behavior` is as in `spec.behavior`. Raises UnreadableError for what the API server refuses.
    """
    metrics = list(hpa.metrics)
    if target is not None:
        index, value = target
        metrics[index] = replace(metrics[index], value=value)
    up, down = (hpa.up, hpa.down) if behavior is None else _rules(behavior)
    changed = replace(
        hpa,
        metrics=tuple(metrics),
        up=up,
        down=down,
        minimum=hpa.minimum if minimum is None else minimum,
        maximum=hpa.maximum if maximum is None else maximum,
    )
    if not 0 <= changed.minimum <= changed.maximum <= _MAX_REPLICAS or not changed.maximum:
        raise UnreadableError(
            f"replicas from {changed.minimum} to {changed.maximum}: the minimum must not be above "
            f"the maximum, and the maximum from 1 to {_MAX_REPLICAS}",
            status=0,
        )
    return Variant(title=title, hpa=changed)


def _rules(behavior: Mapping[str, Any]) -> tuple[ScalingRules, ScalingRules]:
    """Return `spec.behavior` with the defaults of the API server. Raises UnreadableError."""
    try:
        unknown = sorted(set(behavior) - set(_DEFAULTS))
        filled = {
            key: {**defaults, **(behavior.get(key) or {})} for key, defaults in _DEFAULTS.items()
        }
        read = autoscaler.behavior(filled)
        problem = (
            f"unknown key {unknown[0]}" if unknown else next(filter(None, map(_doubt, read)), "")
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"not as `spec.behavior` of an HPA: {error!r}", status=0) from error
    if problem:
        raise UnreadableError(f"not as `spec.behavior` of an HPA: {problem}", status=0)
    return read


def _doubt(rules: ScalingRules) -> str:
    """Return why the API server refuses rules; else empty."""
    if rules.select not in {"Max", "Min", "Disabled"}:
        return f"selectPolicy {rules.select} is neither Max nor Min nor Disabled"
    if not 0 <= rules.window <= 3600:
        return f"stabilizationWindowSeconds {rules.window} is not from 0 to 3600"
    if not rules.policies or any(
        each.type not in {"Pods", "Percent"} or each.value < 1 or not 1 <= each.period <= 1800
        for each in rules.policies
    ):
        return "policies need a type Pods or Percent, a value above 0 and periodSeconds up to 1800"
    return ""


def startup(history: Sequence[Sync], index: int) -> tuple[float, int] | None:
    """Return the median time from a scale-up until all its pods had a value, and of how many.

    `index` is that of a metric of pods. None if there was no scale-up to measure.
    """
    found: list[float] = []
    began, wanted = 0.0, 0
    for before, sync in itertools.pairwise(history):
        if sync.replicas is None or before.replicas is None:
            wanted = 0
        elif sync.replicas > before.replicas:
            began, wanted = sync.time, sync.replicas
        elif sync.replicas < before.replicas:
            wanted = 0
        if wanted and sync.pods[index] >= wanted:
            found.append(sync.time - began)
            wanted = 0
    return (statistics.median(found), len(found)) if found else None


def recorded(hpa: Autoscaler, history: Sequence[Sync], step: float) -> Result:
    """Return what really was; where replicas are not known, those of the sync before."""
    tally = _Tally(hpa, step)
    replicas = max(history[0].pods)
    for sync in history:
        replicas = replicas if sync.replicas is None else sync.replicas
        tally.add(replicas, sync.values)
    return tally.result("as it was")


def simulate(
    variant: Variant, history: Sequence[Sync], *, startup: float, step: float = SYNC
) -> Result:
    """Return what the controller would have done with these settings.

    It begins with the replicas that there were. `startup` is the time in seconds until a new pod
    has a value.
    """
    hpa, tally = variant.hpa, _Tally(variant.hpa, step)
    first = history[0]
    current = first.replicas if first.replicas is not None else max(first.pods)
    current = max(hpa.minimum, min(current, hpa.maximum))
    ready = [first.time - startup] * current  # when each pod has a value, oldest first
    longest = max(
        DOWNSCALE_WINDOW,
        *(
            seconds
            for rules in (hpa.up, hpa.down)
            if rules
            for seconds in (rules.window, *(each.period for each in rules.policies))
        ),
        0,
    )
    recommendations: deque[tuple[float, int]] = deque()
    changes: deque[tuple[float, int]] = deque()
    for sync in history:
        for entries in (recommendations, changes):
            while entries and entries[0][0] < sync.time - longest:
                entries.popleft()
        started = sum(each <= sync.time for each in ready)
        values = tuple(_values(hpa, sync, started))
        tally.add(current, values)
        proposals = [
            _proposal(hpa, metric, value, current, started)
            for metric, value in zip(hpa.metrics, values, strict=True)
        ]
        decided = decision.decide(
            hpa,
            current,
            proposals,
            now=sync.time,
            history=History(recommendations=tuple(recommendations), changes=tuple(changes)),
        )
        if decided.recommended is not None:
            recommendations.append((sync.time, decided.recommended))
        desired = decided.low
        if desired != current:
            changes.append((sync.time, desired - current))
            # The newest pods go first, as a ReplicaSet removes them.
            ready = ready[:desired] + [sync.time + startup] * (desired - current)
            current = desired
    return tally.result(variant.title)


def fit(result: Result, history: Sequence[Sync]) -> Fit:
    """Compare the replicas of a replay with those that there were."""
    distances = [
        abs(replicas - sync.replicas)
        for replicas, sync in zip(result.replicas, history, strict=True)
        if sync.replicas is not None
    ]
    equal, near = distances.count(0), distances.count(1)
    return Fit(equal=equal, near=near, different=len(distances) - equal - near)


class _Tally:
    """Sums up the syncs of one variant."""

    def __init__(self, hpa: Autoscaler, step: float) -> None:
        self._metrics = [(each, _ceiling(each)) for each in hpa.metrics]
        self._step = step
        self._replicas: list[int] = []
        self._above = self._saturated = 0

    def add(self, replicas: int, values: Sequence[float | None]) -> None:
        """Add a sync: the replicas before it, and the value of each metric."""
        self._replicas.append(replicas)
        above = saturated = False
        for (metric, ceiling), value in zip(self._metrics, values, strict=True):
            if value is not None:
                divisor = replicas if is_load(metric) and replicas else 1
                above |= value / divisor > metric.value / 1000
                saturated |= ceiling is not None and value >= _SATURATED * ceiling
        self._above += above
        self._saturated += saturated

    def result(self, title: str) -> Result:
        """Return the sums."""
        steps = [
            after - before
            for before, after in itertools.pairwise(self._replicas)
            if after != before
        ]
        return Result(
            title=title,
            replicas=tuple(self._replicas),
            pod_hours=sum(self._replicas) * self._step / 3600,
            above=self._above * self._step,
            saturated=self._saturated * self._step,
            ups=sum(each > 0 for each in steps),
            downs=sum(each < 0 for each in steps),
            largest=max(map(abs, steps), default=0),
        )


def _values(hpa: Autoscaler, sync: Sync, started: int) -> Iterator[float | None]:
    """Yield what each metric would have been with this number of started pods."""
    for metric, value, pods in zip(hpa.metrics, sync.values, sync.pods, strict=True):
        if value is None or is_load(metric):
            yield value
        elif not started:
            yield None
        else:
            before = pods if metric.type in _PER_POD else sync.replicas or 1
            share, ceiling = value * before / started, _ceiling(metric)
            yield share if ceiling is None else min(share, ceiling)


def _proposal(
    hpa: Autoscaler, metric: Metric, value: float | None, current: int, started: int
) -> Proposal:
    """Return what the metric proposes for `current` replicas, of which some have started."""
    if value is None:
        return proposal.failed(metric, "no value")
    milli = int(value * 1000)
    if metric.type in _PER_POD:
        return proposal.of_pods(
            metric,
            {_pod(number).name: PodValue(value=milli) for number in range(started)},
            [_pod(number) for number in range(current)],
            current=current,
            tolerances=hpa.tolerances,
        )
    return proposal.of_value(
        metric,
        milli,
        [_pod(number) for number in range(started)],
        Scale(spec=current, status=current, selector=""),
        tolerances=hpa.tolerances,
    )


def is_load(metric: Metric) -> bool:
    """Return whether the metric is the load of all pods together."""
    return metric.type not in _PER_POD and metric.target == "AverageValue"


def _ceiling(metric: Metric) -> float | None:
    return None if is_load(metric) else units.ceiling(metric.name)


@functools.lru_cache(maxsize=_MAX_REPLICAS)
def _pod(number: int) -> Pod:
    return Pod(
        name=str(number),
        phase="Running",
        deleted=False,
        ready="True",
        ready_since=0.0,
        started=0.0,
        requests={},
        pod_requests={},
    )
