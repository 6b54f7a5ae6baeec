"""The playground as text: a frame of a terminal, or a line of a log; pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from tests.playground import chart
from tests.playground.ink import Ink, Line, cut, length, render
from tests.playground.view import Autoscaler, Event, Moment, View

GUTTER = 8
"""Columns left of a chart, for its scale."""
TOLERANCE = 0.1
"""The controller's: by so much of the target the metric may be off, and nothing happens."""
_GAP = 3
"""Spaces between columns, as kubectl has it."""
_MARGIN = 1
_MOST_ROWS = 8
_NOTHING: Line = ()


def frame(view: View, *, width: int, height: int, colour: bool) -> list[str]:
    """Lines for a terminal of this size.

    None is wider, but for the commands: the terminal breaks them, so that they can be copied
    whole. How many there are depends on the size alone. Where the terminal is low, less is shown.
    """
    below = _commands(view)
    below[0] = cut(below[0], width)
    while below and _rows(below, width) > height:
        below.pop()
    above = _above(view, width, height - _rows(below, width))
    lines = [*(cut(line, width) for line in above), *below]
    return [render(line, colour=colour) for line in lines]


def line(view: View) -> str:
    """One line for a log."""
    now, scaler = view.now, view.autoscaler
    metric = f"{scaler.metric} {_told(now, scaler)}" if scaler else "no HPA"
    return (
        f"{clock(now.seconds)}  load {now.load:.0f} %  {metric}  "
        f"replicas {now.wanted} ({now.ready} ready)"
    )


def commands(view: View) -> list[str]:
    """What to type, for a log."""
    return [render(each, colour=False) for each in _commands(view)]


def event(found: Event) -> str:
    return f"{clock(found.seconds)}  {found.text}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def _rows(lines: Iterable[Line], width: int) -> int:
    """How many a terminal needs for them, which breaks what is wider."""
    return sum(max(1, math.ceil(length(line) / width)) for line in lines)


