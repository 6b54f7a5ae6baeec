"""Answers that are worth remembering for a while, and never asked for twice at once.

Who gives up waiting does not end a question for the others; the last one does.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Knows what `find` answers to each key.

    `lasts` gives the seconds for which an answer holds, 0 for one that is not to be kept. All
    entries together have at most the size `room`, those longest unused go first. What `find` raises
    goes to everyone who waits, and is forgotten.
    """

    def __init__(
        self,
        find: Callable[[K], Coroutine[Any, Any, V]],
        *,
        lasts: Callable[[K, V], float],
        room: int,
        size: Callable[[K], int] = lambda _: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._lasts = lasts
        self._room = room
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._taken = 0
        self._flights: dict[K, _Flight[V]] = {}

    async def get(self, key: K) -> V:
        """The answer: kept, under way, or asked for now."""
        kept = self._kept.get(key)
        if kept is not None:
            if self._clock() < kept.until:
                self._kept.move_to_end(key)
                return kept.value
            self._drop(key)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(
                task=asyncio.create_task(self._ask(key), name=f"{self._find.__qualname__}")
            )
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                del self._flights[key]

    async def _ask(self, key: K) -> V:
        this = asyncio.current_task()
        try:
            value = await self._find(key)
        finally:
            # After a cancellation the place may be another's already.
            if key in self._flights and self._flights[key].task is this:
                del self._flights[key]
        if (lasts := self._lasts(key, value)) > 0:
            self._keep(key, _Kept(value=value, until=self._clock() + lasts, size=self._size(key)))
        return value

    def _keep(self, key: K, kept: _Kept[V]) -> None:
        self._drop(key)
        self._kept[key] = kept
        self._taken += kept.size
        while self._taken > self._room:
            self._taken -= self._kept.popitem(last=False)[1].size

    def _drop(self, key: K) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._taken -= kept.size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept(Generic[V]):
    value: V
    until: float
    size: int


@dataclass(slots=True, kw_only=True)
class _Flight(Generic[V]):
    """A question under way, and how many wait for its answer."""

    task: asyncio.Task[V]
    waiting: int = 0
