"""Caches shared by the other packages: LRU caches, single-flight calls, and both together."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from adapter import errors
from rules.limits import equal_shares

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_FAILURES = 1024


class LRUCache(Generic[K, V]):
    """Mapping that evicts the least recently used entries when their sizes exceed `max_size`."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0
        """Of all entries."""
        self.hits = 0
        """Number of calls of `get` that found a value."""
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which becomes the most recently used, or None."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def set(self, key: K, value: V, *, size: int = 1) -> None:
        """Store a value; evict others, or the value itself if it alone exceeds `max_size`."""
        self.discard(key)
        self._entries[key] = value, size
        self.size += size
        self._evict()

    def _evict(self) -> None:
        while self.size > self._max_size:
            self.size -= self._entries.popitem(last=False)[1][1]

    def resize(self, key: K, value: V, *, size: int) -> None:
        """Change the size of an entry, unless it has another value or was evicted."""
        entry = self._entries.get(key)
        if entry is not None and entry[0] is value:
            self._entries[key] = value, size
            self.size += size - entry[1]
            self._evict()

    def replace_key(self, key: K) -> None:
        """Replace an equal key by `key`: those that are the same object are found faster."""
        if (entry := self._entries.pop(key, None)) is not None:
            self._entries[key] = entry

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self.size = 0

    def retain(self, keep: Callable[[K], bool]) -> None:
        """Remove the entries whose key `keep` rejects."""
        for key in [key for key in self._entries if not keep(key)]:
            self.discard(key)

    def discard(self, key: K) -> None:
        """Remove `key` if it is present."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= entry[1]


class FairLRUCache(Generic[K, V]):
    """LRU cache that owners share: each is certain of an equal part, whatever the others store.

    `owner` returns whose a key is.
    """

    def __init__(self, max_size: int, owner: Callable[[K], str]) -> None:
        self._max_size = max_size
        self._owner = owner
        self._parts: dict[str, OrderedDict[K, V]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which becomes the most recently used of its owner, or None."""
        part = self._parts.get(self._owner(key))
        if part is None or (value := part.get(key)) is None:
            return None
        part.move_to_end(key)
        return value

    def set(self, key: K, value: V) -> None:
        """Store a value, which must not be None; evict others if there are too many."""
        part = self._parts.setdefault(self._owner(key), OrderedDict())
        before = len(part)
        part[key] = value
        part.move_to_end(key)
        self._size += len(part) - before
        if self._size > self._max_size:
            self._evict()

    def retain(self, keep: Callable[[K], bool]) -> None:
        """Remove the entries whose key `keep` rejects."""
        for key in [key for part in self._parts.values() for key in part if not keep(key)]:
            self.discard(key)

    def discard(self, key: K) -> None:
        """Remove `key` if it is present."""
        owner = self._owner(key)
        part = self._parts.get(owner)
        if part is not None and part.pop(key, None) is not None:
            self._size -= 1
            if not part:
                del self._parts[owner]

    def _evict(self) -> None:
        """Reduce the owners with the most entries to equal shares, the oldest entries first.

        A hundredth of all is left free, because the time grows with the number of owners.
        """
        sizes = {owner: len(part) for owner, part in self._parts.items()}
        shares = equal_shares(sizes, self._max_size - self._max_size // 100)
        for owner, size in sizes.items():
            for _ in range(size - shares[owner]):
                self._parts[owner].popitem(last=False)
            if not shares[owner]:
                del self._parts[owner]
        self._size = sum(shares.values())


class WeakCache(Generic[K, V]):
    """Mapping that forgets a key when nothing else refers to it."""

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[K, V] = WeakKeyDictionary()
        self.hits = 0
        """Number of calls of `get` that found a value."""
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        value = self._entries.get(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def set(self, key: K, value: V) -> None:
        """Store a value, which must not refer to its key."""
        self._entries[key] = value

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()


class SingleFlight(Generic[K, V]):
    """Runs at most one call per key at a time; concurrent callers share its result or failure.

    A cancelled caller does not disturb the others. The call is cancelled with its last caller.
    """

    def __init__(self) -> None:
        self._calls: dict[K, _Call[V]] = {}

    def __contains__(self, key: K) -> bool:
        """Return whether a call for `key` is in flight."""
        call = self._calls.get(key)
        return call is not None and not call.task.done()

    def __iter__(self) -> Iterator[K]:
        return iter(self._calls)

    async def run(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Join the call in flight for `key`, or run `start()`, and return its result."""
        call = self._calls.get(key)
        if call is None or call.task.done():
            call = self._calls[key] = _Call(task=asyncio.create_task(start()))
            call.task.add_done_callback(lambda _: self._forget(key, call))
        call.callers += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.callers -= 1
            if not call.callers and not call.task.done():
                call.task.cancel()
                self._forget(key, call)

    def _forget(self, key: K, call: _Call[V]) -> None:
        # A new call may have started since `call` was cancelled.
        if self._calls.get(key) is call:
            del self._calls[key]


class SingleFlightCache(Generic[K, V]):
    """Cache with a TTL, an LRU bound and single-flight calls of the functions that load values.

    `ttl` returns the seconds for which a value is cached; 0 means not at all. `size` returns the
    size of an entry, and all entries together have at most `max_size`. No value is None.
    """

    def __init__(
        self,
        *,
        ttl: Callable[[K, V], float],
        max_size: int,
        size: Callable[[K, V], int] = lambda *_: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl = ttl
        self._size = size
        self._clock = clock
        self.entries: LRUCache[K, tuple[V, float]] = LRUCache(max_size)
        """Values, and when they expire."""
        self._failures: LRUCache[K, tuple[errors.BackendError, float]] = LRUCache(_MAX_FAILURES)
        self.in_flight: SingleFlight[K, V] = SingleFlight()

    def cached(self, key: K, *, expired: bool = False) -> V | None:
        """Return the value of `key` if it is cached, else None; with `expired`, also an old one."""
        cached = self.entries.get(key)
        if cached is None:
            return None
        value, expires = cached
        if expired or self._clock() < expires:
            return value
        self.entries.hits -= 1
        self.entries.misses += 1
        return None

    def retain(self, keep: Callable[[K], bool]) -> None:
        """Forget the values and failures whose key `keep` rejects."""
        self.entries.retain(keep)
        self._failures.retain(keep)

    async def get(
        self, key: K, load: Callable[[], Coroutine[Any, Any, V]], *, error_ttl: float = 0.0
    ) -> V:
        """Return the value of `key`: the cached one, or as `find`."""
        value = self.cached(key)
        return await self.find(key, load, error_ttl=error_ttl) if value is None else value

    async def find(
        self, key: K, load: Callable[[], Coroutine[Any, Any, V]], *, error_ttl: float = 0.0
    ) -> V:
        """Return the value of `key` from the call in flight, or from a new call.

        For `error_ttl` seconds after a BackendError, it is raised again without a call.
        """
        if (failure := self._failures.get(key)) is not None and self._clock() < failure[1]:
            raise failure[0].without_frames()
        return await self.in_flight.run(key, lambda: self._fetch(key, load, error_ttl))

    async def _fetch(
        self, key: K, load: Callable[[], Coroutine[Any, Any, V]], error_ttl: float
    ) -> V:
        try:
            value = await load()
        except errors.BackendError as error:
            if error_ttl > 0:
                self._failures.set(key, (error.without_frames(), self._clock() + error_ttl))
            raise
        self.set(key, value)
        return value

    def set(self, key: K, value: V) -> None:
        """Cache a value that was loaded otherwise."""
        if (ttl := self._ttl(key, value)) > 0:
            self.entries.set(key, (value, self._clock() + ttl), size=self._size(key, value))


@dataclass(slots=True, kw_only=True)
class _Call(Generic[V]):
    task: asyncio.Task[V]
    callers: int = 0
