"""A program in the foreground: told to stop it ends in order, and a failure is a sentence."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
from collections.abc import Iterator

from adapter.demo.debian import NoProgramError

_STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def program(*, stopped: int = 0) -> Iterator[None]:
    """Everything that it does; `stopped` is its exit status when it was told to stop.

    That comes as SystemExit, so that every context ends. Whoever asks again is not heard, and what
    was started under nohup does not mind that its terminal is closed.
    """
    for number in _STOPPERS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, functools.partial(_stop, stopped))
    try:
        yield
    except BrokenPipeError:
        sys.exit(1)
    except (NoProgramError, RuntimeError, TimeoutError) as error:
        sys.exit(str(error))


def _stop(status: int, *_: object) -> None:
    for number in _STOPPERS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
