"""`serve`, the default: answer the metrics API until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import types
from collections.abc import Sequence
from typing import NoReturn

from adapter import app, settings
from rules.errors import ConfigError

NAME = "serve"
SUMMARY = "answer the Kubernetes metrics API (when no command is named)"

_DEBUG = 6
"""The verbosity at which the original logs every request to Prometheus."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    set_up_logging(asked.verbosity)
    try:
        asyncio.run(_serve(asked))
    except (ConfigError, app.StartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def set_up_logging(verbosity: int) -> None:
    """Log to standard error, as containers are expected to."""
    logging.basicConfig(
        level=logging.DEBUG if verbosity >= _DEBUG else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("asyncio").setLevel(logging.INFO)


async def told_to_stop() -> None:
    """Return at the first SIGTERM or SIGINT; a second one ends the process as it always would."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for each in _SIGNALS:
        loop.add_signal_handler(each, stop.set)
    try:
        await stop.wait()
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


def _end_at_once(_signal: int, _frame: types.FrameType | None) -> NoReturn:
    os._exit(1)


async def _serve(asked: settings.Settings) -> None:
    async with app.running(asked):
        await told_to_stop()
        for each in _SIGNALS:
            # Not by the event loop, which may be what is stuck.
            signal.signal(each, _end_at_once)
