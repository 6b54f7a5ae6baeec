"""`serve`, the default: answer the metrics API until told to stop."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence

from adapter import errors, settings
from adapter.app import server
from adapter.commands import shutdown
from rules.errors import ConfigError

NAME = "serve"
SUMMARY = "answer the Kubernetes metrics API (when no command is named)"

log = logging.getLogger(__name__)

_DEBUG = 6
"""The verbosity at which the original logs every request to Prometheus."""


def main(argv: Sequence[str]) -> int:
    """0 when told to stop, 1 when the server could not start, 2 for a wrong command line."""
    try:
        asked = settings.parse(argv)
    except settings.HelpRequested:
        print(settings.usage())
        return 0
    except settings.UsageError as error:
        print(f"{error}\n`gpu-metrics-adapter --help` lists every flag", file=sys.stderr)
        return 2
    set_up_logging(logging.DEBUG if asked.verbosity >= _DEBUG else logging.INFO)
    try:
        shutdown.run(_serve(asked))
    except (ConfigError, errors.StartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def set_up_logging(level: int) -> None:
    """Log to standard error, as containers are expected to."""
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("asyncio").setLevel(logging.INFO)
    sys.unraisablehook = log_unraisable


def log_unraisable(told: sys.UnraisableHookArgs) -> None:
    """One line for what Python would print with a traceback, and then go on.

    A client can bring that about: by a server name that is not ASCII, which ends its handshake.
    """
    what = type(told.exc_value).__name__
    log.warning("%s: %r: %s: %s", told.err_msg or "ignored", told.object, what, told.exc_value)


async def _serve(asked: settings.Settings) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(shutdown.stopping())
        if await shutdown.run_until(stop, stack.enter_async_context(server.running(asked))):
            await stop.wait()
