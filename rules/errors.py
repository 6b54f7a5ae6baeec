"""Everything that can be wrong with rules, as exceptions and as data.

    RulesError
    ├── ConfigError           a rules file that cannot be used; carries every Problem, not the first
    ├── TemplateError         Go template source
    │   ├── TemplateSyntaxError   does not parse: line, column and a caret under the place
    │   └── TemplateExecError     parses, and does not render
    ├── PatternError          a regular expression or an expansion that RE2 or Go would refuse
    ├── SelectorError         label or field selector text
    ├── QuantityError         quantity text
    ├── DurationError         duration text
    ├── UnknownResourceError  a resource that the cluster does not know
    ├── MappingError          a label template that cannot stand for resources
    ├── PlanError             a request that no query can be made of
    └── AmbiguousSampleError  several samples for one object, which the rule calls an error

A `Problem` says where: file, line, column and the path in the document (`rules[3].name`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, or will surprise, in a rules file."""

    severity: Severity
    message: str
    """What is wrong, what follows from it, and what to do."""
    path: str = ""
    """Where in the document: `rules[3].name.matches`."""
    file: str = ""
    line: int = 0
    """Counted from 1; 0 when unknown."""
    column: int = 0
    """Counted from 1; 0 when unknown."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.severity, self.path, self.message) if part)


class RulesError(Exception):
    """The rules, or a request put to them, cannot be used."""


class ConfigError(RulesError):
    """A rules file that cannot be used; `problems` holds everything that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class TemplateError(RulesError):
    """A Go template that cannot be used."""


class TemplateSyntaxError(TemplateError):
    """A template that does not parse. `str()` is the message, the source line and a caret."""

    def __init__(self, message: str, *, source: str, offset: int) -> None:
        self.message = message
        self.source = source
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
    """A template that parses and does not render with the data given."""


class PatternError(RulesError):
    """A regular expression, or an expansion, that RE2 or Go would refuse."""


class SelectorError(RulesError):
    """A label or field selector that does not parse, or that cannot be expressed."""


class QuantityError(RulesError):
    """Text that is no Kubernetes quantity."""


class DurationError(RulesError):
    """Text that is no duration."""


class UnknownResourceError(RulesError):
    """A resource that the cluster's API discovery does not know."""


class MappingError(RulesError):
    """A label template that cannot stand for resources."""


class PlanError(RulesError):
    """A request that no query can be made of."""


class AmbiguousSampleError(RulesError):
    """Several samples for one object, where the rule says `aggregate: error`."""
