"""Charts of an autoscaler as numbers for SVG: lines, ticks and a text that says the same. Pure."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from adapter.cli.console.autoscalers import ReplicaSample
from rules.hpa.advice import KEPT
from rules.hpa.advice_report import Advice
from rules.hpa.autoscaler import Autoscaler, MetricSpec
from rules.hpa.replay import Result, comparable
from rules.hpa.replay_report import Replay

Points = Sequence[tuple[float, float | None]]
"""Time in Unix seconds, oldest first, and value; None where it is not known."""

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 20, 26
_TICKS = 4
_MARKS = 60
"""Parts of the time whose values are shown under the pointer."""
_DAY = 86_400.0
_STYLES = ("target", "value")
"""CSS classes of the lines of a chart, in their order; a single line is a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawn chart."""

    title: str
    lines: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Label, style and polylines: their `points`."""
    rows: tuple[tuple[float, str], ...]
    """Height and text of each horizontal line."""
    columns: tuple[tuple[float, str], ...]
    """Position and text of each time, or other value of the horizontal axis."""
    marks: tuple[tuple[float, float, str], ...]
    """Position and width of parts of that axis, and the values there."""
    axis: str
    """What the horizontal axis shows."""
    summary: str
    """What a reader who does not see the chart should know."""


def of_samples(hpa: Autoscaler, samples: Sequence[ReplicaSample]) -> list[Chart]:
    """Return a chart of each metric with its target, and one of replicas."""
    found = []
    for index, metric in enumerate(hpa.metrics):
        unit = _unit(metric)
        known = [each for each in samples if index < len(each.values)]
        target = [(each.time, metric.value / unit) for each in known]
        points = [
            (each.time, None if (value := each.values[index]) is None else value / unit)
            for each in known
        ]
        found.append(draw(str(metric), {"target": target, "value": points}))
    replicas: dict[str, Points] = {
        "desired": [(each.time, each.wanted) for each in samples],
        "current": [(each.time, each.present) for each in samples],
    }
    found.append(draw("Replicas", replicas, steps=True))
    return [each for each in found if each is not None]


def of_replay(replayed: Replay) -> list[Chart]:
    """Return a chart of each metric with its target, and one of the replicas of each variant."""
    times = [each.time for each in replayed.history]
    found = []
    for index, metric in enumerate(replayed.hpa.metrics):
        unit = _unit(metric)
        values = [
            None
            if (value := each.readings[index].value) is None
            else comparable(metric, value, each.present)
            for each in replayed.history
        ]
        ends = [(times[0], metric.value / unit), (times[-1], metric.value / unit)]
        lines = {"target": ends, "value": _thinned(times, values)}
        found.append(draw(f"{metric}, as it was", lines))
    found += _replicas(times, replayed.results)
    return [each for each in found if each is not None]


def of_advice(advised: Advice) -> list[Chart]:
    """Return the curve of each metric that has a target, and the replicas of each variant.

    A curve is the share of the windows that kept the objective, by the load of a pod.
    """
    found = []
    for each in sorted(advised.curves, key=lambda curve: curve is not advised.chosen):
        if each.reached:
            begins = (each.low, *(step.until for step in each.steps))
            shares = [100 * step.value for step in (*each.steps, each.steps[-1])]
            needed = 100 * KEPT
            lines: dict[str, Points] = {
                "needed, in %": [(each.low, needed), (each.high, needed)],
                "kept, in %": list(zip(begins, shares, strict=True)),
            }
            title = f"{advised.objective}, by {each.metric.name}"
            found.append(
                draw(
                    title,
                    lines,
                    steps=True,
                    text=each.readable,
                    axis=f"The horizontal axis is {each.metric.name} of each pod",
                )
            )
    found += _replicas(
        [each.time for each in advised.history], [each.result for each in advised.variants]
    )
    return [each for each in found if each is not None]


def _replicas(times: Sequence[float], results: Sequence[Result]) -> Iterator[Chart | None]:
    """Yield a chart of the replicas of each variant beside those that there were."""
    was, *others = results
    for other in others:
        replicas = {each.title: _thinned(times, each.replicas) for each in (was, other)}
        yield draw(f"Replicas: {other.title}", replicas, steps=True)


