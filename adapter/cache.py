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


class SingleFlightCache(Generic[K, V]):
    """Knows what `find` answers to each key.

    `ttl` gives the seconds for which an answer holds, 0 for one that is not to be kept. All
    entries together have at most the size `max_size`, those longest unused go first. What `find`
    raises goes to everyone who waits, and is forgotten.
    """

    def __init__(
        self,
        find: Callable[[K], Coroutine[Any, Any, V]],
        *,
        ttl: Callable[[K, V], float],
        max_size: int,
        size: Callable[[K], int] = lambda _: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._ttl = ttl
        self._max_size = max_size
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._taken = 0
        self._in_flight: dict[K, InFlight[V]] = {}

    async def get(self, key: K) -> V:
        """The answer: kept, under way, or asked for now."""
        kept = self._kept.get(key)
        if kept is not None:
            if self._clock() < kept.until:
                self._kept.move_to_end(key)
                return kept.value
            self._drop(key)
        in_flight = self._in_flight.get(key)
        if in_flight is None:
            in_flight = self._in_flight[key] = InFlight(
                task=asyncio.create_task(self._ask(key), name=f"{self._find.__qualname__}")
            )
        in_flight.waiting += 1
        try:
            return await asyncio.shield(in_flight.task)
        finally:
            in_flight.waiting -= 1
            if not in_flight.waiting and not in_flight.task.done():
                in_flight.task.cancel()
                del self._in_flight[key]

    async def _ask(self, key: K) -> V:
        this = asyncio.current_task()
        try:
            value = await self._find(key)
        finally:
            # After a cancellation the place may be another's already.
            if key in self._in_flight and self._in_flight[key].task is this:
                del self._in_flight[key]
        if (ttl := self._ttl(key, value)) > 0:
            self._keep(key, _Kept(value=value, until=self._clock() + ttl, size=self._size(key)))
        return value

    def _keep(self, key: K, kept: _Kept[V]) -> None:
        self._drop(key)
        self._kept[key] = kept
        self._taken += kept.size
        while self._taken > self._max_size:
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
class InFlight(Generic[V]):
    """A question under way, and how many wait for its answer."""

    task: asyncio.Task[V]
    waiting: int = 0
