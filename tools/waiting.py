"""A clock that a test sets, waiting for a condition that has no event, and work beside a test."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Clock:
    """Clock that stands still unless a test changes `now`."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


async def until(condition: Callable[[], object], *, seconds: float = 90) -> None:
    """Return once `condition()`, which may be a coroutine, is true.

    The limit only ends a test that would wait forever.
    """
    async with asyncio.timeout(seconds):
        while True:
            met = condition()
            if await met if inspect.isawaitable(met) else met:
                return
            await asyncio.sleep(0.005)  # there is no event to wait for


def has_ended(process: int) -> bool:
    """Return whether a process has ended; it may still be a zombie."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.asynccontextmanager
async def running(*work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run coroutines, which have begun when the block begins; cancel them at its end."""
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.contextmanager
def repeated(call: Callable[[], object], *, every: float = 0.0) -> Iterator[None]:
    """Call `call` in a thread, `every` so many seconds; at the end, wait for its last return.

    An OSError, as while a server restarts, does not end the calls.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every):
            with contextlib.suppress(OSError):
                call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
