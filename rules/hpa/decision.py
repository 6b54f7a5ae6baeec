"""Number of replicas that the HPA controller desires: proposals, limits and stabilization.

Follows horizontal.go of Kubernetes 1.36. The controller keeps its past recommendations and changes
in memory only. Who knows them passes a `History`; otherwise the result is a range. `remember` keeps
one as the controller does.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/podautoscaler/horizontal.go
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rules.hpa.autoscaler import DOWNSCALE_WINDOW, Autoscaler, Policy, ScalingRules
from rules.hpa.proposal import Proposal

_MIN_SCALE_UP = 4
_SCALE_UP_FACTOR = 2

Limit = Literal[
    "", "TooManyReplicas", "TooFewReplicas", "ScaleUpLimit", "ScaleDownLimit", "Stabilized"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the controller remembers of an HPA. Times are in Unix seconds."""

    recommendations: tuple[tuple[float, int], ...] = ()
    """Time and replicas of past recommendations, before limits and stabilization."""
    changes: tuple[tuple[float, int], ...] = ()
    """Time of past changes, and how many replicas were added; negative if removed."""
    scaled_to_zero: bool | None = None
    """Whether the controller itself scaled the target to zero; None as the HPA's status says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The desired number of replicas, or the range in which it is."""

    low: int
    high: int
    recommended: int | None
    """What the metrics propose; None if they do not count or cannot be computed."""
    decisive: Proposal | None = None
    """The proposal that decides."""
    limit: Limit = ""
    """What keeps the number from being `recommended`."""
    unknown: str = ""
    """What only the controller knows, if that makes a range."""
    inactive: str = ""
    """Why the HPA does not scale by its metrics."""

    @property
    def replicas(self) -> int | None:
        """The desired number of replicas; None if only a range is known."""
        return self.low if self.low == self.high else None


def needs_metrics(hpa: Autoscaler, current: int, history: History | None = None) -> bool:
    """Return whether the controller reads metrics while the target has `current` replicas."""
    if not current:
        asleep = history.scaled_to_zero if history is not None else None
        if asleep is None:
            asleep = hpa.conditions.get("ScaledToZero", ("",))[0] == "True"
        return asleep and bool(hpa.minimum or wakes(hpa))
    return hpa.minimum <= current <= hpa.maximum


def wakes(hpa: Autoscaler) -> bool:
    """Return whether a metric has values without pods, so that the HPA may have 0 replicas."""
    return any(each.type in {"Object", "External"} for each in hpa.metrics)


def remember(
    history: History, hpa: Autoscaler, *, now: float, recommended: int | None = None
) -> History:
    """Return the history with a recommendation. Like the controller, reuse the last outdated place.

    One of exactly the age of a window is not outdated.
    """
    if recommended is None:
        return history
    rules = (hpa.up, hpa.down)
    longest = max((each.window for each in rules if each), default=DOWNSCALE_WINDOW)
    kept = _kept(history.recommendations, (now, recommended), longest)
    return replace(history, recommendations=kept)


def scaled(history: History, hpa: Autoscaler, *, now: float, before: int, after: int) -> History:
    """Return the history with a change of the replicas, as the controller keeps it.

    A change may take the place of an outdated one in the same direction. That one may still count
    for policies of the other direction, which may have longer periods. Without `spec.behavior`,
    the controller keeps no changes.
    """
    if before == after:
        return history
    asleep = before > 0 and not after and not hpa.minimum and wakes(hpa)
    rules, changes = hpa.up if after > before else hpa.down, history.changes
    if rules is not None:
        longest = max((each.period for each in rules.policies), default=0)
        ups = tuple(each for each in changes if each[1] > 0)
        downs = tuple(each for each in changes if each[1] < 0)
        change = now, after - before
        if after > before:
            changes = (*_kept(ups, change, longest), *downs)
        else:
            changes = (*ups, *_kept(downs, change, longest))
    return replace(history, changes=changes, scaled_to_zero=asleep)


