"""Time that a query reads back, from the text of its template, which is not rendered or parsed."""

from __future__ import annotations

import functools
import re

from rules import quantity
from rules.errors import DurationError

_RANGE = re.compile(r"\[\s*(?P<range>\w+)\s*(?P<subquery>:[^\]]*)?\]")
_OFFSET = re.compile(r"\boffset\s+(\w+)", re.IGNORECASE)


@functools.lru_cache(maxsize=4096)
def seconds(query: str) -> float:
    """Return how many seconds before its evaluation `query` reads; 0 without a range or an offset.

    This is an upper bound: the longest range, subquery and offset are added as if nested.
    """
    ranges, subqueries = [0.0], [0.0]
    for each in _RANGE.finditer(query):
        (subqueries if each["subquery"] else ranges).append(_seconds(each["range"]))
    offsets = map(_seconds, _OFFSET.findall(query))
    return max(ranges) + max(subqueries) + max(offsets, default=0.0)


def _seconds(text: str) -> float:
    """Return the seconds of a duration or a number; 0 for any other text.

    Brackets may be those of a regular expression.
    """
    try:
        return quantity.prometheus_duration(f"{text}s" if text.isdecimal() else text) / 1e9
    except DurationError:
        return 0.0
