"""Forecast of a workload's load from that of one season ago, as a factor on its present values.

Pure: gets totals with their times. Who reads them from Prometheus, and serves the result, is the
server and `replay`.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

WINDOW = 7 * 86_400.0
"""Seconds of the past whose forecasts are compared with what came."""
STEP = 60.0
"""Seconds between two totals, and between two forecasts."""
LARGEST_ERROR = 0.65
"""Error beyond which the present value is served. Values with noise never reach 0: on loads that do
not repeat, the error is 0.85 to 1."""
_SMOOTHINGS = (0, 2, 7, 20)
"""Totals before and after one of a season ago over which the mean is taken. The first one whose
error is small enough is used: the longer the mean, the less noise it has, and the more it hides of
a jump."""
_LEAST, _MOST = 0.5, 2.0
"""Range of the present total, as a multiple of that of one season ago. Beyond it, the past says
nothing of the present: a holiday, or another use."""
_NEAR_ZERO = 0.01
"""Part of the total to come, below which that of one season ago is too small for this range."""
_LASTING = 300.0
"""Seconds for which the last total is the present one, as in Prometheus."""
_CHECK = 420.0
"""Seconds between the forecasts that are compared with what came. An hour is not a multiple, so
that they meet jobs at each minute of the hour."""
_CHECKED = 0.5
"""Part of them that must be known."""
_DAY, _HOUR = 86_400.0, 3600.0
_SHIFTED = 0.5
"""Distance of a day from one an hour off a season before, as a part of its distance from that of a
season before, below which the clocks have changed in between."""

Reason = Literal["Rising", "NotRising", "NoLoad", "NoPast", "Unlike", "Unproven", "Inaccurate"]
"""Why the forecast is served, or why it is not: all but the first serve the present value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is expected of a workload's load, and what follows for the values of its pods."""

    reason: Reason
    now: float | None
    """The present total; None if there is none."""
    expected: float | None
    """The total when a pod that is created now is ready; None if one season ago there was none."""
    error: float | None
    """Part of the rises that past forecasts expected, and that did not come; None if too few are
    known."""

    def factor(self, total: float = 0.0) -> float:
        """Return by what values are multiplied whose sum is `total`; at least 1.

        The load may have grown since the forecast was made: the product is at most what it expects.
        """
        if self.reason != "Rising" or not self.now or self.expected is None:
            return 1.0
        return max(1.0, self.expected / max(self.now, total))

    @property
    def sentence(self) -> str:
        """Say what is served, and why."""
        days = f"the last {WINDOW / 86_400:g} days"
        error = "" if self.error is None else f"{self.error:.0%}"
        missed = f"{error} of the rises that were forecast in {days} did not come"
        match self.reason:
            case "Rising":
                return (
                    f"the forecast is served: a total of {_number(self.expected)} instead of the "
                    f"present {_number(self.now)}, because the load rose one season ago; {missed}"
                )
            case "NotRising":
                why = f"the forecast is not higher, a total of {_number(self.expected)}"
            case "NoLoad":
                why = "it is 0 or missing, and a forecast only multiplies it"
            case "NoPast":
                why = (
                    "Prometheus has no value of one season ago; it must keep values for a season "
                    "and a week"
                )
            case "Unlike":
                why = "the load is less than half or more than twice that of one season ago"
            case "Unproven":
                why = (
                    f"Prometheus has too few values of {days} and of one season before to check "
                    "forecasts by them"
                )
            case _:
                why = f"{missed}, and the limit is {LARGEST_ERROR:.0%}"
        return f"the present value is served: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals over the pods of a workload, one every STEP seconds."""

    begin: float
    """Unix seconds of the first one."""
    values: Sequence[float]
    """NaN where there is none."""

    @property
    def end(self) -> float:
        """Unix seconds of the last one."""
        return self.begin + STEP * (len(self.values) - 1)

    def at(self, time: float, around: int = 0) -> float | None:
        """Return the total at a time, or the mean with `around` ones before and after it."""
        index = self._index(time)
        if not around:
            known = 0 <= index < len(self.values) and self.values[index] >= 0
            return self.values[index] if known else None
        several = [each for each in self._between(index - around, index + around) if each >= 0]
        return sum(several) / len(several) if several else None

    def highest(self, begin: float, end: float) -> float:
        """Return the highest total from `begin` to `end`; 0 if there are none."""
        between = self._between(self._index(begin), self._index(end))
        return max(filter((0.0).__lt__, between), default=0.0)

    def _index(self, time: float) -> int:
        return math.floor((time - self.begin) / STEP)

    def _between(self, first: int, last: int) -> Sequence[float]:
        return self.values[max(0, first) : max(0, last + 1)]


