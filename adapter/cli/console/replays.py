"""A replay as charts and rows of a page. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from adapter.cli.console import chart
from adapter.cli.console.chart import Chart, Points
from rules.hpa import replay_report
from rules.hpa.replay_report import Replay

_POINTS = 720
"""Points of a line: a chart is not wider."""


def variables(replayed: Replay) -> dict[str, Any]:
    """Return what the template `replay.html` shows beside the document."""
    return {
        "columns": replay_report.COLUMNS,
        "rows": [(each.title, replay_report.cells(each)) for each in replayed.results],
        "charts": _charts(replayed),
    }


def _charts(replayed: Replay) -> list[Chart]:
    """Return a chart of each metric with its target, and one of the replicas of each variant."""
    times = [each.time for each in replayed.history]
    found = []
    for index, metric in enumerate(replayed.hpa.metrics):
        unit = 1.0 if metric.target == "Utilization" else 1000.0
        values = [each.readings[index].value for each in replayed.history]
        ends = [(times[0], metric.value / unit), (times[-1], metric.value / unit)]
        lines = {"target": ends, "value": _thinned(times, values)}
        found.append(chart.draw(f"{metric}, as it was", lines))
    was, *others = replayed.results
    for other in others:
        replicas = {each.title: _thinned(times, each.replicas) for each in (was, other)}
        found.append(chart.draw(f"Replicas: {other.title}", replicas, steps=True))
    return [each for each in found if each is not None]


def _thinned(times: Sequence[float], values: Sequence[float | None]) -> Points:
    """Return at most as many points as a chart has pixels: of each part the highest."""
    width = min(_POINTS, len(values))
    edges = [len(values) * index // width for index in range(width + 1)]
    points: list[tuple[float, float | None]] = []
    for begin, end in itertools.pairwise(edges):
        known = [each for each in values[begin:end] if each is not None]
        points.append((times[begin], max(known, default=None)))
    return points
