"""What a forecast would have changed in the past of an autoscaler, week by week."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rules.errors import UnreadableError
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.replay import Result, Sync
from rules.query.ahead import STEP, WINDOW, Forecast, Forecaster, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """One week, or the rest of the history. Times are in seconds."""

    begin: float
    """Unix seconds."""
    forecast: float
    """Time for which a forecast was served instead of the present value."""
    error: float | None
    """At its end, of the forecasts of the last days; None if too few are known."""
    above: float
    """Time for which a metric was above its target by more than the tolerance, without it."""
    above_ahead: float
    """And with it."""
    pod_hours: float
    pod_hours_ahead: float


def forecasts(
    hpa: Autoscaler,
    history: Sequence[Sync],
    *,
    season: float,
    horizon: float,
    totals: Sequence[bool],
) -> tuple[list[tuple[float, ...]], list[Forecast]]:
    """Return at each sync the factor of each metric, and the forecast of the first one.

    As in the server, only metrics of the target's pods, or of the target itself, have one. `totals`
    says of each metric whether it is the load of all pods together. Raises UnreadableError if none
    has one.
    """
    found = []
    for index, metric in enumerate(hpa.metrics):
        if metric.type == "Pods" or metric.described == hpa.target:
            of_all = totals[index] or metric.type == "Pods"
            loads = [_load(sync, index, of_all=of_all) for sync in history]
            found.append((index, loads, list(_forecasts(history, loads, season, horizon))))
    if not found:
        raise UnreadableError(
            "there is nothing to forecast: no metric of the HPA is of type Pods, or of type Object "
            "and of the HPA's own target",
            status=400,
        )
    factors = []
    for number in range(len(history)):
        of_sync = [1.0] * len(hpa.metrics)
        for index, loads, made in found:
            of_sync[index] = made[number].factor(loads[number] or 0.0)
        factors.append(tuple(of_sync))
    return factors, found[0][2]


def _load(sync: Sync, index: int, *, of_all: bool) -> float | None:
    """Return the load of all pods together, from a value that is it or that of each Ready pod."""
    milli = sync.readings[index].milli
    if milli is None:
        return None
    return milli / 1000 * (1 if of_all else sync.ready or 1)


def _forecasts(
    history: Sequence[Sync], loads: Sequence[float | None], season: float, horizon: float
) -> Iterator[Forecast]:
    """Yield the forecast of each sync for a metric; one a minute, as the server makes."""
    begin = math.floor(history[0].time / STEP) * STEP
    values = [math.nan] * (math.floor((history[-1].time - begin) / STEP) + 1)
    known = list(zip(history, loads, strict=True))
    for sync, load in reversed(known):  # so that the first one of each minute stays
        values[math.floor((sync.time - begin) / STEP)] = math.nan if load is None else load
    totals = Totals(begin=begin, values=values)
    forecaster = Forecaster(season=season, horizon=horizon)
    minute, found = -1, None
    for sync in history:
        if found is None or math.floor(sync.time / STEP) != minute:
            minute, found = math.floor(sync.time / STEP), forecaster.at(totals, totals, sync.time)
        yield found


def weeks(
    history: Sequence[Sync],
    step: float,
    made: Sequence[Forecast],
    without: Result,
    ahead: Result,
) -> Iterator[Week]:
    """Yield the weeks from the first on that had forecasts for at least a part of it."""
    size = round(WINDOW / step)
    for begin in range(0, len(history), size):
        part = slice(begin, begin + size)
        if all(each.error is None for each in made[part]):
            continue
        yield Week(
            begin=history[begin].time,
            forecast=sum(each.reason == "Rising" for each in made[part]) * step,
            error=made[part][-1].error,
            above=sum(without.over[part]) * step,
            above_ahead=sum(ahead.over[part]) * step,
            pod_hours=sum(without.replicas[part]) * step / 3600,
            pod_hours_ahead=sum(ahead.replicas[part]) * step / 3600,
        )