def _above(view: View, width: int, height: int) -> list[Line]:
    """Everything but the commands, in `height` lines: the least important goes first."""
    # Title, three charts of a headline and a row, their time axis, the HPA, and three events.
    spare = height - (1 + 3 * 2 + 1 + 3 + 5)
    with_gpus = spare >= 2
    spare -= 2 * with_gpus
    rows = 2 if spare >= 3 else 1
    spare -= 3 * (rows - 1)
    airy = spare >= 3
    spare -= 3 * airy
    # Of each four lines more, the events get one.
    rows = min(_MOST_ROWS, rows + max(0, spare) // 4)
    space = [_NOTHING] if airy else []

    lines = [_title(view, width), *space]
    for each in _charts(view, width - GUTTER - _MARGIN, rows):
        lines += [*each, *space]
    if airy:
        lines.pop()
    lines += [_axis(width - GUTTER - _MARGIN), _NOTHING, *_table(view.autoscaler, width)]
    if len(lines) > height:
        # Two lines that tell nothing without each other, and of which the charts tell the most.
        del lines[-3:]
    if with_gpus:
        lines += [_NOTHING, _gpus(view)]
    lines.append(_NOTHING)
    told = height - len(lines) - 1
    lines += [_event(each) for each in view.events[-told:]] if told > 0 else []
    return [*lines, *itertools.repeat(_NOTHING, height - len(lines))][:height]


def _title(view: View, width: int) -> Line:
    left = f" {view.title} · {clock(view.now.seconds)}"
    right = f"{view.setting} "
    room = max(2, width - len(left) - len(right))
    return (Ink(left, "strong"), Ink(" " * room), Ink(right, "dim"))


def _charts(view: View, width: int, rows: int) -> Iterator[list[Line]]:
    cells = chart.columns(view.moments, max(1, width))
    yield [_load_head(view), *_load(cells, rows)]
    yield [_metric_head(view), *_metric(cells, rows, view.autoscaler)]
    yield [_replicas_head(view), *_replicas(cells, rows, view.autoscaler)]


def _load_head(view: View) -> Line:
    now = view.now
    askers = f"{now.askers} replica{'' if now.askers == 1 else 's'} of bert-load"
    return _head("load", f"{now.load:.0f} %", f"of one GPU · {askers}", "load")


def _metric_head(view: View) -> Line:
    now, scaler = view.now, view.autoscaler
    if scaler is None:
        return _head("metric", "<unknown>", "no HPA asks", "bad")
    style = (
        "bad"
        if now.value is None
        else "high"
        if _asks_for_more(now.value, scaler.target)
        else "good"
    )
    told = f"target {_number(scaler.target)} · {scaler.metric}"
    return _head("metric", "<unknown>" if now.value is None else f"{now.value:.1f}", told, style)


def _replicas_head(view: View) -> Line:
    now, scaler = view.now, view.autoscaler
    bounds = f"of {scaler.smallest} to {scaler.largest}" if scaler else ""
    if now.ready < now.wanted:
        bounds += f" · {now.ready} ready{', and no GPU is free' if view.exhausted else ''}"
    return _head("replicas", str(now.wanted), bounds, "replicas")


def _head(name: str, value: str, told: str, style: str) -> Line:
    return (Ink(f" {name:<10}", "strong"), Ink(f"{value:<6} ", style), Ink(told, "dim"))


def _load(cells: Sequence[Moment | None], rows: int) -> list[Line]:
    values = [each.load if each else 0.0 for each in cells]
    top = max(100.0, chart.nice(max(values)))
    drawn = chart.area(values, rows=rows, top=top)
    return [(_scale(top, row, rows), Ink(text, "load")) for row, text in enumerate(drawn)]


def _metric(cells: Sequence[Moment | None], rows: int, scaler: Autoscaler | None) -> list[Line]:
    values = [each.value if each else 0.0 for each in cells]
    target = scaler.target if scaler else 0.0
    # A pod that was alone with the load would else dwarf for minutes what comes after it.
    top = 2 * target if target else chart.nice(max(value or 0.0 for value in values))
    styles = ["high" if _asks_for_more(value, target) else "good" for value in values]
    aim = chart.row_of(target, rows=rows, top=top)
    lines: list[Line] = []
    for row, text in enumerate(chart.area(values, rows=rows, top=top)):
        aimed = row == aim and 0 < row < rows - 1
        scale = _label(_number(target)) if aimed else _scale(top, row, rows)
        drawn = text.replace(" ", "╌") if aimed else text
        pairs = (
            (mark, "dim" if mark == "╌" else style)
            for mark, style in zip(drawn, styles, strict=True)
        )
        lines.append((scale, *_runs(pairs)))
    return lines


def _asks_for_more(value: float | None, target: float) -> bool:
    return value is not None and 0 < target * (1 + TOLERANCE) < value


def _replicas(cells: Sequence[Moment | None], rows: int, scaler: Autoscaler | None) -> list[Line]:
    wanted = [float(each.wanted) if each else 0.0 for each in cells]
    ready = [float(each.ready) if each else 0.0 for each in cells]
    top = float(max(scaler.largest if scaler else 1, *wanted, 1))
    drawn = zip(
        chart.area(wanted, rows=rows, top=top), chart.area(ready, rows=rows, top=top), strict=True
    )
    lines: list[Line] = []
    for row, pair in enumerate(drawn):
        marks = (
            (all_, "replicas" if all_ == some else "waiting")
            for all_, some in zip(*pair, strict=True)
        )
        lines.append((_scale(top, row, rows), *_runs(marks)))
    return lines


def _runs(marks: Iterable[tuple[str, str]]) -> Iterator[Ink]:
    """Characters with their styles, as few pieces."""
    for style, run in itertools.groupby(marks, lambda each: each[1]):
        yield Ink("".join(mark for mark, _ in run), style)


def _scale(top: float, row: int, rows: int) -> Ink:
    """The gutter of a row: what the highest means, and where the ground is."""
    if row == 0 and rows > 1:
        return _label(_number(top))
    return _label("0") if row == rows - 1 and rows > 1 else Ink(" " * (GUTTER - 1) + "▏", "dim")


def _label(text: str) -> Ink:
    return Ink(f"{text:>{GUTTER - 2}} ▏", "dim")


def _axis(width: int) -> Line:
    span = clock(width * chart.SECONDS_EACH)
    text = f"{span} ago"
    return (Ink(f"{'':{GUTTER}}{text:<{max(0, width - 3)}}now", "dim"),)


def _table(scaler: Autoscaler | None, width: int) -> list[Line]:
    """What kubectl prints; where the terminal is narrow, without what is known anyway."""
    if scaler is None:
        return [_NOTHING, (Ink(" No HPA scales this Deployment.", "bad"),)]
    columns = list(zip(scaler.header, scaler.cells, strict=True))
    for known in ("REFERENCE", "NAME", "MINPODS", "MAXPODS"):
        if sum(max(map(len, column)) + _GAP for column in columns) > width:
            columns = [column for column in columns if column[0] != known]
    widths = [max(map(len, column)) + _GAP for column in columns]
    header, cells = (
        " " + "".join(cell.ljust(room) for cell, room in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    )
    return [(Ink(header, "dim"),), (Ink(cells),)]


def _gpus(view: View) -> Line:
    nodes = "  ".join(chart.meter(node) for node in view.gpus)
    held = sum(busy is not None for node in view.gpus for busy in node)
    total = sum(map(len, view.gpus))
    return (
        Ink(f" {'GPUs':<10}", "strong"),
        Ink(f"{f'{held}/{total}':<7}"),
        Ink(nodes, "good"),
        Ink(f"   a group is a node; {chart.GAP} is a free GPU", "dim"),
    )


def _event(found: Event) -> Line:
    return (Ink(f" {clock(found.seconds)}  ", "dim"), Ink(found.text))


def _commands(view: View) -> list[Line]:
    widest = max(len(each.purpose) for each in view.commands)
    return [
        (Ink(" In another terminal", "strong"), Ink(" (Ctrl-C in this one ends it all):", "dim")),
        *(
            (Ink(f"   {each.purpose:<{widest}}   ", "dim"), Ink(each.text))
            for each in view.commands
        ),
    ]


def _told(now: Moment, scaler: Autoscaler) -> str:
    value = "<unknown>" if now.value is None else f"{now.value:.1f}"
    return f"{value}/{_number(scaler.target)}"


def _number(value: float) -> str:
    return f"{value:g}"
