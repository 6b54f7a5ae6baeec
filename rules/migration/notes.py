"""What a migration says about each key of a source; and the numbers of differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rules.document.yaml import Node
from rules.findings import Finding, Place, State
from rules.quoting import escaped, shorten

Verdict = Literal["same", "differs", "left out"]
Path = tuple[str | int, ...]
"""Keys and indices from the root of a document."""

_STATES: Mapping[Verdict, State] = {
    "same": State.OK,
    "differs": State.WARNING,
    "left out": State.SKIPPED,
}


@dataclass(frozen=True, slots=True)
class Line:
    """What the report says about one key."""

    verdict: Verdict
    path: Path
    message: str = ""
    is_default: bool = False
    """Whether it is about the default of a key that may be absent."""


def same(path: Path, message: str = "", *, default: str = "") -> Line:
    """Return a line about a key with the same effect; `default` also if the key is absent."""
    return Line("same", path, message or default, is_default=bool(default))


def differs(path: Path, message: str, *, is_default: bool = False) -> Line:
    """Return a line about a key with another effect."""
    return Line("differs", path, message, is_default=is_default)


def left_out(path: Path, message: str) -> Line:
    """Return a line about a key that is not in the output."""
    return Line("left out", path, message)


def note(verdict: Verdict, subject: str, message: str, *, file: str, line: int) -> Finding:
    """Return what becomes of the key `subject`; its reason is the verdict."""
    where = Place(file=file, line=line)
    return Finding(
        state=_STATES[verdict], reason=verdict, subject=subject, fact=message, where=where
    )


def render(found: Finding) -> str:
    """Return one line about a key, safe to print."""
    fact = f": {found.fact}" if found.fact else ""
    place = f"{found.where.file}:{found.where.line}"
    return escaped(f"{place}: {found.reason}: {shorten(found.subject)}{fact}")


class Notes:
    """Collector of the notes about one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.notes: list[Finding] = []

    def same(self, subject: str, node: Node, message: str = "") -> None:
        """Add a note about a key that has the same effect."""
        self.add("same", subject, node, message)

    def left_out(self, subject: str, node: Node, message: str) -> None:
        """Add a note about a key that is not in the output."""
        self.add("left out", subject, node, message)

    def either(self, subject: str, node: Node, message: str) -> None:
        """Add a note that the key differs, or is the same if there is no message."""
        self.add("differs" if message else "same", subject, node, message)

    def add(self, verdict: Verdict, subject: str, node: Node, message: str) -> None:
        """Add a note with this verdict."""
        self.notes.append(note(verdict, subject, message, file=self.file, line=node.line))


def number(difference: int) -> str:
    """Return the reference to a numbered difference."""
    return f"difference {difference} in docs/migration.md"
