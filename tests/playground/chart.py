"""Areas of block characters, so many rows high and a column for each value; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tests.playground.view import Moment

SECONDS_EACH = 2
"""Seconds of a column: the HPA controller looks as often."""
BLOCKS = " ▁▂▃▄▅▆▇█"
BEYOND = "▲"
GAP = "·"


def columns(moments: Sequence[Moment], width: int) -> list[Moment | None]:
    """The last moment of each column, oldest first, the last column being now; None before all."""
    if not moments:
        return [None] * width
    newest = int(moments[-1].seconds // SECONDS_EACH)
    found: dict[int, Moment] = {}
    for each in moments:
        found[int(each.seconds // SECONDS_EACH)] = each
    cells: list[Moment | None] = []
    last: Moment | None = None
    oldest = newest - width + 1
    for number in range(min(found), newest + 1):
        # A look that took long leaves no hole.
        last = found.get(number, last)
        if number >= oldest:
            cells.append(last)
    return [None] * (width - len(cells)) + cells


def area(values: Sequence[float | None], *, rows: int, top: float) -> list[str]:
    """The rows from above, each as wide as there are values; `top` fills all of them.

    Whatever is more than nothing is seen, and BEYOND crowns what is more than `top`; what is
    unknown (None) is a GAP on the ground.
    """
    return [
        "".join(_cell(value, row, rows=rows, top=top) for value in values)
        for row in range(rows - 1, -1, -1)
    ]


def row_of(value: float, *, rows: int, top: float) -> int:
    """In which row, from above, a line at `value` is drawn."""
    return max(0, rows - 1 - math.floor(value / top * rows))


def nice(value: float) -> float:
    """The least that is not below `value` among round numbers, such as 100, 150, 200, 300."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * factor >= value
    )


def meter(utilisation: Iterable[float | None]) -> str:
    """A character for each GPU: how busy it is; `·` for one that nobody has."""
    return "".join(
        GAP if busy is None else BLOCKS[max(1, min(8, math.ceil(busy / 12.5)))]
        for busy in utilisation
    )


def _cell(value: float | None, row: int, *, rows: int, top: float) -> str:
    if value is None:
        return GAP if row == 0 else " "
    if value > top and row == rows - 1:
        return BEYOND
    height = max(round(value / top * rows * 8), 1 if value > 0 else 0)
    return BLOCKS[min(8, max(0, height - row * 8))]