class Forecaster:
    """Forecasts for one workload. Keeps how right they were."""

    def __init__(self, *, season: float, horizon: float) -> None:
        """Take the seconds after which the load repeats, and those that a new pod needs."""
        self.season, self.horizon = season, horizon
        # Totals are those of whole minutes, and the controller is not there each second.
        self._lead = math.ceil(horizon / STEP) * STEP + STEP
        self._begin, self._end = 0, 0
        """First check, and the one after the last, in units of _CHECK."""
        self._checks = [_Checks(around=each) for each in _SMOOTHINGS]
        self._best = self._checks[0]
        self._seasons: dict[float, float] = {}
        """Of each hour, how many seconds before it the load was like that."""
        self._reviewed = 0.0
        self._highest: float | None = None

    def needed(self, at: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return begin and end of the totals of one season ago, and of now, that `at` needs."""
        then, more = math.floor((at - self.season) / STEP) * STEP, _SMOOTHINGS[-1] * STEP + _HOUR
        before, after = WINDOW + self._lead + _DAY, self._lead + more + _LASTING
        return (then - before - more, min(at, then + after)), (at - before, at)

    def at(self, past: Totals, recent: Totals, at: float) -> Forecast:
        """Return the forecast at a time in Unix seconds, not before that of the last call.

        `past` and `recent` may be the same. For `_LASTING`, the last total is the present one.
        """
        last = min(at, max(recent.end, at - _LASTING))
        self._review(past, recent, last)
        around, error = self._best.around, self._best.error
        now, (then, later) = recent.at(last), self._ago(past, recent, last, at, around)
        expected = _expected(now, then, later)
        reason: Reason = "NotRising"
        if not now:
            reason = "NoLoad"
        elif expected is None:
            reason = "NoPast"
        elif error is None:
            reason = "Unproven"
        elif error > LARGEST_ERROR:
            reason = "Inaccurate"
        elif not _alike(now, then, later):
            reason = "Unlike"
        elif expected > now:
            expected = min(expected, max(now, self._most(past, recent)))
            reason = "Rising" if expected > now else "NotRising"
        return Forecast(reason=reason, now=now, expected=expected, error=error)

    def _ago(
        self, past: Totals, recent: Totals, last: float, at: float, around: int
    ) -> tuple[float | None, float | None]:
        """Return the totals one season before `last`, and before a pod of `at` is ready."""
        ago = self._back(past, recent, last)
        return past.at(last - ago, around), past.at(at + self._lead - ago, around)

    def _back(self, past: Totals, recent: Totals, at: float) -> float:
        """Return how many seconds ago the load was like that of `at`.

        That is the season, and an hour more or less if the clocks have changed since.
        """
        hour = math.floor(at / _HOUR) * _HOUR
        if hour not in self._seasons:
            self._seasons[hour] = self.season
            if self.season > _DAY:  # else the next day has changed clocks on both sides
                self._seasons[hour] += _shift(past, recent, hour, self.season)
        return self._seasons[hour]

    def _most(self, past: Totals, recent: Totals) -> float:
        """Return the highest total that was known at the last review."""
        if self._highest is None:
            of_past, of_recent = self.needed(self._reviewed)
            self._highest = max(past.highest(*of_past), recent.highest(*of_recent))
        return self._highest

    def _review(self, past: Totals, recent: Totals, at: float) -> None:
        """Compare the forecasts for the time before `at` with what came, unless that is done."""
        begin, end = (math.floor(each / _CHECK) + 1 for each in (at - WINDOW, at))
        if (begin, end) == (self._begin, self._end):
            return
        self._reviewed, self._highest = at, None
        oldest = begin * _CHECK - self._lead - _HOUR
        self._seasons = {hour: ago for hour, ago in self._seasons.items() if hour > oldest}
        new = range(max(begin, self._end), end)
        for each in self._checks:
            checked = (self._check(past, recent, index * _CHECK, each.around) for index in new)
            each.add(checked, end - begin)
        self._begin, self._end = begin, end
        known = [each for each in self._checks if each.error is not None]
        good = (each for each in known if (each.error or 0.0) <= LARGEST_ERROR)
        least = min(known, key=lambda each: each.error or 0.0, default=self._checks[0])
        self._best = next(good, least)

    def _check(
        self, past: Totals, recent: Totals, time: float, around: int
    ) -> tuple[float, float] | None:
        """Return what came of a rise that was expected for a time, and what was expected.

        Both are weighted by what was expected: small rises are noise. None if it is not known.
        """
        began = time - self._lead
        now, came = recent.at(began), recent.at(time)
        if now is None or came is None:
            return None
        then, later = self._ago(past, recent, began, began, around)
        if (expected := _expected(now, then, later)) is None:
            return None
        rise = max(0.0, expected - now) if _alike(now, then, later) else 0.0
        return rise * (came - now), rise * rise


@dataclass(slots=True, kw_only=True)
class _Checks:
    """Forecasts that were compared with what came."""

    around: int
    """Totals before and after one of a season ago over which the mean was taken."""
    error: float | None = None
    """See `Forecast`."""
    _came: array[float] = field(default_factory=lambda: array("d"))
    _rises: array[float] = field(default_factory=lambda: array("d"))
    """Of each check; NaN if it is not known."""

    def add(self, checked: Iterable[tuple[float, float] | None], most: int) -> None:
        """Add what came and what was expected at each later check; keep the last `most`."""
        for came, rise in (each or (math.nan, math.nan) for each in checked):
            self._came.append(came)
            self._rises.append(rise)
        self._came, self._rises = self._came[-most:], self._rises[-most:]
        known = [*filter((0.0).__le__, self._rises)]
        expected, self.error = sum(known), None
        if len(known) >= _CHECKED * most and expected:
            came = sum(filter(math.isfinite, self._came))
            self.error = min(max(1 - came / expected, 0.0), 1.0)


def _expected(now: float | None, then: float | None, later: float | None) -> float | None:
    """Return the total to come: `later`, one season before, at the level of `now` to `then`."""
    if now is None or later is None:
        return None
    if then is None or then <= _NEAR_ZERO * later:
        return later
    return later * now / then


def _alike(now: float, then: float | None, later: float | None) -> bool:
    """Return whether the load is at about the level of one season ago."""
    return not then or then <= _NEAR_ZERO * (later or 0.0) or _LEAST <= now / then <= _MOST


def _shift(past: Totals, recent: Totals, at: float, season: float) -> float:
    """Return by how many seconds the day before `at` came earlier than that of a season before.

    That is an hour, more or less, if clocks have changed, else 0.
    """
    times = [at - 1200.0 * index for index in range(72)]
    days = {
        shift: [past.at(each - season - shift, 2) for each in times]
        for shift in (0.0, _HOUR, -_HOUR)
    }
    today = [recent.at(each, 2) for each in times]
    distances = {shift: _distance(today, day) for shift, day in days.items()}
    shift = min(distances, key=distances.__getitem__)
    return shift if distances[shift] < _SHIFTED * distances[0.0] else 0.0


def _distance(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """Return by how much two courses differ in their shape, from 0 to 2; 2 if it is not known."""
    both = [
        (first, second)
        for first, second in zip(one, other, strict=True)
        if first is not None and second is not None
    ]
    if len(both) < len(one) / 2:
        return 2.0
    try:
        return 1 - statistics.correlation(*zip(*both, strict=True))
    except statistics.StatisticsError:  # a constant
        return 2.0


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4g}"
