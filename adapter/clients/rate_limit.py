"""Token buckets: one for requests to the API server, like client-go's, and one for each key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from adapter import errors

K = TypeVar("K", bound=Hashable)


class TokenBucket:
    """Rate limiter that allows `burst` requests at once and `qps` requests per second after that.

    Waiting requests proceed in order. `flags` names the flags that raise the limit, if any.
    """

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        flags: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._flags = flags
        self._clock = clock
        self._sleep = sleep
        self._filled = clock()

    async def take(self, timeout: float) -> None:
        """Wait for a token. Raises TimedOut at once if it takes more than `timeout` seconds."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
        self._filled = now
        wait = (1 - self._tokens) / self._qps
        if wait > timeout:
            advice = f"; raise {self._flags}" if self._flags else ""
            raise errors.TimedOut(
                f"rate limit: the next request to the API server may be sent in {wait:.0f} s"
                f"{advice}"
            )
        self._tokens -= 1
        if wait > 0:
            try:
                await self._sleep(wait)
            except asyncio.CancelledError:
                # Otherwise clients that send a request and disconnect would delay all others.
                self._tokens += 1
                raise


class Allowances(Generic[K]):
    """Token buckets by key, for work that is postponed instead of awaited.

    Each allows `burst` at once, and one in `seconds` after that.
    """

    def __init__(
        self, burst: int, seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._used: dict[K, float] = {}
        """Key -> when its bucket is full again; absent if it is."""

    def take(self, key: K) -> bool:
        """Return whether the bucket of the key has a token, and take it."""
        now = self._clock()
        if key not in self._used:
            self._used = {each: full for each, full in self._used.items() if full > now}
        full = max(self._used.get(key, now), now) + self._seconds
        if full > now + (self._burst + 0.5) * self._seconds:  # half of one: sums are rounded
            return False
        self._used[key] = full
        return True
