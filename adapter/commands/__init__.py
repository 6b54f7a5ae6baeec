"""What the program can do: one module of the same shape a command, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from adapter.commands import certs, check, demo, presets, serve


class Command(Protocol):
    """Knows how to do one thing that the program is started for."""

    NAME: str
    SUMMARY: str

    def main(self, argv: Sequence[str]) -> int:
        """Do it with the arguments after the command's name; gives the exit code."""
        ...


COMMANDS: Mapping[str, Command] = {
    command.NAME: command for command in (serve, demo, check, presets, certs)
}
