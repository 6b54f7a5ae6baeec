"""Text of the playground: a frame for a terminal, or a line for a log. Pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tools.cluster.hpa import HEADER, aligned
from tools.playground import chart, manifests
from tools.playground.view import Autoscaler, Event, Snapshot, View

AXIS_WIDTH = 8
"""Columns left of a chart, for the labels of its vertical axis."""
TOLERANCE = 0.1
"""The HPA controller does not scale while the metric is within this fraction of the target."""
_MARGIN = 1
_TITLE = "gpu-metrics-adapter playground"
_MAX_CHART_ROWS = 8
_OTHER_LINES = 20
"""Lines above the commands that are no rows of charts, with five events."""
_SGR_CODES = {
    "strong": "1",
    "dim": "2",
    "load": "36",
    "good": "32",
    "high": "33",
    "replicas": "34",
    "waiting": "90",
    "bad": "31",
}
_RESET = "\x1b[0m"
_ELLIPSIS = "…"


class Span(NamedTuple):
    """Part of a line; `style` is a key of _SGR_CODES (ECMA-48) or empty."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
_EMPTY: Line = ()


def frame(view: View, *, width: int, height: int, colour: bool) -> list[str]:
    """Return the lines that fill a terminal of this size; a low terminal gets less detail.

    Lines are truncated to the width, except the commands: the terminal wraps them, so that they can
    be copied whole.
    """
    below = _commands(view)
    below[0] = _truncate(below[0], width)
    while below and _terminal_rows(below, width) > height:
        below.pop()
    above = _above_commands(view, width, height - _terminal_rows(below, width))
    lines = [*(_truncate(line, width) for line in above), *below]
    return [_render(line, colour=colour) for line in lines]


def line(view: View) -> str:
    """Return the current state as one line for a log."""
    now, scaler = view.now, view.autoscaler
    metric = "no HPA"
    if scaler:
        metric = f"{scaler.metric} {_value(now)}/{_number(scaler.target)}"
    return (
        f"{clock(now.seconds)}  load {now.load:.0f} %  {metric}  "
        f"replicas {now.desired} ({now.ready} ready)"
    )


def commands(view: View) -> list[str]:
    """Return the commands to try, for a log."""
    return [_render(each, colour=False) for each in _commands(view)]


def event(event: Event) -> str:
    """Return an event as one line for a log."""
    return f"{clock(event.seconds)}  {event.text}"


