"""`Finding`: what is right or wrong about one subject, and what to do about it.

Values only: fact and cure stay apart until a line, a document or a header is rendered.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How bad a finding is."""

    OK = "ok"
    SKIPPED = "skipped"
    PENDING = "pending"
    """Usual while everything starts, so that it is not worth a warning yet."""
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position in a file."""

    path: str = ""
    """Path in the document, such as `rules[3].name.matches`."""
    file: str = ""
    line: int = 0
    """Counted from 1; 0 if unknown."""
    column: int = 0
    """Counted from 1; 0 if unknown."""

    def __str__(self) -> str:
        """Return the place as sentences show it: `rules[3] (rules.yaml:12)`."""
        return f"{self.path} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found out about one subject."""

    state: State = State.FAILURE
    reason: str = ""
    """Stable, machine-readable kind."""
    subject: str = ""
    fact: str
    """What is so. Ages and counts in it change with time, unless it is `lasting`."""
    cause: str = ""
    """Why it is so, unless `fact` says it."""
    cure: str = ""
    """What to do."""
    where: Place | None = None
    lasting: bool = False
    """Whether the sentence has no age, count or time, and names no object but a requested one."""

    @property
    def sentence(self) -> str:
        """Return what is so, of what, and what to do."""
        about = f"{self.subject}: " if self.subject else ""
        return about + ". ".join(filter(None, (self.fact, self.cause, self.cure)))

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}" if self.reason else self.sentence


def ok(subject: str, fact: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(state=State.OK, subject=subject, fact=fact)


def skipped(subject: str, fact: str, cure: str = "") -> Finding:
    """Return that something could not be checked, and what would allow it."""
    return Finding(state=State.SKIPPED, subject=subject, fact=fact, cure=cure)


def warning(subject: str, fact: str, *, cause: str = "", cure: str) -> Finding:
    """Return a finding that does not prevent scaling, but should be corrected."""
    return Finding(state=State.WARNING, subject=subject, fact=fact, cause=cause, cure=cure)


def failure(subject: str, fact: str, *, cause: str = "", cure: str) -> Finding:
    """Return a finding that prevents scaling."""
    return Finding(state=State.FAILURE, subject=subject, fact=fact, cause=cause, cure=cure)


def passes(fact: str) -> Finding:
    """Return the finding of a health check that passes."""
    return Finding(state=State.OK, fact=fact)


def degraded(fact: str) -> Finding:
    """Return the finding of a health check: something does not work, but readiness must stay."""
    return Finding(state=State.WARNING, fact=fact)
