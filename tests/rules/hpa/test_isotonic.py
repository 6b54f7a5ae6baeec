"""Isotonic regression: compared with the best of all monotone functions on a grid."""

from __future__ import annotations

import itertools
import random

import pytest

from rules.hpa import isotonic


@pytest.mark.parametrize("seed", range(20))
def test_no_function_that_never_rises_is_nearer(seed: int) -> None:
    luck = random.Random(seed)
    points = [(float(luck.randrange(5)), float(luck.randrange(4))) for _ in range(8)]
    xs = sorted({x for x, _ in points})
    grid = [index / 12 for index in range(37)]  # has the mean of each group of up to four points

    steps = isotonic.decreasing(points)

    def distance(values: dict[float, float]) -> float:
        return sum((y - values[x]) ** 2 for x, y in points)

    found = distance({x: isotonic.value_at(steps, x) for x in xs})
    best = min(
        distance(dict(zip(xs, reversed(values), strict=True)))
        for values in itertools.combinations_with_replacement(grid[::3], len(xs))
    )
    assert found <= best + 1e-9
    shown = [each.value for each in steps]
    assert shown == sorted(shown, reverse=True)
    assert sum(each.count for each in steps) == len(points)


def test_the_value_beyond_the_last_step_is_that_of_the_last_step() -> None:
    steps = isotonic.decreasing([(1.0, 1.0), (2.0, 0.0), (3.0, 0.0)])

    assert [isotonic.value_at(steps, x) for x in (0.0, 1.0, 1.5, 3.0, 9.0)] == [1, 1, 0, 0, 0]
