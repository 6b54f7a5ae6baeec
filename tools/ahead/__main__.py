"""Compare autoscaling with and without a forecast on given and generated loads.

    python -m tools.ahead nyc_taxi.csv elb_request_count.csv=1d --seed=1

CSV files have the columns `timestamp` and `value`, as those of github.com/numenta/NAB; the season
is a week unless it follows the name. Each load is scaled so that 20 pods carry it except for 0.1 %
of the time. A season and a week are the past; the rest is measured. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rules import quantity
from rules.hpa.autoscaler import DOWNSCALE_WINDOW, SYNC, TOLERANCE
from rules.query.ahead import STEP, WINDOW, Forecaster, Totals
from tools.ahead import series

STARTS = (60.0, 240.0)
"""Seconds from the creation of a pod until it takes its part of the load."""
MOST = 60
"""maxReplicas."""
_PODS, _WEEK = 20, 604_800.0
_TITLES = (
    "Load",
    "Start",
    "Above",
    "Forecast",
    "Oracle",
    "Lower target",
    "GPU-hours",
    "Forecast",
    "Oracle",
    "Missed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an autoscaler did."""

    above: float
    """Hours for which the started pods had more than their target and the tolerance."""
    pod_hours: float


def controller(
    loads: Sequence[float], start: float, factors: Sequence[float] | None = None
) -> Outcome:
    """Return what the HPA controller does with its defaults, with one load each sync.

    A pod's target is a load of 1. `factors` are those of a forecast. This is `replay.simulate` for
    one metric of pods, in a fiftieth of its time.
    """
    ready = [-start] * max(1, math.ceil(loads[0]))
    recommended: deque[tuple[float, int]] = deque()
    above = pods = 0
    for index, load in enumerate(loads):
        now, current = index * SYNC, len(ready)
        started = sum(each <= now for each in ready)
        above += load > started * (1 + TOLERANCE)
        pods += current
        wanted = _proposal(load * (factors[index] if factors else 1), current, started)
        while recommended and recommended[-1][1] <= wanted:
            recommended.pop()
        recommended.append((now, wanted))
        while recommended[0][0] < now - DOWNSCALE_WINDOW:
            recommended.popleft()
        desired = min(max(recommended[0][1], 1), MOST, max(2 * current, 4))
        # The newest pods go first, as a ReplicaSet removes them.
        ready = ready[:desired] + [now + start] * (desired - current)
    return Outcome(above=above * SYNC / 3600, pod_hours=pods * SYNC / 3600)


def _proposal(load: float, current: int, started: int) -> int:
    """Return the replicas that a load needs; pods that have not started have no value."""
    if not started:
        return current
    ratio = load / started
    missing = current - started if ratio < 1 else 0  # they count as at the target, else as idle
    adjusted = (load + missing) / current
    if abs(adjusted - 1) <= TOLERANCE or (ratio - 1) * (adjusted - 1) < 0:
        return current
    return math.ceil(load + missing)


def row(title: str, load: Sequence[float], season: float, start: float) -> Iterator[str]:
    """Yield the cells of a row: one load with one start of pods."""
    scale = _PODS / sorted(load)[int(0.999 * len(load))]
    totals = Totals(begin=0, values=[scale * each for each in load])
    first, forecaster = round((season + WINDOW) / STEP), Forecaster(season=season, horizon=start)
    loads, factors, errors = [], [], []
    for minute in range(first, len(load) - 1):
        made = forecaster.at(totals, totals, minute * STEP)
        errors.append(1.0 if made.error is None else made.error)
        before, after = totals.values[minute : minute + 2]
        for part in range(round(STEP / SYNC)):
            loads.append(before + (after - before) * part * SYNC / STEP)
            factors.append(made.factor(loads[-1]))
    reactive, ahead = controller(loads, start), controller(loads, start, factors)
    oracle = controller(loads, start, list(_oracle(loads, start)))
    more = ahead.pod_hours / reactive.pod_hours
    lower = controller(loads, start, [more] * len(loads))
    yield title
    yield f"{start:g} s"
    yield f"{reactive.above:.1f} h"
    for each in (ahead, oracle, lower):
        yield f"{each.above / reactive.above - 1:+z.0%}" if reactive.above else "0"
    yield f"{reactive.pod_hours:.0f}"
    for each in (ahead, oracle):
        yield f"{each.pod_hours / reactive.pod_hours - 1:+z.1%}"
    yield f"{sorted(errors)[len(errors) // 2]:.0%}"


def _oracle(loads: Sequence[float], start: float) -> Iterator[float]:
    """Yield by what each load must be multiplied to be the largest until a new pod has started."""
    reach, largest, found = round(start / SYNC) + 2, deque[int](), []
    for index in reversed(range(len(loads))):
        while largest and loads[largest[-1]] <= loads[index]:
            largest.pop()
        largest.append(index)
        while largest[0] > index + reach:
            largest.popleft()
        found.append(loads[largest[0]] / loads[index] if loads[index] else 1.0)
    yield from reversed(found)


def _loads(files: Sequence[str], weeks: int, seed: str) -> Iterator[tuple[str, list[float], float]]:
    """Yield title, load and season in seconds; generated loads only if there is a seed."""
    for text in files:
        name, _, season = text.partition("=")
        seconds = quantity.prometheus_duration(season) / 1e9 if season else _WEEK
        yield Path(name).stem, series.read(Path(name))[-weeks * series.WEEK :], seconds
    for title, generate in series.GENERATED.items() if seed else ():
        yield title, generate(random.Random(f"{title} {seed}"), weeks * series.WEEK), _WEEK


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.ahead", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE[=SEASON]")
    parser.add_argument("--weeks", type=int, default=5, help="of each load, the last ones")
    parser.add_argument("--seed", default="", help="of generated loads; none without")
    options = parser.parse_args(argv)
    print(f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}", flush=True)
    loads = _loads(options.files, options.weeks, options.seed)
    for (title, load, season), start in itertools.product(loads, STARTS):
        print(f"| {' | '.join(row(title, load, season, start))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
