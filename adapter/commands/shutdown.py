"""How a program that serves ends: once told to, whatever it is at, and waiting for no thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import types
from collections.abc import Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, but a lookup of a name that is under way in the end is nobody's business."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(DaemonThreadExecutor())
        runner.run(work)


@contextlib.contextmanager
def stopping() -> Iterator[asyncio.Event]:
    """An event that is set by the first SIGTERM or SIGINT; a second one ends the process."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def told() -> None:
        stop.set()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            # Not by the event loop, which may be what is stuck.
            signal.signal(each, _end_at_once)

    for each in _SIGNALS:
        loop.add_signal_handler(each, told)
    try:
        yield stop
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


async def run_until(stop: asyncio.Event, starting: Coroutine[Any, Any, T]) -> T | None:
    """What `starting` gives; None where `stop` is set before, which cancels it."""
    start, told = asyncio.create_task(starting), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((start, told), return_when=asyncio.FIRST_COMPLETED)
        return start.result() if start.done() else None
    finally:
        start.cancel()
        told.cancel()
        await asyncio.gather(start, told, return_exceptions=True)


def _end_at_once(_signal: int, _frame: types.FrameType | None) -> NoReturn:
    os._exit(1)


class DaemonThreadExecutor(futures.ThreadPoolExecutor):
    """Makes each call in a thread of its own, for which neither the loop nor the process waits.

    The event loop takes no other executor than this kind; it looks up names there, and nothing
    else: a lookup cannot be cancelled, and takes a minute where a name server does not answer.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        future: futures.Future[T] = futures.Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        return future
