"""Results that several requests share: while they are obtained, and until they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeVar

from adapter import errors
from adapter.cache import LRUCache, SingleFlight

ERROR_TTL = 1.0
"""Seconds for which a failure is shared, at most."""
_MAX_FAILURES = 1024
_ENTRY = 10
"""Size of a result without samples: 2 kB."""


class Expiring(Protocol):
    """Result with the times and the size that `Recent` needs."""

    @property
    def began(self) -> float:
        """Loop time at which its query was sent."""
        ...

    @property
    def expires(self) -> float:
        """Loop time from which on it is not used any more."""
        ...

    @property
    def size(self) -> int:
        """Number of its samples."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Expiring)


class Recent(Generic[K, V]):
    """Results by key; concurrent callers share one call, later ones its result or failure.

    All results together have at most `max_size` samples; each counts as ten more.
    """

    def __init__(self, max_size: int) -> None:
        self._results: LRUCache[K, V] = LRUCache(max_size)
        self._failures: LRUCache[K, tuple[errors.BackendError, float]] = LRUCache(_MAX_FAILURES)
        self._in_flight: SingleFlight[K, V] = SingleFlight()

    def get(self, key: K, now: float) -> V | None:
        """Return the result of `key` if it has not expired at the loop time `now`."""
        result = self._results.get(key)
        return result if result is not None and now < result.expires else None

    def retain(self, keep: Callable[[K], bool]) -> None:
        """Forget the results and failures whose key `keep` rejects."""
        self._results.retain(keep)
        self._failures.retain(keep)

    async def run(
        self,
        key: K,
        find: Callable[[], Coroutine[Any, Any, V]],
        *,
        deadline: float | None,
        after: float = 0.0,
        error_ttl: float = ERROR_TTL,
    ) -> V:
        """Return the kept result, that of the call in flight, or that of a new call of `find`.

        A kept result counts only if its query was sent at the loop time `after` or later. A
        failure is raised again for `error_ttl` seconds. Raises TimedOut at `deadline` (loop time);
        the call goes on for the other callers, and is cancelled with the last one.
        """
        now = asyncio.get_running_loop().time()
        if (result := self.get(key, now)) is not None and result.began >= after:
            return result
        if (failure := self._failures.get(key)) is not None and now < failure[1]:
            raise failure[0].with_traceback(None)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._in_flight.run(key, lambda: self._find(key, find, error_ttl))
        except TimeoutError as error:
            raise errors.TimedOut("deadline exceeded while a query was in flight") from error

    async def _find(
        self, key: K, find: Callable[[], Coroutine[Any, Any, V]], error_ttl: float
    ) -> V:
        try:
            result = await find()
        except errors.BackendError as error:
            if error_ttl > 0:
                kept = error.without_frames()
                self._failures.set(key, (kept, asyncio.get_running_loop().time() + error_ttl))
            raise
        self._results.set(key, result, size=_ENTRY + result.size)
        return result
