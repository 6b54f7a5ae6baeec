"""Limits of clients: requests per second, slots that namespaces share, bytes of responses.

The token buckets are those of client-go. `prometheus` counts the bytes, and fails a response for
which there is no room.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
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


class FairSlots:
    """At most `own` slots are taken for one namespace, and `total` for all.

    A free slot goes to the namespaces that wait in turns, not to the oldest request. So a namespace
    waits at most until each of the others has had one slot.
    """

    def __init__(self, *, own: int, total: int) -> None:
        self._own = own
        self._free = total
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Requests that wait, by namespace; the next namespace first."""

    @contextlib.asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot of `namespace`, and take it in this context."""
        if self._free and self._taken[namespace] < self._own:
            self._take(namespace)
        else:
            await self._wait(namespace)
        try:
            yield
        finally:
            self._release(namespace)

    async def _wait(self, namespace: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(namespace, turn)
            else:  # it was cancelled after it had got the slot
                self._release(namespace)
            raise

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    def _release(self, namespace: str) -> None:
        """Return a slot, and give it to the next namespace that may have one."""
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        for chosen, turns in self._waiting.items():
            if self._taken[chosen] >= self._own:
                continue
            # A request may be cancelled already, and not yet have left the queue.
            turn = next((each for each in turns if not each.done()), None)
            if turn is not None:
                self._take(chosen)
                self._waiting.move_to_end(chosen)
                self._forget(chosen, turn)
                turn.set_result(None)
                return

    def _forget(self, namespace: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[namespace]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[namespace]


MAX_HELD = 32 << 20
"""Maximum bytes of all responses that are being read. Parsed, they take 4 times as much memory, and
14 times if every name is as short as possible, which is still below the limit of 768 MiB."""


class Held:
    """Limit that clients share.

    Half of it is divided equally among the clients. So one whose responses arrive slowly does not
    make those of the others fail.
    """

    def __init__(self) -> None:
        self._shares: list[Share] = []

    @property
    def bytes(self) -> int:
        """Bytes of the responses that all clients are reading."""
        return sum(each.bytes for each in self._shares)

    def share(self) -> Share:
        """Return the share of one more client."""
        share = Share(self._shares)
        self._shares.append(share)
        return share


class Share:
    """Bytes of the responses that one client is reading; `every` has those of all clients."""

    def __init__(self, every: list[Share]) -> None:
        self.bytes = 0
        self._every = every

    @property
    def has_room(self) -> bool:
        """Whether they are within the client's own part, or all are within the common half."""
        own = MAX_HELD // (2 * len(self._every))
        beyond = sum(max(0, each.bytes - own) for each in self._every)
        return self.bytes <= own or beyond <= MAX_HELD // 2
