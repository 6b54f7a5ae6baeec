"""`serve`: runs the server until SIGTERM or SIGINT.

The server's modules take seconds to import, so they are imported after the flags are parsed and
the port is bound.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from adapter import log_handler, settings
from adapter.cli.commands import SUMMARIES
from adapter.settings.settings import GROUPS

log = logging.getLogger(__name__)

COMMAND = settings.CommandSpec(
    name="serve",
    help=f"Usage: gpu-metrics-adapter [serve] [FLAGS]\n\n{settings.usage()}",
    groups=tuple(GROUPS.values()),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 after a signal, 1 if the server cannot start. Raises UsageError, HelpRequested."""
    # Process 1 of a container ignores SIGTERM until it has a handler. A pod that was deleted while
    # these modules were loaded ended when its grace period was over.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        parsed = settings.parse(argv, commands=SUMMARIES)
    except settings.HelpRequested:
        raise settings.HelpRequested(COMMAND.help) from None
    debug = parsed.logs.verbosity >= log_handler.DEBUG_VERBOSITY
    level = logging.DEBUG if debug else logging.INFO
    set_up_logging(level, json=parsed.logs.format == "json")
    return _run(parsed)


def set_up_logging(level: int, *, json: bool = False) -> None:
    """Log to standard error, as is usual in containers; at debug level without limiting repeats."""
    formatter = log_handler.JsonFormatter() if json else log_handler.TextFormatter()
    limited = level > logging.DEBUG
    handler = log_handler.LogHandler(sys.stderr, formatter=formatter, limited=limited)
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.INFO)
    sys.unraisablehook = log_unraisable


def log_unraisable(event: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python cannot raise: in one line, without a traceback.

    A client can cause it by sending a TLS server name that is not ASCII.
    """
    name = type(event.exc_value).__name__
    log.warning("%s: %r: %s: %s", event.err_msg or "ignored", event.object, name, event.exc_value)


def _run(parsed: settings.Settings) -> int:
    from adapter import errors
    from adapter.server.app import binding

    try:
        if parsed.serving.permit_port_sharing:
            # The kernel gives each process a part of the connections, and another one serves now.
            return _serve(parsed, None)
        with binding.bind(parsed.serving) as bound:
            return _serve(parsed, bound)
    except errors.StartError as error:
        print(error, file=sys.stderr)
        return 1


def _serve(parsed: settings.Settings, bound: socket.socket | None) -> int:
    import uvloop

    from adapter.cli.commands import shutdown
    from adapter.server.app import reload, server
    from rules.errors import ConfigError

    # With 5 ms, the event loop waits so long for the interpreter lock at each read and write of a
    # connection while a thread encodes an answer: with 64 busy clients for a second.
    sys.setswitchinterval(0.0005)
    reload.ignore_signal()  # until it is handled

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stop = stack.enter_context(shutdown.stopping())
            if await shutdown.run_until(
                stop, stack.enter_async_context(server.running(parsed, bound))
            ):
                await stop.wait()

    try:
        loop_factory = uvloop.new_event_loop if parsed.serving.event_loop == "uvloop" else None
        shutdown.run(serve(), loop_factory=loop_factory)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
