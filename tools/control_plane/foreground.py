"""Signals, errors and progress of the programs that run in the foreground until Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from adapter.cli.local_prometheus.debian import NoProgramError

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Steps:
    """Prints what is started next, with the seconds since the start."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._started = time.monotonic()
        self._stream = stream

    def __call__(self, text: str) -> None:
        """Print a line."""
        seconds = time.monotonic() - self._started
        print(f"{seconds:6.1f} s  {text}", file=self._stream, flush=True)


@contextlib.contextmanager
def program(*, signal_status: int = 0) -> Iterator[None]:
    """Exit in order on SIGINT, SIGTERM and SIGHUP, and print expected errors without traceback.

    The first signal raises SystemExit with `signal_status`, so that every context manager cleans
    up; later signals are ignored. Under nohup, SIGHUP stays ignored.
    """
    for number in _STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, functools.partial(_exit, signal_status))
    try:
        yield
    except BrokenPipeError:
        sys.exit(1)
    except (NoProgramError, RuntimeError, TimeoutError) as error:
        sys.exit(str(error))


def _exit(status: int, *_: object) -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
