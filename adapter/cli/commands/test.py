"""`test`: runs unit tests of rules on a real Prometheus, one process for each test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adapter import settings

_HELP = """Usage: gpu-metrics-adapter test FILE...

Runs unit tests of rules: series in promtool's notation, requests, and the expected values. A real
Prometheus evaluates them: `$PROMETHEUS`, one in the PATH, or one that is downloaded. Exit code: 0
if all tests pass, 1 if not, 2 for an invalid command line."""

COMMAND = settings.CommandSpec(name="test", help=_HELP, arguments=("FILE...",))


def main(argv: Sequence[str]) -> int:
    """Return 0 if all tests pass, else 1. Raises UsageError and HelpRequested."""
    files = [Path(each) for each in COMMAND.parse(argv).positional]
    from adapter.cli.commands import rule_tests

    return rule_tests.run(files)
