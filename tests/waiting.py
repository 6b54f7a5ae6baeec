"""A clock that a test sets, and waiting for a condition that has no event."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Clock:
    """Clock that stands still unless a test changes `now`."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


async def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Return once `condition()`, which may be a coroutine, is true.

    The limit only ends a test that would wait forever.
    """
    async with asyncio.timeout(seconds):
        while True:
            met = condition()
            if await met if inspect.isawaitable(met) else met:
                return
            await asyncio.sleep(0.005)  # there is no event to wait for
