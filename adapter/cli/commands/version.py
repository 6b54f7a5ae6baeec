"""`version`: prints the version of the program."""

from __future__ import annotations

from collections.abc import Sequence

from adapter import __version__, settings

COMMAND = settings.CommandSpec(name="version", help="Usage: gpu-metrics-adapter version")


def main(argv: Sequence[str]) -> int:
    """Return 0. Raises UsageError and HelpRequested."""
    COMMAND.parse(argv)
    print(f"gpu-metrics-adapter {__version__}")
    return 0