def _kept(
    entries: tuple[tuple[float, int], ...], entry: tuple[float, int], longest: float
) -> tuple[tuple[float, int], ...]:
    outdated = (i for i in reversed(range(len(entries))) if entries[i][0] < entry[0] - longest)
    index = next(outdated, None)
    return (*entries, entry) if index is None else (*entries[:index], entry, *entries[index + 1 :])


def decide(
    hpa: Autoscaler,
    current: int,
    proposals: Sequence[Proposal],
    *,
    now: float,
    history: History | None = None,
) -> Decision:
    """Return what the controller desires; `current` is the `spec.replicas` of the scale.

    `proposals` are those of all metrics; none if the controller does not read them. `now` is in
    Unix seconds. Without `history`, what depends on it is a range.
    """
    if not needs_metrics(hpa, current, history):
        return _without_metrics(hpa, current)
    errors = [each for each in proposals if each.replicas is None]
    known = [each for each in proposals if each.replicas is not None]
    decisive = _decisive(known)
    recommended = decisive.replicas if decisive else None
    if recommended is None or (errors and recommended < current):
        some = "" if recommended is None else " and the others would scale down"
        problem = f"{errors[0].metric} has no value{some}" if errors else "no metric is read"
        return Decision(low=current, high=current, recommended=None, inactive=problem)
    recommended = max(0, recommended)
    sync = _Sync(hpa=hpa, current=current, now=now, history=history)
    if hpa.up is None or hpa.down is None:
        low, high = sync.stabilize_down(recommended)
        ceiling = min(hpa.maximum, max(_SCALE_UP_FACTOR * current, _MIN_SCALE_UP))
        ceilings, floors = (ceiling, ceiling), (hpa.minimum, hpa.minimum)
    else:
        low, high = sync.stabilize(recommended, hpa.up, hpa.down)
        ceilings = sync.bounds(hpa.up)
        floors = sync.bounds(hpa.down, down=True)
    stabilized = not low <= recommended <= high
    results = {
        _clamp(each, current, floor, ceiling)
        for each in (low, high)
        for floor, ceiling in zip(floors, ceilings, strict=True)
    }
    if not current:  # on the way from zero, the minimum counts although nothing limits the speed
        results = {max(each, hpa.minimum) for each in results}
    low, high = min(results), max(results)
    return Decision(
        low=low,
        high=high,
        recommended=recommended,
        decisive=decisive,
        limit="Stabilized" if stabilized else _limit(hpa, recommended, low, high),
        unknown="" if low == high else _unknown(hpa, recommended, current),
    )


def _without_metrics(hpa: Autoscaler, current: int) -> Decision:
    if not current:
        return Decision(
            low=0,
            high=0,
            recommended=None,
            inactive="scaling is disabled, because the target has 0 replicas",
        )
    above = current > hpa.maximum
    desired = hpa.maximum if above else hpa.minimum
    return Decision(
        low=desired,
        high=desired,
        recommended=None,
        limit="TooManyReplicas" if above else "TooFewReplicas",
        inactive=f"the target has {current} replicas, {'more' if above else 'fewer'} than "
        f"{'maxReplicas' if above else 'minReplicas'}",
    )


