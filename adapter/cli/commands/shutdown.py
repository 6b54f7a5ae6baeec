"""Shutdown on SIGTERM or SIGINT, also during the start, without waiting for threads."""

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


def run(
    work: Coroutine[Any, Any, None],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run `work` like asyncio.run, but do not wait for pending DNS lookups at the end."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.get_loop().set_default_executor(DaemonThreadExecutor())
        runner.run(work)


@contextlib.contextmanager
def stopping() -> Iterator[asyncio.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; a second one ends the process."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        stop.set()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            # Not a handler of the event loop, because the loop may be what hangs.
            signal.signal(number, _exit)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`; cancel it and return None once `stop` is set."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopped.cancel()
        await asyncio.gather(working, stopped, return_exceptions=True)


def _exit(_signal: int, _frame: types.FrameType | None) -> NoReturn:
    os._exit(1)


class DaemonThreadExecutor(futures.ThreadPoolExecutor):
    """Executor that runs each call in a daemon thread, so that the process can exit at any time.

    The event loop accepts subclasses of ThreadPoolExecutor only. It uses the executor for DNS
    lookups, which cannot be cancelled and take a minute if the name server does not respond.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Start `fn` in a new thread."""
        future: futures.Future[T] = futures.Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller handles it
                future.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        return future
