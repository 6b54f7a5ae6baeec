"""The target by which an HPA keeps a service level objective, from its past. Pure.

The controller changes nothing while the load of each pod is within its tolerance of the target. So
each load of the past is a target that was tried: the windows of time with about that load say how
often the objective held. Made monotone, this share is a curve that never rises with the load, and
the advised target is the largest one at which it is KEPT.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rules.hpa import isotonic
from rules.hpa.autoscaler import TOLERANCE, MetricSpec
from rules.hpa.isotonic import Step
from rules.hpa.objective import Objective
from rules.hpa.replay import Result, Sync

WINDOW = 300.0
"""Seconds of a window: the time that percentiles of the presets cover."""
KEPT = 0.95
"""Share of windows in which the objective must hold."""
LOADS = (
    "requests_active_current",
    "requests_waiting_current",
    "requests_running_current",
    "kv_cache_utilization_current",
    "generation_tokens_per_second_over_time",
    "prompt_tokens_per_second_over_time",
    "requests_per_second_over_time",
    "duty_cycle_current",
)
"""Metrics of the presets that are the load of a pod; of equal ones, the first is preferred."""
NEAR, ABOVE = 20, 5
"""Least number of windows with about the load of the target, and of those broken above it."""
WINDOWS = NEAR + ABOVE
"""Least number of windows in all."""
SEPARATES, _EQUAL = 0.5, 0.03
"""Least separation of a metric, and difference that is none."""
_THROUGHPUTS = ("requests_per_second_over_time", "generation_tokens_per_second_over_time")
"""Metrics that say what pods did, whatever their number."""
_GROWTH, _HALF, _FEW = 2.0, 0.2, 5
"""Growth of a metric from which on it is not proportional to the throughput; part of half of the
throughput by which others are about half of it; and least number of windows to compare."""
RISES = 1.1
"""Factor by which a metric must rise above the loads that the controller tolerates."""
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of the past."""

    begin: float
    """Unix seconds."""
    loads: tuple[float | None, ...]
    """The mean of each reading, for each pod."""
    objective: float
    """The last value of the objective, in thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How often the objective held at which load of a metric."""

    metric: MetricSpec
    index: int
    """Position of its readings."""
    steps: tuple[Step, ...]
    """Load of each pod -> share of the windows with about this load in which the objective held."""
    band: float
    """Tolerance of the controller: part of a load by which others are about that load."""
    low: float
    high: float
    target: float | None
    """The largest load with a share of KEPT; None if there is none."""
    near: int
    """Windows with about the load of the target."""
    kept_below: int
    """Windows up to the target in which the objective held."""
    kept_above: int
    broken_below: int
    broken_above: int
    growth: float
    """How many times the metric, for the same throughput, is at the target what it is at half of
    the throughput; 1 if that is not known."""

    @property
    def milli(self) -> int:
        """The target in thousandths, rounded down to three digits; 0 if there is none."""
        return _rounded(self.target or 0.0)

    def readable(self, load: float) -> str:
        """Return a load as sentences show it."""
        return self.metric.readable(_rounded(load))

    def load(self, load: float) -> str:
        """Return a load with its name: `3.6 of requests_active_current for each pod`."""
        return f"{self.readable(load)} of {self.metric.name} for each pod"

    def is_about(self, load: float | None, other: float) -> bool:
        """Return whether the controller takes a load for another one."""
        return load is not None and abs(load - other) <= self.band * other

    @property
    def windows(self) -> int:
        """Number of windows with a value."""
        return sum(each.count for each in self.steps)

    @property
    def reached(self) -> bool:
        """Whether the load was at a target, and above it."""
        return bool(self.target) and self.steps[-1].value < KEPT

    @property
    def missing(self) -> int:
        """Number of windows that are missing about the target and above it."""
        return max(0, NEAR - self.near) + max(0, ABOVE - self.broken_above)

    @property
    def separation(self) -> float:
        """From 0, for a metric that says nothing of the objective, to 1."""
        kept = self.kept_below / max(1, self.kept_below + self.kept_above)
        broken = self.broken_above / max(1, self.broken_below + self.broken_above)
        return max(0.0, kept + broken - 1)

    @property
    def rises(self) -> bool:
        """Whether the metric rises so far above the target that the controller adds pods."""
        return self.target is not None and self.high >= RISES * (1 + self.band) * self.target

    @property
    def proportional(self) -> bool:
        """Whether new pods take equal parts of it, as the controller assumes.

        Requests in a queue, for example, grow much faster than the load: at a low load, the
        controller removes so many pods that the rest is overloaded.
        """
        return self.growth < _GROWTH


