"""Area charts of block characters, one column per value. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tools.playground.view import Snapshot

SECONDS_PER_COLUMN = 2
"""The sync period of the HPA controller in the playground."""
BLOCKS = " ▁▂▃▄▅▆▇█"
OVERFLOW = "▲"
MISSING = "·"


def columns(snapshots: Sequence[Snapshot], width: int) -> list[Snapshot | None]:
    """Return the last snapshot of each column, oldest first; None before the first snapshot.

    The last column is now. A column without a snapshot repeats the one before it.
    """
    if not snapshots:
        return [None] * width
    latest: dict[int, Snapshot] = {}
    for each in snapshots:
        latest[int(each.seconds // SECONDS_PER_COLUMN)] = each
    newest = int(snapshots[-1].seconds // SECONDS_PER_COLUMN)
    cells: list[Snapshot | None] = []
    last: Snapshot | None = None
    for number in range(min(latest), newest + 1):
        last = latest.get(number, last)
        cells.append(last)
    return [None] * (width - len(cells)) + cells[-width:]


def area(values: Sequence[float | None], *, rows: int, top: float) -> list[str]:
    """Return the rows of an area chart, from the top; a value of `top` fills all rows.

    Each value above zero draws at least the smallest block. A value above `top` ends in OVERFLOW. A
    value of None is drawn as MISSING in the lowest row.
    """
    return [
        "".join(_cell(value, row, rows=rows, top=top) for value in values)
        for row in range(rows - 1, -1, -1)
    ]


def row_of(value: float, *, rows: int, top: float) -> int:
    """Return the row, counted from the top, in which `value` lies."""
    return max(0, rows - 1 - math.floor(value / top * rows))


def round_up(value: float) -> float:
    """Return the smallest round number (100, 150, 200, 300, ...) that is at least `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * factor >= value
    )


def bars(utilisation: Iterable[float | None]) -> str:
    """Return one character per GPU: its utilisation as a block, or MISSING if it is free."""
    return "".join(
        MISSING if busy is None else BLOCKS[max(1, min(8, math.ceil(busy / 12.5)))]
        for busy in utilisation
    )


def _cell(value: float | None, row: int, *, rows: int, top: float) -> str:
    if value is None:
        return MISSING if row == 0 else " "
    if value > top and row == rows - 1:
        return OVERFLOW
    eighths = max(round(value / top * rows * 8), 1 if value > 0 else 0)
    return BLOCKS[min(8, max(0, eighths - row * 8))]
