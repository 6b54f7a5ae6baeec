"""How fast requests may follow each other: client-go's token bucket, as --client-qps has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from adapter import errors


class TokenBucket:
    """Lets `burst` requests through at once, and `qps` a second after that, in order."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._clock = clock
        self._sleep = sleep
        self._filled = clock()

    async def take(self, timeout: float) -> None:
        """Waits for its turn; raises TimedOut at once when that is more than `timeout` away."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
        self._filled = now
        wait = (1 - self._tokens) / self._qps
        if wait > timeout:
            raise errors.TimedOut(
                f"the next request to the API server may go out in {wait:.0f} s only: "
                "raise --client-qps and --client-burst"
            )
        self._tokens -= 1
        if wait > 0:
            await self._sleep(wait)
