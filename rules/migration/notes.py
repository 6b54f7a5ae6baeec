"""`Note`: what a migration says about one key of a source; and the numbers of differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rules.document.yaml import Node
from rules.quoting import escaped, shorten

Verdict = Literal["same", "differs", "left out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What becomes of one key."""

    verdict: Verdict
    subject: str
    """Path of the key."""
    message: str
    file: str
    line: int

    def __str__(self) -> str:
        """Return one line, safe to print."""
        message = f": {self.message}" if self.message else ""
        return escaped(f"{self.file}:{self.line}: {self.verdict}: {shorten(self.subject)}{message}")


class Notes:
    """Collector of the notes about one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.notes: list[Note] = []

    def same(self, subject: str, node: Node, message: str = "") -> None:
        """Add a note about a key that has the same effect."""
        self.add("same", subject, node, message)

    def differs(self, subject: str, node: Node, message: str) -> None:
        """Add a note about a key that has another effect."""
        self.add("differs", subject, node, message)

    def left_out(self, subject: str, node: Node, message: str) -> None:
        """Add a note about a key that is not in the output."""
        self.add("left out", subject, node, message)

    def either(self, subject: str, node: Node, message: str) -> None:
        """Add a note that the key differs, or is the same if there is no message."""
        self.add("differs" if message else "same", subject, node, message)

    def add(self, verdict: Verdict, subject: str, node: Node, message: str) -> None:
        """Add a note with this verdict."""
        self.notes.append(
            Note(verdict=verdict, subject=subject, message=message, file=self.file, line=node.line)
        )


def number(difference: int) -> str:
    """Return the reference to a numbered difference."""
    return f"difference {difference} in docs/migration.md"