def clock(seconds: float) -> str:
    """Format a duration as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def _terminal_rows(lines: Iterable[Line], width: int) -> int:
    """Return the number of rows on a terminal that wraps long lines."""
    return sum(max(1, math.ceil(_length(line) / width)) for line in lines)


def _above_commands(view: View, width: int, height: int) -> list[Line]:
    """Return everything but the commands in `height` lines; what is lowest is left out."""
    rows = max(1, min(_MAX_CHART_ROWS, (height - _OTHER_LINES) // 3))
    spacing = [_EMPTY] if rows > 1 else []
    chart_width = width - AXIS_WIDTH - _MARGIN
    lines = [_title(view, width)]
    for each in _charts(view, chart_width, rows):
        lines += [*spacing, *each]
    lines += [_time_axis(chart_width), _EMPTY, *_hpa_table(view.autoscaler)]
    lines += [_EMPTY, _gpus(view), _EMPTY]
    event_lines = height - len(lines) - 1
    lines += [_event(each) for each in view.events[-event_lines:]] if event_lines > 0 else []
    return [*lines, *itertools.repeat(_EMPTY, height - len(lines))][:height]


def _title(view: View, width: int) -> Line:
    left = f" {_TITLE} · {clock(view.now.seconds)}"
    right = f"{view.subtitle} "
    padding = max(2, width - len(left) - len(right))
    return (Span(left, "strong"), Span(" " * padding), Span(right, "dim"))


def _charts(view: View, width: int, rows: int) -> Iterator[list[Line]]:
    cells = chart.columns(view.snapshots, max(1, width))
    yield [_load_headline(view), *_load_chart(cells, rows)]
    yield [_metric_headline(view), *_metric_chart(cells, rows, view.autoscaler)]
    yield [_replicas_headline(view), *_replicas_chart(cells, rows, view.autoscaler)]


def _load_headline(view: View) -> Line:
    now = view.now
    noun = "replica" if now.load_replicas == 1 else "replicas"
    details = f"of one GPU · {now.load_replicas} {noun} of {manifests.LOAD}"
    return _headline("load", f"{now.load:.0f} %", details, "load")


def _metric_headline(view: View) -> Line:
    now, scaler = view.now, view.autoscaler
    if scaler is None:
        return _headline("metric", "<unknown>", "no HPA", "bad")
    style = (
        "bad"
        if now.value is None
        else "high"
        if _above_tolerance(now.value, scaler.target)
        else "good"
    )
    details = f"target {_number(scaler.target)} · {scaler.metric}"
    return _headline("metric", _value(now), details, style)


def _replicas_headline(view: View) -> Line:
    now, scaler = view.now, view.autoscaler
    details = f"of {scaler.min_replicas} to {scaler.max_replicas}" if scaler else ""
    if now.ready < now.desired:
        details += f" · {now.ready} ready{', no free GPU' if view.out_of_gpus else ''}"
    return _headline("replicas", str(now.desired), details, "replicas")


def _headline(name: str, value: str, details: str, style: str) -> Line:
    return (Span(f" {name:<10}", "strong"), Span(f"{value:<6} ", style), Span(details, "dim"))


def _load_chart(cells: Sequence[Snapshot | None], rows: int) -> list[Line]:
    values = [each.load if each else 0.0 for each in cells]
    top = max(100.0, chart.round_up(max(values)))
    area = chart.area(values, rows=rows, top=top)
    return [(_axis_label(top, row, rows), Span(text, "load")) for row, text in enumerate(area)]


def _metric_chart(
    cells: Sequence[Snapshot | None], rows: int, scaler: Autoscaler | None
) -> list[Line]:
    values = [each.value if each else 0.0 for each in cells]
    target = scaler.target if scaler else 0.0
    # Not the maximum: while one pod has the whole load its value is far above the target, and on
    # that scale all later values would look alike.
    top = 2 * target if target else chart.round_up(max(value or 0.0 for value in values))
    styles = ["high" if _above_tolerance(value, target) else "good" for value in values]
    target_row = chart.row_of(target, rows=rows, top=top)
    lines: list[Line] = []
    for row, text in enumerate(chart.area(values, rows=rows, top=top)):
        at_target = row == target_row and 0 < row < rows - 1
        label = _label(_number(target)) if at_target else _axis_label(top, row, rows)
        marks = text.replace(" ", "╌") if at_target else text
        styled = (
            (mark, "dim" if mark == "╌" else style)
            for mark, style in zip(marks, styles, strict=True)
        )
        lines.append((label, *_spans(styled)))
    return lines


def _above_tolerance(value: float | None, target: float) -> bool:
    return value is not None and 0 < target * (1 + TOLERANCE) < value


def _replicas_chart(
    cells: Sequence[Snapshot | None], rows: int, scaler: Autoscaler | None
) -> list[Line]:
    desired = [float(each.desired) if each else 0.0 for each in cells]
    ready = [float(each.ready) if each else 0.0 for each in cells]
    top = float(max(scaler.max_replicas if scaler else 1, *desired, 1))
    areas = zip(
        chart.area(desired, rows=rows, top=top), chart.area(ready, rows=rows, top=top), strict=True
    )
    lines: list[Line] = []
    for row, (desired_marks, ready_marks) in enumerate(areas):
        styled = (
            (mark, "replicas" if mark == ready_mark else "waiting")
            for mark, ready_mark in zip(desired_marks, ready_marks, strict=True)
        )
        lines.append((_axis_label(top, row, rows), *_spans(styled)))
    return lines


def _spans(styled: Iterable[tuple[str, str]]) -> Iterator[Span]:
    """Join characters of the same style into spans."""
    for style, run in itertools.groupby(styled, lambda each: each[1]):
        yield Span("".join(mark for mark, _ in run), style)


def _axis_label(top: float, row: int, rows: int) -> Span:
    """Return the axis left of a row: `top` at the highest, 0 at the lowest row."""
    if row == 0 and rows > 1:
        return _label(_number(top))
    return (
        _label("0") if row == rows - 1 and rows > 1 else Span(" " * (AXIS_WIDTH - 1) + "▏", "dim")
    )


def _label(text: str) -> Span:
    return Span(f"{text:>{AXIS_WIDTH - 2}} ▏", "dim")


def _time_axis(width: int) -> Line:
    oldest = f"{clock(width * chart.SECONDS_PER_COLUMN)} ago"
    return (Span(f"{'':{AXIS_WIDTH}}{oldest:<{max(0, width - 3)}}now", "dim"),)


def _hpa_table(scaler: Autoscaler | None) -> list[Line]:
    """Return the lines of `kubectl get hpa` without name and reference."""
    if scaler is None:
        return [_EMPTY, (Span(" No HPA scales this Deployment.", "bad"),)]
    header, cells = aligned([HEADER[2:], scaler.cells[2:]])
    return [(Span(f" {header}", "dim"),), (Span(f" {cells}"),)]


def _gpus(view: View) -> Line:
    nodes = "  ".join(chart.bars(node) for node in view.gpus)
    allocated = sum(busy is not None for node in view.gpus for busy in node)
    total = sum(map(len, view.gpus))
    return (
        Span(f" {'GPUs':<10}", "strong"),
        Span(f"{f'{allocated}/{total}':<7}"),
        Span(nodes, "good"),
        Span(f"   one group per node; {chart.MISSING} = free GPU", "dim"),
    )


def _event(event: Event) -> Line:
    return (Span(f" {clock(event.seconds)}  ", "dim"), Span(event.text))


def _commands(view: View) -> list[Line]:
    width = max(len(each.purpose) for each in view.commands)
    return [
        (
            Span(" In another terminal", "strong"),
            Span(" (Ctrl-C in this one stops everything):", "dim"),
        ),
        *(
            (Span(f"   {each.purpose:<{width}}   ", "dim"), Span(each.text))
            for each in view.commands
        ),
    ]


def _value(now: Snapshot) -> str:
    return "<unknown>" if now.value is None else f"{now.value:.1f}"


def _number(value: float) -> str:
    return f"{value:g}"


def _length(line: Line) -> int:
    """Return the number of characters."""
    return sum(len(each.text) for each in line)


def _truncate(line: Line, width: int) -> Line:
    """Shorten a line to `width` characters; an ellipsis replaces the rest."""
    if _length(line) <= width:
        return line
    left = max(0, width - 1)
    kept: list[Span] = []
    for each in line:
        kept.append(Span(each.text[:left], each.style))
        left -= len(kept[-1].text)
    return (*kept, Span(_ELLIPSIS[:width]))


def _render(line: Line, *, colour: bool) -> str:
    """Return the text of a line, with escape sequences if `colour`."""
    return "".join(_render_span(each, colour=colour) for each in line if each.text)


def _render_span(span: Span, *, colour: bool) -> str:
    if not colour or not span.style:
        return span.text
    return f"\x1b[{_SGR_CODES[span.style]}m{span.text}{_RESET}"
