"""Exceptions of the rule language, and `Problem`: one finding in a rules file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rules.quoting import escaped, shorten

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error, a warning or a note about a rules file."""

    severity: Severity
    message: str
    """What is wrong and what to do about it."""
    path: str = ""
    """Path in the document, such as `rules[3].name.matches`."""
    file: str = ""
    line: int = 0
    """Counted from 1; 0 if unknown."""
    column: int = 0
    """Counted from 1; 0 if unknown."""

    def __str__(self) -> str:
        """Return one line, and indented lines if the message has several; safe to print."""
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        parts = (position, self.severity, shorten(self.path))
        message = re.sub(r"\n(?! )", "\n  ", escaped(self.message, keep="\n"))
        return f"{escaped(': '.join(filter(None, parts)))}: {message}"


class RulesError(Exception):
    """Base class: rules, or a request for a metric, that cannot be used."""


class ConfigError(RulesError):
    """Rules files with errors; `problems` has all errors and warnings."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class TemplateError(RulesError):
    """A Go template that cannot be used."""


class TemplateSyntaxError(TemplateError):
    """A Go template that does not parse. `str()` shows the source line with a caret below it."""

    def __init__(self, message: str, *, source: str, offset: int) -> None:
        self.message = message
        self.offset = offset
        before = source[:offset]
        self.line = before.count("\n") + 1
        """Counted from 1."""
        self.column = offset - (before.rfind("\n") + 1) + 1
        """In characters, counted from 1."""
        text = source.split("\n")[self.line - 1]
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"{self.line}:{self.column}: {message}\n  {text}\n  {caret}")


class TemplateExecError(TemplateError):
    """A Go template that parses, but fails to render with the given data."""


class PatternError(RulesError):
    """A regular expression that RE2 or Go rejects, or a filter or name that does not fit it."""


class SelectorError(RulesError):
    """A label or field selector that does not parse, or that PromQL cannot express."""


class QuantityError(RulesError):
    """A number that a Kubernetes quantity cannot hold."""


class DurationError(RulesError):
    """Text that is not a duration."""


class UnknownResourceError(RulesError):
    """A resource that the cluster does not serve."""


class MappingError(RulesError):
    """A label template by which no label names a resource."""


class PlanError(RulesError):
    """A query that cannot be built, or PromQL that does not parse."""


class AmbiguousSampleError(RulesError):
    """Several samples for one object where the rule has `aggregate: error`."""


class UnreadableError(RulesError):
    """An object that the HPA controller needs, and that cannot be read."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the reply; 0 without one."""
