"""What the HPA controller decided in the past, and what it would have decided with other settings.

While the replicas are those that there were, values and decisions are facts. Other replica counts
are a model: the load of all pods together was what it was, and each pod that has started gets an
equal part of it. Where the pods were saturated, the load was at least what is known.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rules.errors import UnreadableError
from rules.hpa import autoscaler, decision, judgement, proposal
from rules.hpa.autoscaler import Autoscaler, MetricSpec, Pod, Scale
from rules.hpa.decision import History
from rules.hpa.proposal import PodValue, Proposal

STARTUP = 60.0
"""Seconds until a new pod has a value, where the past does not tell."""
_SATURATED = 0.95
"""Part of its highest possible value from which on a metric no longer tells the load."""
MAX_REPLICAS = 10_000
"""Pods that are simulated; beyond that, memory and time would have no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReading:
    """What the controller read of one metric at one sync."""

    milli: int | None
    """In thousandths: the value, the total of an external metric, or the sum over the pods that are
    counted. None if it got no value."""
    counted: int = 1
    """Pods whose values are in the sum; 1 for other metrics than those of pods."""
    missing: int = 0
    """Running pods without a value."""
    unready: int = 0
    """Pending pods."""

    @property
    def value(self) -> float | None:
        """The average of the pods, or the value."""
        return None if self.milli is None else self.milli / 1000 / max(1, self.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """What was at the time of one sync, before the decision."""

    time: float
    """Unix seconds."""
    readings: tuple[MetricReading, ...]
    """Of each metric."""
    replicas: int | None
    """`spec.replicas` of the target; None if they are not known."""
    present: int
    """`status.replicas` of the target: pods that there were, started or not."""
    pods: int
    """Pods that the controller listed: also those that finished or were being deleted."""
    ready: int
    """Pods of them that were Ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a variant. Times are in seconds."""

    title: str
    replicas: tuple[int, ...]
    """At each sync."""
    modelled: float
    """Time for which the values are those of the model, because the replicas are others."""
    pod_hours: float
    above: float
    """Time for which a metric was above its target."""
    over: tuple[bool, ...]
    """At each sync, whether one was above it by more than the controller's tolerance."""
    saturated: float
    """Time for which a metric was at its highest possible value, or nearly."""
    ups: int
    downs: int
    largest: int
    """Most replicas that were added or removed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How far the decisions from the past values are from what the controller did."""

    equal: int
    near: int
    """Syncs that differ by one replica."""
    different: int


def variant(
    hpa: Autoscaler,
    *,
    target: tuple[int, int] | None = None,
    behavior: Mapping[str, Any] | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
) -> Autoscaler:
    """Return other settings of an HPA. `target` is the position of a metric and its target.

    `behavior` is a valid `spec.behavior`. Raises UnreadableError for other settings that the API
    server refuses.
    """
    metrics = list(hpa.metrics)
    if target is not None:
        index, value = target
        metrics[index] = replace(metrics[index], value=value)
    up, down = (hpa.up, hpa.down) if behavior is None else autoscaler.behavior(behavior)
    changed = replace(
        hpa,
        metrics=tuple(metrics),
        up=up,
        down=down,
        minimum=hpa.minimum if minimum is None else minimum,
        maximum=hpa.maximum if maximum is None else maximum,
    )
    if not 0 <= changed.minimum <= changed.maximum <= MAX_REPLICAS or not changed.maximum:
        raise UnreadableError(
            f"replicas from {changed.minimum} to {changed.maximum}: the minimum must not be above "
            f"the maximum, and the maximum from 1 to {MAX_REPLICAS}"
        )
    if not changed.minimum and not decision.wakes(changed):
        raise UnreadableError("minReplicas 0 needs at least one Object or External metric")
    return changed


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
        if wanted and sync.readings[index].counted >= wanted:
            found.append(sync.time - began)
            wanted = 0
    return (statistics.median(found), len(found)) if found else None


def recorded(
    hpa: Autoscaler, history: Sequence[Sync], *, step: float, totals: Sequence[bool]
) -> Result:
    """Return what really was; where replicas are not known, those of the sync before."""
    tally = _Tally(hpa, step, totals)
    replicas = history[0].present
    for sync in history:
        replicas = replicas if sync.replicas is None else sync.replicas
        tally.add(replicas, sync.readings, model=False)
    return tally.result("as it was")


def decisions(hpa: Autoscaler, history: Sequence[Sync]) -> Iterator[int | None]:
    """Yield what the controller decided at each sync, from the values and replicas that there were.

    None where the replicas are not known.
    """
    memory, before, began = History(), None, 0.0
    for sync in history:
        current = sync.replicas
        if current is None:
            yield None
            continue
        if before is None:
            memory = _begin(hpa, sync.time, current)
        else:
            # The decision of the sync before has become visible.
            memory = decision.scaled(memory, hpa, now=began, before=before, after=current)
        proposals = _proposals(hpa, sync.readings, current, sync)
        decided = decision.decide(hpa, current, proposals, now=sync.time, history=memory)
        memory = decision.remember(memory, hpa, now=sync.time, recommended=decided.recommended)
        before, began = current, sync.time
        yield decided.low


def simulate(
    title: str,
    hpa: Autoscaler,
    history: Sequence[Sync],
    *,
    startup: float,
    step: float,
    totals: Sequence[bool],
    factors: Sequence[Sequence[float]] = (),
) -> Result:
    """Return what the controller would have done with the settings of `hpa`.

    It begins with the replicas that there were, and as a controller that has just started.
    `startup` is the time in seconds until a new pod has a value. `totals` says of each metric
    whether it is the load of all pods together; see `is_load`. `factors` has, of each sync, those
    by which a forecast multiplies each metric.
    """
    first = history[0]
    tally = _Tally(hpa, step, totals)
    current = first.present if first.replicas is None else first.replicas
    memory = _begin(hpa, first.time, current)
    ready = [first.time - startup] * current  # when each pod has a value, oldest first
    apart = first.time - startup  # when the replicas were last other ones than those of the past
    for index, sync in enumerate(history):
        if sync.replicas != current:
            apart = sync.time
        started = sum(each <= sync.time for each in ready)
        model = sync.time < apart + startup or sync.replicas != current
        if model:
            readings = tuple(_modelled(hpa, totals, sync, current, started))
            seen = replace(sync, present=current, pods=current, ready=started)
        else:
            readings, seen = sync.readings, sync
        tally.add(current, readings, model=model)
        if factors:
            readings = tuple(map(_multiplied, readings, factors[index]))
        proposals = _proposals(hpa, readings, current, seen)
        decided = decision.decide(hpa, current, proposals, now=sync.time, history=memory)
        memory = decision.remember(memory, hpa, now=sync.time, recommended=decided.recommended)
        desired = decided.low
        memory = decision.scaled(memory, hpa, now=sync.time, before=current, after=desired)
        if desired != current:
            # The newest pods go first, as a ReplicaSet removes them.
            ready = ready[:desired] + [sync.time + startup] * (desired - current)
            current = desired
    return tally.result(title)


def _begin(hpa: Autoscaler, now: float, current: int) -> History:
    """Return what a controller knows that has just started: the replicas as a recommendation.

    Zero replicas are its own work if the HPA allows them.
    """
    asleep = True if not current and not hpa.minimum else None
    return History(recommendations=((now, current),), scaled_to_zero=asleep)


def fit(decided: Sequence[int | None], history: Sequence[Sync]) -> Fit:
    """Compare decisions with the replicas at the next sync."""
    distances = [
        abs(replicas - after.replicas)
        for replicas, after in zip(decided, history[1:], strict=False)
        if replicas is not None and after.replicas is not None
    ]
    equal, near = distances.count(0), distances.count(1)
    return Fit(equal=equal, near=near, different=len(distances) - equal - near)


class _Tally:
    """Sums up the syncs of one variant."""

    def __init__(self, hpa: Autoscaler, step: float, totals: Sequence[bool]) -> None:
        self._metrics = [
            (each, None if total else judgement.ceiling(each.name))
            for each, total in zip(hpa.metrics, totals, strict=True)
        ]
        self._step = step
        self._most = 1 + hpa.tolerances[1]
        self._replicas: list[int] = []
        self._over: list[bool] = []
        self._above = self._saturated = self._modelled = 0

    def add(self, replicas: int, readings: Sequence[MetricReading], *, model: bool) -> None:
        """Add a sync: the replicas before it, and what was read of each metric."""
        self._replicas.append(replicas)
        self._modelled += model
        above = over = saturated = False
        for (metric, ceiling), reading in zip(self._metrics, readings, strict=True):
            if (value := reading.value) is not None:
                compared = comparable(metric, value, replicas)
                above |= compared > metric.value / 1000
                over |= compared > self._most * metric.value / 1000
                saturated |= ceiling is not None and value >= _SATURATED * ceiling
        self._above += above
        self._over.append(over)
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
            modelled=self._modelled * self._step,
            pod_hours=sum(self._replicas) * self._step / 3600,
            above=self._above * self._step,
            over=tuple(self._over),
            saturated=self._saturated * self._step,
            ups=sum(each > 0 for each in steps),
            downs=sum(each < 0 for each in steps),
            largest=max(map(abs, steps), default=0),
        )


