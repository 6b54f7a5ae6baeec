"""Command line: `gpu-metrics-adapter [COMMAND] [FLAGS]`.

The default command is `serve`, so that a Deployment can keep the arguments of the original.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from adapter.cli import commands

_CLOSED_PIPE, _INTERRUPTED = 141, 130
"""Exit codes that shells report for a program that SIGPIPE or SIGINT ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, by default sys.argv, and return its exit code."""
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name == "--version":
        name = "version"
    if name in {"-h", "--help", "help"}:
        print(_help())
        return 0
    if name in commands.SUMMARIES:
        return commands.run(name, arguments[1:])
    # The original's chart passes the path of the program, /adapter, as the first argument.
    if name and not name.startswith("-") and not name.endswith("/adapter"):
        import difflib  # noqa: PLC0415 - only for a mistake

        near = difflib.get_close_matches(name, commands.SUMMARIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        see = "`gpu-metrics-adapter --help` lists the commands"
        print(f"{name}: unknown command{hint}\n{see}", file=sys.stderr)
        return 2
    return commands.run("serve", arguments)


def _help() -> str:
    summaries = "\n".join(f"  {name:<11} {summary}" for name, summary in commands.SUMMARIES.items())
    return (
        "Usage: gpu-metrics-adapter [COMMAND] [FLAGS]\n\n"
        f"Commands, each with its own --help:\n{summaries}\n\n"
        "Without COMMAND, the flags are those of serve."
    )
