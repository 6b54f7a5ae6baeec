"""Limits of connections: of their time, and of what they may keep in memory together."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_TICK = 10.0
"""Maximum seconds until the timer of a deadline runs. It runs also while nothing is due, so that a
later deadline does not have to start a timer, which would take 2 µs for each request."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of malloc.h."""
_MALLOC_BYTES = 512 << 10
"""Of both. glibc begins with 128 KiB. But uvloop allocates 256 KiB for each read from TLS, and to
map and return them takes three system calls and two page faults for each request."""

K = TypeVar("K", bound=Hashable)


class Deadline:
    """A function that is called once it is due, unless another deadline is set before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._call: Callable[[], None] | None = None
        self.when = 0.0
        """In the event loop's time."""

    def set(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` in `seconds`, and nothing else."""
        self.when = self._loop.time() + seconds
        self._call = call
        if self._timer is not None:
            if self._timer.when() <= self.when:
                return
            self._timer.cancel()
        self._start()

    def forget(self) -> None:
        """Call nothing until another deadline is set."""
        self._call = None

    def cancel(self) -> None:
        """Call nothing, and end the timer."""
        self._call = None
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        when = min(self.when, self._loop.time() + _TICK)
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._call is None:
            return
        if self._loop.time() < self.when:
            self._start()
        else:
            call, self._call = self._call, None
            call()


class MemoryBudget(Generic[K]):
    """Sum of sizes, by owner. Above `limit`, the owner with the largest has to give up."""

    def __init__(self, limit: int, give_up: Callable[[K], object]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._sizes: dict[K, int] = {}
        self._sum = 0

    def set(self, owner: K, size: int) -> None:
        """Replace the size of an owner."""
        self.release(owner)
        if not size:
            return
        self._sizes[owner] = size
        self._sum += size
        if self._sum > self._limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.release(largest)
            self._give_up(largest)

    def size(self, owner: K) -> int:
        """Return the size of an owner."""
        return self._sizes.get(owner, 0)

    def release(self, owner: K) -> None:
        """Forget an owner."""
        self._sum -= self._sizes.pop(owner, 0)


def return_freed_buffers() -> None:
    """Let malloc return each buffer of 512 KiB or more to the system when it is freed.

    glibc begins with that, but raises both thresholds to the largest buffer that was ever freed, up
    to 32 MiB. Then buffers of connections lie among objects that live longer, and keep the heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MALLOC_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _MALLOC_BYTES)