def _modelled(
    hpa: Autoscaler, totals: Sequence[bool], sync: Sync, current: int, started: int
) -> Iterator[MetricReading]:
    """Yield what would have been read with `current` replicas, of which some have started."""
    for metric, total, reading in zip(hpa.metrics, totals, sync.readings, strict=True):
        if reading.milli is None or total:
            yield reading
        elif not started:
            yield MetricReading(milli=None)
        else:
            per_pod = metric.type == "Pods"
            before = 1 if per_pod else sync.ready or sync.replicas or 1
            share, ceiling = reading.milli * before / started, judgement.ceiling(metric.name)
            milli = int(share if ceiling is None else min(share, 1000 * ceiling))
            if per_pod:
                yield MetricReading(
                    milli=milli * started, counted=started, missing=current - started
                )
            else:
                yield MetricReading(milli=milli)


def _multiplied(reading: MetricReading, factor: float) -> MetricReading:
    if reading.milli is None or factor == 1:
        return reading
    return replace(reading, milli=int(reading.milli * factor))


def _proposals(
    hpa: Autoscaler, readings: Sequence[MetricReading], current: int, sync: Sync
) -> list[Proposal]:
    """Return what each metric proposes, with the pods of `sync`."""
    scale = Scale(spec=current, status=sync.present, selector="")
    return [
        _proposal(hpa, metric, reading, scale, sync)
        for metric, reading in zip(hpa.metrics, readings, strict=True)
    ]


