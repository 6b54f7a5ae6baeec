"""Exceptions of the rule language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rules.findings import Finding, State, in_file
from rules.quoting import shorten

MAX_PROBLEMS = 20
"""Problems of one file that an error lists."""
_MAX_TEXT = 8192
"""Characters of the text of a ConfigError; its `problems` have the rest."""
_MAX_LINE = 160
"""Characters of a line of a template that a message repeats."""


class RulesError(Exception):
    """Base class: rules, or a request for a metric, that cannot be used."""


class ConfigError(RulesError):
    """Rules files with errors; `problems` has the errors and warnings, 20 of each file."""

    def __init__(self, problems: Sequence[Finding]) -> None:
        self.problems = tuple(_some(problems))
        super().__init__(shorten("\n".join(map(str, self.problems)), _MAX_TEXT))


def _some(problems: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the problems, of each file at most MAX_PROBLEMS and how many more it has.

    Errors come before warnings if not all are listed.
    """
    by_file: dict[str, list[Finding]] = {}
    for each in problems:
        by_file.setdefault(each.where.file, []).append(each)
    for file, those in by_file.items():
        errors_first = sorted(
            range(len(those)), key=lambda at: those[at].state is not State.FAILURE
        )
        for at in sorted(errors_first[:MAX_PROBLEMS]):
            yield those[at]
        if (left := len(those) - MAX_PROBLEMS) > 0:
            yield in_file(State.FAILURE, f"and {left} more problems", file=file)


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
        start = max(self.column - _MAX_LINE // 2, 0)
        text = text[start : start + _MAX_LINE]
        caret = " " * (self.column - 1 - start) + "^"
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


class TooComplexError(PlanError):
    """PromQL that is too large or nested too deeply to be analysed; Prometheus may accept it."""


class AmbiguousSampleError(RulesError):
    """Several samples for one object where the rule has `aggregate: error`."""


class UnreadableError(RulesError):
    """Something that is needed and cannot be read; the message says why, and often what to do."""

    def __init__(self, message: str, *, status: int = 0, cure: str = "") -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the reply; 0 without one."""
        self.cure = cure
        """What to do about it, if that is known."""
