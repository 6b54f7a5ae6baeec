"""Isotonic regression: the monotone step function that is nearest to points. Pure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the function: one value up to `until`."""

    until: float
    value: float
    count: int
    """Points in this part, of which `value` is the mean."""


def decreasing(points: Iterable[tuple[float, float]]) -> tuple[Step, ...]:
    """Return the function that never rises and has the least squared distance to points (x, y).

    Pools adjacent violators: a step above the one before it and that one become one step.
    """
    steps: list[Step] = []
    for x, group in itertools.groupby(sorted(points), key=lambda each: each[0]):
        values = [y for _, y in group]
        step = Step(until=x, value=sum(values) / len(values), count=len(values))
        while steps and steps[-1].value <= step.value:
            before = steps.pop()
            count = before.count + step.count
            value = (before.value * before.count + step.value * step.count) / count
            step = Step(until=x, value=value, count=count)
        steps.append(step)
    return tuple(steps)


def value_at(steps: Sequence[Step], x: float) -> float:
    """Return the value at x; beyond the last step, that of the last step."""
    index = bisect.bisect_left(steps, x, key=lambda each: each.until)
    return steps[min(index, len(steps) - 1)].value
