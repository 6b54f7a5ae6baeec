"""Why no target follows from the past, and the load test that is missing. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rules.hpa import advice, isotonic
from rules.hpa.advice import ABOVE, KEPT, LOADS, NEAR, RISES, SEPARATES, WINDOWS, Curve, Window
from rules.hpa.objective import Objective
from rules.hpa.replay_report import clock, duration, percent
from rules.quoting import counted

_FARTHEST = 10.0
"""Most times the highest load that a load test is proposed for."""
_LOW = 0.2
"""Part of the highest load up to which a load is low."""
_MORE_PODS = "more pods do not help: choose a higher limit, or make the server faster"


def problem(
    curves: Sequence[Curve], past: Sequence[Window], objective: Objective, *, length: float
) -> str:
    """Return why no target follows from the past, and what to do; empty if one does.

    `length` is that of a window, in seconds.
    """
    if not curves:
        return (
            f"the pods have no metric of load, such as {LOADS[0]}, in this period. Add the preset "
            "of their server or of their GPUs, or choose another --since"
        )
    best = advice.choose(curves)
    first = min(curves, key=_order)
    kept = any(each.target or each.steps[-1].value >= KEPT for each in curves)
    if len(past) < WINDOWS:
        if best is not None:
            test = _hold(best, first, past, length)
        else:
            test = _rise(first, past, objective, length) if kept else _fall(first, past, length)
        return (
            f"the past has {counted(len(past), 'window')} of {duration(length)} with a value of "
            f"the objective, and {WINDOWS} are needed. Choose a longer --since, or add load. {test}"
        )
    if best is None and kept:
        return f"it never came near the limit. {_rise(first, past, objective, length)}"
    if best is None:
        return _never_kept(first, past, length)
    if best.separation < SEPARATES:
        return _unrelated(best, past, objective, length)
    if best.missing:
        return f"the past has {_lacking(best)}. {_hold(best, first, past, length)}"
    return ""


def _order(of: Curve) -> int:
    name = of.metric.name
    return LOADS.index(name) if name in LOADS else len(LOADS)


def _time(windows: int, length: float) -> str:
    """Return a time that has so many whole windows, whenever it begins."""
    return duration((windows + 1) * length)


def _never_kept(of: Curve, past: Sequence[Window], length: float) -> str:
    """Return that the objective was broken at each load, and whether a lower one is to be tried."""
    low = _lowest(of, past)
    share = percent(isotonic.value_at(of.steps, low))
    return (
        f"the objective held in {share} of the windows with the lowest load, {of.load(low)}, and "
        f"{percent(KEPT)} are needed. "
        + (f"So {_MORE_PODS}" if low <= _LOW * of.high else _fall(of, past, length))
    )


def _lowest(of: Curve, past: Sequence[Window]) -> float:
    """Return the lowest load above 0."""
    return min((load for each in past if (load := each.loads[of.index])), default=0.0)


def _fall(of: Curve, past: Sequence[Window], length: float) -> str:
    """Return the load test that has a lower load than the past."""
    return (
        f"Hold {of.load(_lowest(of, past) / 2)} for {_time(NEAR, length)}, by more pods or fewer "
        f"clients: if that breaks it, too, {_MORE_PODS}"
    )


def _unrelated(of: Curve, past: Sequence[Window], objective: Objective, length: float) -> str:
    """Return two windows that contradict, and how to find out the cause."""
    windows = [(load, each) for each in past if (load := each.loads[of.index]) is not None]
    ordered = sorted(windows, key=lambda each: each[0])
    low, broken = next(each for each in ordered if each[1].objective >= objective.limit)
    high, kept = next(each for each in reversed(ordered) if each[1].objective < objective.limit)
    return (
        f"the objective does not follow the load: it was broken with {of.load(low)} "
        f"({clock(broken.begin)} UTC), and kept with {of.readable(high)} ({clock(kept.begin)}). "
        f"Look for another cause at these times, such as long prompts, or hold {of.readable(low)} "
        f"for {_time(NEAR, length)}: what breaks it then is not the load"
    )


def _lacking(of: Curve) -> str:
    """Return how many windows a metric has of those that it lacks."""
    load, found = of.load(of.target or 0.0), []
    if of.near < NEAR:
        found.append(f"{counted(of.near, 'window')} with about {load}, and {NEAR} are needed")
    if of.broken_above < ABOVE:
        broken = counted(of.broken_above, "broken window")
        found.append(f"{broken} with more than {load}, and {ABOVE} are needed")
    return "; ".join(found)


def _hold(of: Curve, first: Curve, past: Sequence[Window], length: float) -> str:
    """Return the load test that makes the windows which a metric with a target lacks.

    Its load is that of `first`, the metric that clients determine, in windows about the target.
    """
    load = target = of.target or 0.0
    about = [each.loads for each in past if of.is_about(each.loads[of.index], target)]
    if of is not first and (found := [each for loads in about if (each := loads[first.index])]):
        load = statistics.fmean(found)
    else:
        first = of
    steps = []
    if (near := NEAR - of.near) > 0:
        steps.append(f"hold about {first.load(load)} for {_time(near, length)}")
    if (above := ABOVE - of.broken_above) > 0:
        more = first.load(load * RISES * (1 + of.band))
        steps.append(f"hold {more} for {_time(above, length)}")
    return f"Run a load test with fixed replicas: {', then '.join(steps)}"


def _rise(of: Curve, past: Sequence[Window], objective: Objective, length: float) -> str:
    """Return how much load is missing, and the load test that makes it."""
    pairs = ((each.loads[of.index], each.objective) for each in past)
    loads = sorted((load, value) for load, value in pairs if load is not None)
    part = max(1, len(loads) // 10)
    (low, at_low), (high, at_high) = (
        map(statistics.fmean, zip(*each, strict=True)) for each in (loads[:part], loads[-part:])
    )
    test = f"Run a load test of {_time(NEAR + ABOVE, length)} with fixed replicas, which rises in"
    if not of.high:
        return f"The pods had no load. {test} steps until the objective is broken"
    factor, why = 2.0, "it has not begun to rise, so begin with twice this load"
    if high > low and 1.05 * at_low < at_high < objective.limit:
        # Latency bends upward: the straight line is at the limit later than the server.
        wanted = high + (objective.limit - at_high) * (high - low) / (at_high - at_low)
        factor = min(_FARTHEST, max(RISES, wanted / of.high))
        why = f"by its rise so far, {factor:.1f} times this load is enough"
    return (
        f"The highest load was {of.load(of.high)}, with the objective at "
        f"{objective.readable(at_high)}; {why}. {test} steps to "
        f"{of.readable(factor * of.high)} for each pod"
    )
