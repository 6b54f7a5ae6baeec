"""Work on the event loop: background tasks, retries, turns, and what stops the loop for long."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, NoReturn, Self, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

_STALL_PROBE = 0.25
"""Seconds: a stall is seen from when the loop should have resumed the probe, so short ones are
seen if they are frequent. Four probes a second take 0.1 % of a core, ten took 0.2 %."""
_AT_ONCE = 4
_COLLECT_NEW, _COLLECT_NEW_MIN, _COLLECT_ALL = 0.5, 0.02, 3600.0
"""Seconds between two collections of new objects, at most and at least, and of everything."""
_COLLECTION = 0.002
"""Seconds that a collection of new objects should take at most."""
_NEVER = 1_000_000


class Background:
    """Tasks that run until the server stops; if one ends earlier, /livez fails."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Yield a Background; on exit, cancel its tasks and wait for them."""
        background = cls()
        try:
            yield background
        finally:
            for task in background._tasks:
                task.cancel()
            await asyncio.gather(*background._tasks, return_exceptions=True)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work`, which must not return, as a task called `name`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    def check(self) -> None:
        """Raise RuntimeError with the names of the tasks that have ended."""
        if ended := [task.get_name() for task in self._tasks if task.done()]:
            raise RuntimeError(f"ended: {', '.join(ended)}")


class Backoff:
    """Seconds before each retry: `first`, then twice the previous, up to `maximum`.

    `random`, a number in [0, 1), shortens each by at most its part `jitter`.
    """

    def __init__(
        self,
        first: float,
        maximum: float,
        *,
        jitter: float = 0.5,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._first = self._next = min(first, maximum)
        self._maximum = maximum
        self._jitter = jitter
        self._random = random

    def pause(self) -> float:
        """Return the seconds before the next retry."""
        pause, self._next = self._next, min(2 * self._next, self._maximum)
        return pause * (1 - self._jitter * (1 - self._random()))

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._next = self._first


async def watch_stalls(report: Callable[[float], None], probe: float = _STALL_PROBE) -> NoReturn:
    """Report how late the event loop resumes this, in seconds, again and again."""
    now = asyncio.get_running_loop().time
    while True:
        began = now()
        await asyncio.sleep(probe)
        report(max(0.0, now() - began - probe))


async def collect_garbage() -> NoReturn:
    """Collect new objects at a pace that follows the time it takes, and everything once an hour.

    By default, everything is collected whenever the objects have become a quarter more. With 50 000
    pods that was twice a minute; it stopped all threads for 0.3 s, and found next to nothing. New
    objects are collected by default when 700 more were created than deleted. Where new answers
    replace old ones, that is so rare that there are 60 000 then, which takes 0.05 s. What is left
    of the new ones is looked at once more only when everything is: twice as many would be looked at
    otherwise, and twice a second that took 17 ms.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:-1], _NEVER)
    now = asyncio.get_running_loop().time
    try:
        while True:
            gc.unfreeze()
            gc.collect()
            ends, pause = now() + _COLLECT_ALL, _COLLECT_NEW
            while (began := now()) < ends:
                gc.collect(0)
                gc.freeze()
                if now() - began > _COLLECTION:
                    pause = max(pause / 2, _COLLECT_NEW_MIN)
                elif pause < _COLLECT_NEW:
                    pause = min(pause * 1.1, _COLLECT_NEW)
                await asyncio.sleep(pause)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


class Pace:
    """Lets few coroutines go on in one iteration of the event loop, in the order they came.

    Hundreds that have waited for the same thing, and each take 1 ms, would delay all others.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = _AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for one's turn; it has come already if few others went on."""
        if not self.take():
            await self.wait()

    def take(self) -> bool:
        """Return whether one may go on at once; otherwise, one has to `wait`."""
        if self._left == _AT_ONCE:
            self._loop.call_soon(self._go_on)
        if not self._left:
            return False
        self._left -= 1
        return True

    async def wait(self) -> None:
        """Wait for one's turn."""
        self._waiting.append(self._loop.create_future())
        await self._waiting[-1]

    def _go_on(self) -> None:
        """Begin an iteration: those that have waited longest come first."""
        self._left = _AT_ONCE
        while self._left and self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)
                self._left -= 1
        if self._left < _AT_ONCE:
            self._loop.call_soon(self._go_on)


class FairQueue(Generic[T]):
    """Queue of at most `size` items, which are taken from each key in turn.

    A key may fill as many places as it leaves free, so that no key fills the queue.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._ready = asyncio.Semaphore(0)
        self._waiting: dict[str, deque[T]] = {}
        """By key; the key whose turn it is comes first."""

    def put(self, key: str, item: T) -> bool:
        """Append an item; return False if there is no place for it."""
        if not has_share(len(self._waiting.get(key, ())), self._free):
            return False
        self._waiting.setdefault(key, deque()).append(item)
        self._free -= 1
        self._ready.release()
        return True

    async def get(self) -> T:
        """Remove the next item and return it; wait for it if there is none."""
        await self._ready.acquire()
        key = next(iter(self._waiting))
        waiting = self._waiting.pop(key)
        item = waiting.popleft()
        self._free += 1
        if waiting:
            self._waiting[key] = waiting
        return item


def has_share(used: int, free: int) -> bool:
    """Return whether somebody who uses so many places may take one of those that are free.

    One alone gets half of all places, two a third each: there is always one for the next.
    """
    return used < free


class Condition:
    """What is wrong, if anything, and since when. `clock` returns Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.problem = ""
        self.began = 0.0

    def becomes(self, problem: str) -> bool:
        """Note the problem, empty for none; return whether it has changed."""
        if problem == self.problem:
            return False
        self.problem, self.began = problem, self._clock()
        return True


@contextlib.contextmanager
def guarded(subject: str, problem: str) -> Iterator[None]:
    """Log any exception of the block: a defect that one object meets ends nothing for others."""
    try:
        yield
    except Exception:
        log.exception("%s: %s", subject, problem)


def utc(seconds: float) -> str:
    """Return a Unix time for messages, to the second."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results in order.

    Raises the first failure, after the other coroutines were cancelled and have ended.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        if tasks:
            # Not gather: it raises a failure also where the caller was cancelled meanwhile.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical(
            "background task %s failed; /livez fails until the adapter restarts",
            task.get_name(),
            exc_info=error,
        )