def _unit(metric: MetricSpec) -> float:
    """Return how often the unit of a chart is in a value: per cent, or thousandths."""
    return 1.0 if metric.target == "Utilization" else 1000.0


def draw(
    title: str,
    series: Mapping[str, Points],
    *,
    steps: bool = False,
    text: Callable[[float], str] | None = None,
    axis: str = "Times are UTC",
) -> Chart | None:
    """Return a chart of one or two series, given by their labels; None if there is nothing to draw.

    With `steps`, a value holds until the next one. `text` returns a value of the horizontal axis
    as text; None for times.
    """
    values = [value for points in series.values() for _, value in points if value is not None]
    times = [time for points in series.values() for time, _ in points]
    if not values or max(times) <= min(times):
        return None
    begin, end, step = min(times), max(times), _step(max(*values, 0.0) - min(*values, 0.0))
    low = math.floor(min(*values, 0.0) / step) * step
    high = max(math.ceil(max(values) / step) * step, low + step)

    def x(time: float) -> float:
        return round(_LEFT + (time - begin) / (end - begin) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_TOP + (high - value) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 1)

    levels = [low + index * step for index in range(round((high - low) / step) + 1)]
    times = [begin + index * (end - begin) / _TICKS for index in range(_TICKS + 1)]
    shown = text or functools.partial(_clock, span=end - begin)
    width = round((WIDTH - _LEFT - _RIGHT) / _MARKS, 1)
    return Chart(
        title=title,
        lines=tuple(
            (
                label,
                style,
                tuple(
                    " ".join(f"{x(time)},{y(value)}" for time, value in part)
                    for part in _parts(points, steps=steps)
                ),
            )
            for (label, points), style in zip(series.items(), _STYLES[-len(series) :], strict=True)
        ),
        rows=tuple((y(level), f"{level:.6g}") for level in levels),
        columns=tuple((x(time), shown(time)) for time in times),
        marks=tuple(
            (x(begin + (end - begin) * index / _MARKS), width, _values_at(series, time, shown))
            for index in range(_MARKS)
            for time in [begin + (end - begin) * (index + 0.5) / _MARKS]
        ),
        axis=axis,
        summary=". ".join(
            _described(*each, last="at the end" if text else "now") for each in series.items()
        ),
    )


def _clock(time: float, span: float) -> str:
    """Return a time on an axis that has `span` seconds."""
    form = "%a %H:%M" if span > _DAY else "%H:%M" if span > 300 else "%H:%M:%S"
    return datetime.fromtimestamp(time, UTC).strftime(form)


def _step(span: float) -> float:
    """Return a round distance of about four lines for a range of values."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= span / _TICKS)


def _parts(points: Points, *, steps: bool) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts of a line between which no value is known."""
    part: list[tuple[float, float]] = []
    for time, value in points:
        if value is None:
            if part:
                yield part
            part = []
            continue
        if steps and part:
            part.append((time, part[-1][1]))
        part.append((time, value))
    if part:
        yield part


def _values_at(series: Mapping[str, Points], time: float, shown: Callable[[float], str]) -> str:
    """Return the last values until a time, as text."""
    texts = [shown(time)]
    for label, points in series.items():
        at = bisect.bisect_right(points, time, key=lambda each: each[0])
        value = points[at - 1][1] if at else None
        texts.append(f"{label} {'unknown' if value is None else format(value, '.6g')}")
    return ", ".join(texts)


def _described(label: str, points: Points, last: str) -> str:
    values = [value for _, value in points if value is not None]
    if not values:
        return f"{label}: no value"
    if min(values) == max(values):
        return f"{label}: {values[-1]:.6g}"
    return f"{label}: {min(values):.6g} to {max(values):.6g}, {last} {values[-1]:.6g}"


def _thinned(times: Sequence[float], values: Sequence[float | None]) -> Points:
    """Return at most as many points as a chart has pixels: of each part the highest."""
    width = min(WIDTH, len(values))
    edges = [len(values) * index // width for index in range(width + 1)]
    points: list[tuple[float, float | None]] = []
    for begin, end in itertools.pairwise(edges):
        known = [each for each in values[begin:end] if each is not None]
        points.append((times[begin], max(known, default=None)))
    return points