def windows(history: Sequence[Sync], objective: int, length: float) -> list[Window]:
    """Return the windows that have a value of the objective, which is at position `objective`."""
    found = []
    for number, syncs in itertools.groupby(history, key=lambda each: each.time // length):
        readings = list(zip(*(each.readings for each in syncs), strict=True))
        values = [[each.value for each in of if each.value is not None] for of in readings]
        if values[objective]:
            loads = tuple(statistics.fmean(each) if each else None for each in values)
            last = 1000 * values[objective][-1]
            found.append(Window(begin=number * length, loads=loads, objective=last))
    return found


def curves(
    metrics: Mapping[int, MetricSpec],
    past: Sequence[Window],
    objective: Objective,
    tolerance: float,
) -> list[Curve]:
    """Return the curve of each metric with values, given by the positions of their readings.

    `tolerance` is that of the controller.
    """
    positions = {each.name: index for index, each in metrics.items()}
    throughput = next((positions[name] for name in _THROUGHPUTS if name in positions), None)
    found = (
        _curve(metric, index, past, objective, max(TOLERANCE, tolerance), throughput)
        for index, metric in metrics.items()
    )
    return [each for each in found if each is not None]


def _curve(
    metric: MetricSpec,
    index: int,
    past: Sequence[Window],
    objective: Objective,
    band: float,
    throughput: int | None,
) -> Curve | None:
    points = sorted(
        (load, each.objective < objective.limit)
        for each in past
        if (load := each.loads[index]) is not None
    )
    if not points:
        return None
    loads = [load for load, _ in points]
    sums = [0, *itertools.accumulate(held for _, held in points)]
    shares = []
    for load in loads:
        first, end = _about(loads, load, band)
        shares.append((load, (sums[end] - sums[first]) / (end - first)))
    steps = isotonic.decreasing(shares)
    target = next((each.until for each in reversed(steps) if each.value >= KEPT), None)
    most = -1.0 if target is None else target
    first, end = _about(loads, most, band)
    counts = collections.Counter((held, load > most) for load, held in points)
    return Curve(
        metric=metric,
        index=index,
        steps=steps,
        band=band,
        low=loads[0],
        high=loads[-1],
        target=target,
        near=end - first,
        kept_below=counts[True, False],
        kept_above=counts[True, True],
        broken_below=counts[False, False],
        broken_above=counts[False, True],
        growth=_growth(past, index, throughput, most, band),
    )


def _growth(
    past: Sequence[Window], index: int, throughput: int | None, target: float, band: float
) -> float:
    if throughput is None:
        return 1.0
    pairs = [
        (load, done)
        for each in past
        if (load := each.loads[index]) is not None and (done := each.loads[throughput])
    ]
    near = [each for each in pairs if abs(each[0] - target) <= band * target]
    half = statistics.fmean(done for _, done in near) / 2 if near else 0.0
    low = [each for each in pairs if abs(each[1] - half) <= _HALF * half]
    if min(len(near), len(low)) < _FEW:
        return 1.0
    at_target, at_half = (
        sum(load for load, _ in each) / sum(done for _, done in each) for each in (near, low)
    )
    return at_target / at_half if at_half > 0 else 1.0


def _about(loads: Sequence[float], load: float, band: float) -> tuple[int, int]:
    """Return the positions of the first load that is about `load`, and after the last one."""
    return bisect.bisect_left(loads, load * (1 - band)), bisect.bisect(loads, load * (1 + band))


def choose(curves: Sequence[Curve]) -> Curve | None:
    """Return the curve that separates kept from broken windows best; None if none reached a target.

    Metrics with enough windows come before others, then proportional ones, then those that rise
    above their target; of equal ones, the first. If none has enough windows, the one that lacks the
    fewest comes first.
    """
    found = [each for each in curves if each.reached]
    found = [each for each in found if each.separation >= SEPARATES] or found
    evident = [each for each in found if not each.missing]
    found = evident or found
    found = [each for each in found if each.proportional] or found
    found = [each for each in found if each.rises] or found
    if not evident:
        fewest = min((each.missing for each in found), default=0)
        found = [each for each in found if each.missing == fewest]
    best = max((each.separation for each in found), default=0.0)
    return next((each for each in found if each.separation >= best - _EQUAL), None)


def _rounded(load: float) -> int:
    """Return a load in thousandths, rounded down to three digits."""
    exact = int(1000 * load)
    unit: int = 10 ** max(0, len(str(exact)) - _DIGITS)
    return exact // unit * unit


def only(history: Sequence[Sync], positions: Sequence[int]) -> list[Sync]:
    """Return the syncs with the readings at these positions only."""
    return [
        replace(each, readings=tuple(each.readings[position] for position in positions))
        for each in history
    ]


def above(past: Sequence[Window], objective: Objective, length: float) -> float:
    """Return the seconds for which the objective was broken."""
    return length * sum(each.objective >= objective.limit for each in past)


def expected_above(
    of: Curve,
    history: Sequence[Sync],
    result: Result,
    *,
    startup: float,
    step: float,
    length: float,
) -> float:
    """Return the seconds for which the objective is broken, by the curve, with other replicas.

    The load of all pods together was what it was.
    """
    replicas, behind = result.replicas, max(0, round(startup / step))
    broken = 0.0
    numbered = enumerate(history)
    for _, syncs in itertools.groupby(numbered, key=lambda each: each[1].time // length):
        loads = []
        for index, sync in syncs:
            if (milli := sync.readings[of.index].milli) is not None:
                started = min(replicas[max(0, index - behind) : index + 1])  # the newest go first
                loads.append(milli / 1000 / max(1, started))
        if loads:
            broken += 1 - isotonic.value_at(of.steps, statistics.fmean(loads))
    return broken * length
