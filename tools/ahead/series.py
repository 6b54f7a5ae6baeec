"""Loads to forecast: generated ones, with and without a season, and those of CSV files.

A load is one number a minute. Generated ones are the same for the same seed.
"""

from __future__ import annotations

import bisect
import csv
import datetime as dt
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

DAY = 1440
"""Minutes."""
WEEK = 7 * DAY


def read(path: Path) -> list[float]:
    """Return the load of a file with the columns `timestamp` and `value`, interpolated linearly."""
    with path.open() as lines:
        points = sorted(
            (dt.datetime.fromisoformat(row["timestamp"]).timestamp() / 60, float(row["value"]))
            for row in csv.DictReader(lines)
        )
    times = [time for time, _ in points]
    return [
        _between(points[index - 1], points[index], minute)
        for minute in range(math.ceil(times[0]) + 1, math.floor(times[-1]))
        if (index := bisect.bisect_left(times, minute))
    ]


def _between(before: tuple[float, float], after: tuple[float, float], time: float) -> float:
    part = (time - before[0]) / (after[0] - before[0])
    return before[1] + part * (after[1] - before[1])


def office(
    rng: random.Random,
    minutes: int,
    *,
    noise: float = 0.05,
    ramp: float = 15,
    growth: float = 0.03,
    holidays: Iterable[int] = (),
    earlier: int = DAY * 1000,
    larger: int = DAY * 1000,
) -> list[float]:
    """Return the load of working hours.

    `ramp` says how slowly it rises in the morning, `growth` is that of a week. From the day
    `earlier` on, it comes one hour before (daylight saving time); from the day `larger` on, it is
    60 % larger.
    """
    load = []
    for minute, factor in enumerate(_noise(rng, minutes, noise)):
        day, time = divmod(minute, DAY)
        weekend = day % 7 > 4 or day in set(holidays)
        hours = _hours(time + 60 * (day >= earlier), ramp)
        level = (1 + growth) ** (day / 7) * (1.6 if day >= larger else 1)
        load.append(factor * level * (0.15 + (0.25 if weekend else 0.85) * hours))
    return load


def _hours(time: float, ramp: float) -> float:
    """Return the load at a minute of a working day, from 0 to 1."""
    begun = 1 / (1 + math.exp(-(time - 540) / ramp))
    ended = 1 / (1 + math.exp(-(time - 1080) / (2 * ramp)))
    return max(0.0, begun - ended - 0.25 * begun * math.exp(-(((time - 750) / 40) ** 2)))


def hourly(rng: random.Random, minutes: int) -> list[float]:
    """Return a load with jobs of twelve minutes at each full hour of working days."""
    return [
        factor
        * (
            0.3
            + 0.4 * _hours(minute % DAY, 30)
            + 0.5 * (minute // DAY % 7 < 5 and 480 <= minute % DAY < 1080 and minute % 60 < 12)
        )
        for minute, factor in enumerate(_noise(rng, minutes, 0.05))
    ]


def evening(rng: random.Random, minutes: int) -> list[float]:
    """Return a load that rises slowly until the evening, with noise as large as its rise."""
    return [
        factor * (0.5 - 0.35 * math.cos(2 * math.pi * (minute - 240) / DAY))
        for minute, factor in enumerate(_noise(rng, minutes, 0.06))
    ]


def walk(rng: random.Random, minutes: int) -> list[float]:
    """Return a load that moves at random, slowly."""
    steps = (rng.gauss(0, 0.012) for _ in range(minutes))
    return [math.exp(each) for each in itertools.accumulate(steps, lambda a, b: 0.9995 * a + b)]


def flat(rng: random.Random, minutes: int) -> list[float]:
    """Return a load that is noise."""
    return [max(0.05, factor) for factor in _noise(rng, minutes, 0.2, kept=0.9)]


def bursts(rng: random.Random, minutes: int) -> list[float]:
    """Return a load with bursts at random times."""
    load, begin = [0.3] * minutes, 0
    while (begin := begin + int(rng.expovariate(1 / 300))) < minutes:
        size = rng.uniform(0.3, 1.5)
        for minute in range(begin, min(minutes, begin + 5 + int(rng.expovariate(1 / 40)))):
            load[minute] += size
    return [factor * each for factor, each in zip(_noise(rng, minutes, 0.05), load, strict=True)]


def _noise(rng: random.Random, minutes: int, size: float, kept: float = 0.97) -> Iterator[float]:
    """Yield factors around 1, each of which keeps a part of the one before."""
    value = 0.0
    for _ in range(minutes):
        value = kept * value + rng.gauss(0, size * math.sqrt(1 - kept * kept))
        yield max(0.01, 1 + value)


GENERATED: dict[str, Callable[[random.Random, int], list[float]]] = {
    "working hours": office,
    "steep mornings": lambda rng, minutes: office(rng, minutes, ramp=4),
    "12 % growth a week": lambda rng, minutes: office(rng, minutes, growth=0.12),
    "much noise": lambda rng, minutes: office(rng, minutes, noise=0.12),
    "two holidays": lambda rng, minutes: office(rng, minutes, holidays=(23, 24)),
    "clocks change": lambda rng, minutes: office(rng, minutes, earlier=22),
    "60 % more at once": lambda rng, minutes: office(rng, minutes, larger=23),
    "jobs each hour": hourly,
    "slow evenings": evening,
    "random walk": walk,
    "noise": flat,
    "bursts": bursts,
}
"""Title of each generated load; the last three have no season."""
