"""Whether the API server responds: requested each second while a page is open.

A hanging API server breaks no connection, so that a watch notices it only after a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from adapter import errors
from adapter.clients.kubernetes import Kube

T = TypeVar("T")

_INTERVAL = 1.0
_TIMEOUT = 2.0
_IDLE = 15.0
"""Seconds after the last request for a page, from which nothing is sent."""
_QPS, _BURST = 5.0, 10
LOST = "The API server does not respond"


class ApiServerProbe:
    """Requests the version of the API server while `run` runs. `clock` returns Unix seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.time) -> None:
        self._kube = kube.with_rate(qps=_QPS, burst=_BURST, timeout=_TIMEOUT)
        self._clock = clock
        self._requested = 0.0
        """Time of the last request for a page."""
        self._lost = asyncio.Event()
        self.responded = clock()
        """Time of the last response."""

    @property
    def lost(self) -> bool:
        """Whether the last request was not answered."""
        return self._lost.is_set()

    async def run(self) -> NoReturn:
        """Send a request each second while pages are requested, until cancelled."""
        while True:
            if self._clock() - self._requested < _IDLE:
                await self.probe()
            await asyncio.sleep(_INTERVAL)

    async def probe(self) -> None:
        """Send a request; any response counts, whatever its status."""
        try:
            await self._kube.fetch("/version")
        except errors.BackendError:
            self._lost.set()
        else:
            self._lost.clear()
            self.responded = self._clock()

    async def check(self) -> None:
        """Raise TimedOut unless the API server responds."""
        await self.probe()
        if self.lost:
            raise errors.TimedOut(LOST)

    async def unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. Raises TimedOut if it waits while the server is lost."""
        self._requested = self._clock()
        tasks = asyncio.ensure_future(work), asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise errors.TimedOut(LOST)
            return tasks[0].result()
        finally:
            for each in tasks:
                each.cancel()
