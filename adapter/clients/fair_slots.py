"""Slots for requests that namespaces share in turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator


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