def _decisive(known: Sequence[Proposal]) -> Proposal | None:
    """Return the proposal that the controller takes: the first of the highest.

    Any proposal replaces one of 0, also a lower one.
    """
    taken: Proposal | None = None
    for each in known:
        if taken is None or not taken.replicas or (each.replicas or 0) > taken.replicas:
            taken = each
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sync:
    """What the controller knows when it looks at an HPA; `history` is None if that is unknown."""

    hpa: Autoscaler
    current: int
    now: float
    history: History | None

    def stabilize_down(self, recommended: int) -> tuple[int, int]:
        """Return the range of the highest recommendation in the window.

        Earlier ones may be above `current`: after a peak, the controller still scales up. What the
        last sync wrote tells how high they can be.
        """
        if self.history is not None:
            # Unlike in the windows of `spec.behavior`, one of exactly this age counts.
            oldest = self.now - DOWNSCALE_WINDOW
            past = (number for time, number in self.history.recommendations if time >= oldest)
            highest = max([recommended, *past])
            return highest, highest
        limited, reason, _ = self.hpa.conditions.get("ScalingLimited", ("", "", ""))
        at_most = limited == "True" and reason != "TooFewReplicas"
        last = self.hpa.maximum if at_most else self.hpa.desired
        return recommended, max(recommended, self.current, last)

    def stabilize(self, recommended: int, up: ScalingRules, down: ScalingRules) -> tuple[int, int]:
        """Return the range between the lowest and the highest recommendation of both windows."""
        current = self.current
        if self.history is None:
            lowest = min(recommended, current) if up.window else recommended
            highest = max(recommended, current) if down.window else recommended
            return (lowest, recommended) if recommended > current else (recommended, highest)
        past = self.history.recommendations
        lowest = min([recommended, *self._recent(past, up.window)])
        highest = max([recommended, *self._recent(past, down.window)])
        stable = min(max(current, lowest), highest)
        return stable, stable

    def bounds(self, rules: ScalingRules, *, down: bool = False) -> tuple[int, int]:
        """Return the most replicas (the fewest for `down`) that policies and bounds allow.

        Both elements are the same unless the result depends on changes that are not known.
        """
        if self.history is not None:
            exact = self._limit(rules, self.history.changes, down=down)
            return exact, exact
        longest = max((each.period for each in rules.policies), default=0)
        last = self.hpa.last_scaled  # cut to seconds
        if rules.select == "Disabled" or last is None or self.now - last > longest + 1:
            quiet = self._limit(rules, (), down=down)
            return quiet, quiet
        # Earlier changes in the period may have used up the policies; those in the other direction
        # allow more.
        return (self.hpa.minimum if down else self.hpa.maximum), self.current

    def _limit(
        self, rules: ScalingRules, changes: Sequence[tuple[float, int]], *, down: bool
    ) -> int:
        by_policy = [self._of_policy(each, changes, down=down) for each in rules.policies]
        if rules.select == "Disabled":
            limit = self.current
        elif (rules.select == "Min") == down:
            limit = max(by_policy)
        else:
            limit = min(by_policy)
        if down:
            return max(min(limit, self.current), self.hpa.minimum)
        return min(max(limit, self.current), self.hpa.maximum)

    def _of_policy(
        self, policy: Policy, changes: Iterable[tuple[float, int]], *, down: bool
    ) -> int:
        """Return the most replicas (the fewest for `down`) that one policy allows."""
        start = self.current - sum(self._recent(changes, policy.period))
        if policy.type == "Pods":
            return start - policy.value if down else start + policy.value
        # In doubles, as in the original: 110 % of 100 are more than 110, and so 111.
        if down:
            return int(start * (1 - policy.value / 100))
        return math.ceil(start * (1 + policy.value / 100))

    def _recent(self, entries: Iterable[tuple[float, int]], seconds: float) -> Iterator[int]:
        return (number for time, number in entries if time > self.now - seconds)


def _clamp(replicas: int, current: int, floor: int, ceiling: int) -> int:
    if replicas > current:
        return min(replicas, ceiling)
    return max(replicas, floor) if replicas < current else replicas


def _limit(hpa: Autoscaler, recommended: int, low: int, high: int) -> Limit:
    """Return what keeps the number from being `recommended`."""
    if low <= recommended <= high:
        return ""
    if high < recommended:
        return "TooManyReplicas" if high == hpa.maximum else "ScaleUpLimit"
    return "TooFewReplicas" if low == hpa.minimum else "ScaleDownLimit"


def _unknown(hpa: Autoscaler, recommended: int, current: int) -> str:
    """Return what only the controller knows and the result depends on."""
    rules = hpa.up if recommended > current else hpa.down
    window = DOWNSCALE_WINDOW if rules is None else rules.window
    extreme = "lowest" if rules is not None and recommended > current else "highest"
    if window:
        return f"the {extreme} recommendation of the last {window} s"
    return "the changes of the last seconds, which count towards the policies of `spec.behavior`"