def _proposal(
    hpa: Autoscaler, metric: MetricSpec, reading: MetricReading, scale: Scale, sync: Sync
) -> Proposal:
    if reading.milli is None:
        return proposal.failed(metric, "no value")
    if metric.type != "Pods":
        ready = sync.ready if sync.pods else None
        return proposal.of_value(metric, reading.milli, ready, scale, tolerances=hpa.tolerances)
    # Only the sum of the values counts, whichever pods have them.
    values = {each.name: PodValue(value=0) for each in _pods(reading.counted, "Running")}
    if values:
        values[next(iter(values))] = PodValue(value=reading.milli)
    running = _pods(reading.counted + reading.missing, "Running")
    return proposal.of_pods(
        metric,
        values,
        [*running, *_pods(reading.unready, "Pending")],
        current=scale.spec,
        tolerances=hpa.tolerances,
    )


def is_load(metric: MetricSpec, workloads: str | None = None) -> bool:
    """Return whether the metric is the load of all pods together.

    `workloads` says how a metric of a workload is computed from its pods, if it is.
    """
    if workloads is not None:
        return workloads == "sum"
    return _is_divided(metric)


def comparable(metric: MetricSpec, value: float, replicas: int) -> float:
    """Return a value as the controller compares it with the target."""
    return value / replicas if replicas and _is_divided(metric) else value


def _is_divided(metric: MetricSpec) -> bool:
    """Return whether the controller divides the value by the replicas."""
    return metric.type != "Pods" and metric.target == "AverageValue"


@functools.lru_cache(maxsize=64)
def _pods(number: int, phase: str) -> tuple[Pod, ...]:
    return tuple(_pod(index, phase) for index in range(number))


@functools.lru_cache(maxsize=2 * MAX_REPLICAS)
def _pod(index: int, phase: str) -> Pod:
    ready: Literal["True", ""] = "True" if phase == "Running" else ""
    return Pod(name=f"{phase}-{index}", phase=phase, ready=ready, started=0.0)
