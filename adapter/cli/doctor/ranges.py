"""Queries over ranges of time, in parts that Prometheus accepts and that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import RangeResult
from rules.errors import UnreadableError

_MAX_STEPS = 10_000
"""Points of a series in one query; Prometheus refuses more than 11 000."""
_FIRST_STEPS = 1_000
_POINTS_AT_ONCE = 100_000
"""Points of one query, about; their evaluation takes half a second."""
_MAX_POINTS = 30_000_000
"""Points that are read in all: some minutes."""
_MAX_QUERIES = 5_000

Point = tuple[Mapping[str, str], int, float]
"""Labels, time in Unix milliseconds, and value."""


class Ranges:
    """Evaluates queries over ranges of time that Prometheus accepts. `step` is in milliseconds."""

    def __init__(self, prometheus: Prometheus, step: int) -> None:
        self._prometheus = prometheus
        self.step = step
        self.queries = 0
        self.partial = ""
        """What Prometheus says that responses lack; empty if they are whole."""
        self._points = 0
        self._series = 0
        """Most series of a query in this chunk."""

    def chunks(self, begin: int, end: int) -> Iterator[Sequence[int]]:
        """Yield times from `begin` to `end`, so many that their points fit into memory."""
        steps = _FIRST_STEPS
        while begin <= end:
            last = min(begin + (steps - 1) * self.step, end)
            self._series = 1
            yield range(begin, last + 1, self.step)
            steps = max(60, min(_POINTS_AT_ONCE // self._series, _MAX_STEPS))
            begin = last + self.step

    async def points(self, query: str, times: Sequence[int]) -> list[Point]:
        """Return the samples of a query at these times. Raises UnreadableError."""
        found = await self._ranges(query, times[0], times[-1], self.step)
        self._series = max(self._series, len(found))
        points = [
            (each.labels, round(at * 1000), value) for each in found for at, value in each.points
        ]
        self._points += len(points)
        if self._points > _MAX_POINTS or self.queries > _MAX_QUERIES:
            raise UnreadableError(
                f"this is too much: {self.queries} range queries returned {self._points} points; "
                f"the limits are {_MAX_QUERIES} and {_MAX_POINTS}. Choose a shorter --since or a "
                "longer --sync-period"
            )
        return points

    async def any(self, query: str, begin: int, end: int) -> bool:
        """Return whether a query has samples at some of 500 times. Raises UnreadableError."""
        step = max(self.step, (end - begin) // 500)
        return bool(await self._ranges(query, begin, end, step))

    async def _ranges(self, query: str, begin: int, end: int, step: int) -> Sequence[RangeResult]:
        self.queries += 1
        try:
            found = await self._prometheus.query_range(query, begin / 1000, end / 1000, step / 1000)
        except errors.BackendError as error:
            raise UnreadableError(
                f"Prometheus did not answer: {error}. Correct --prometheus-url, or choose a "
                "shorter --since"
            ) from error
        self.partial = self.partial or found.partial
        return found.content
