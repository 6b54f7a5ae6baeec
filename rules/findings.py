"""`Finding`: what is right or wrong about one subject, and what to do about it.

Values only: fact and cure stay apart until a line, a document or a header is rendered.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass, replace
from typing import Any

from rules.quoting import escaped, shorten, shorten_middle

_MAX_FACT = 2048
_LEAST_FACT = 80


class State(enum.StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
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


NOWHERE = Place()


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
    """Why it is so, unless `fact` says it. In lower case it continues the sentence before it."""
    cure: str = ""
    """What to do; as `cause`."""
    where: Place = NOWHERE
    lasting: bool = False
    """Whether the sentence has no age, count or time, and names no object but a requested one."""
    summary: str = ""
    """A sentence that is `lasting`, if the finding is not and its reason alone says less."""

    @property
    def sentence(self) -> str:
        """Return what is so, of what, and what to do."""
        text = f"{self.subject}: {self.fact}" if self.subject else self.fact
        for part in filter(None, (self.cause, self.cure)):
            end = ": " if part[0].islower() else " " if text.endswith("?") else ". "
            text += f"{end}{part}"
        return text

    def within(self, limit: int) -> str:
        """Return the text of about `limit` characters: the fact is cut, never cause and cure."""
        text = str(self)
        if len(text) <= limit:
            return text
        kept = max(_LEAST_FACT, len(self.fact) - (len(text) - limit) - 1)
        return str(replace(self, fact=shorten(self.fact, kept)))

    def __str__(self) -> str:
        """Return the reason and the sentence; without a reason, a line about a file."""
        if self.reason:
            return f"{self.reason}: {self.sentence}"
        return _line(self, "error" if self.state is State.FAILURE else str(self.state))


def document(finding: Finding) -> dict[str, Any]:
    """Return a finding as a document of JSON types, which always has the same keys."""
    return {
        "state": str(finding.state),
        "reason": finding.reason,
        "subject": finding.subject,
        "fact": finding.fact,
        "cause": finding.cause,
        "cure": finding.cure,
        "where": dataclasses.asdict(finding.where),
    }


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


def in_file(
    state: State, fact: str, *, path: str = "", file: str = "", line: int = 0, column: int = 0
) -> Finding:
    """Return a finding about a file; a fact that repeats a long text of the file is shortened."""
    where = Place(path=path, file=file, line=line, column=column)
    return Finding(state=state, fact=shorten_middle(fact, _MAX_FACT), where=where)


def for_log(finding: Finding) -> str:
    """Return a finding as the log shows it, which has the level of warnings itself."""
    if finding.reason or finding.state is not State.WARNING:
        return str(finding)
    return _line(finding, "")


def _line(finding: Finding, severity: str) -> str:
    """Return one line about a file, and indented ones if the fact has several; safe to print."""
    where = finding.where
    position = ":".join(str(part) for part in (where.file, where.line, where.column) if part)
    fact = re.sub(r"\n(?! )", "\n  ", escaped(finding.fact, keep="\n"))
    place = ": ".join(filter(None, (position, severity, shorten(where.path))))
    return f"{escaped(place)}: {fact}"


def passes(fact: str) -> Finding:
    """Return the finding of a health check that passes."""
    return Finding(state=State.OK, fact=fact)


def degraded(fact: str) -> Finding:
    """Return the finding of a health check: something does not work, but readiness must stay."""
    return Finding(state=State.WARNING, fact=fact)
