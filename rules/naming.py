"""Compiles `seriesFilters` and `name`: which series a rule takes, and its metrics' names.

Which resources a metric belongs to is up to `rules.mapping`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rules import patterns
from rules.document import config
from rules.errors import PatternError


@dataclass(frozen=True, slots=True, kw_only=True)
class Namer:
    """`name`, compiled."""

    matches: patterns.Pattern
    metric_name: patterns.Expansion

    def metric(self, series: str) -> str | None:
        """Return the metric's name for a series' name; None if `matches` does not match it."""
        match = self.matches.search(series)
        return self.metric_name.of(match) if match else None


def compile(matches: str, as_: str) -> Namer:  # noqa: A001 (naming.compile reads as re.compile does)
    """Compile `name.matches` and `name.as`; either may be empty.

    An empty `matches` matches every name. An empty `as` stands for `$1` if the pattern has a group
    and for `$0` if it has none. Raises PatternError if the pattern is invalid, or if it has several
    groups and `as` is empty.
    """
    compiled = patterns.compile(matches or ".*")
    if not as_ and len(compiled.names) > 1:
        raise PatternError(
            f"the regular expression {matches!r} has {len(compiled.names)} groups: set name.as, "
            'such as "${1}_${2}"'
        )
    default = "$1" if compiled.names else "$0"
    return Namer(matches=compiled, metric_name=patterns.expansion(as_ or default, compiled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """`seriesFilters`, compiled."""

    required: tuple[patterns.Pattern, ...]
    """Every one must match."""
    refused: tuple[patterns.Pattern, ...]
    """None may match."""

    @classmethod
    def of(cls, series_filters: Iterable[config.SeriesFilter]) -> Filters:
        """Compile the entries.

        Raises PatternError if a pattern is invalid, or if an entry has not exactly one of `is` and
        `isNot`.
        """
        entries = tuple(series_filters)
        for entry in entries:
            if entry.is_ and entry.is_not:
                raise PatternError("has both is and isNot: remove one")
            if not entry.is_ and not entry.is_not:
                raise PatternError("has neither is nor isNot: add one")
        return cls(
            required=tuple(patterns.compile(entry.is_) for entry in entries if entry.is_),
            refused=tuple(patterns.compile(entry.is_not) for entry in entries if entry.is_not),
        )

    def accept(self, name: str) -> bool:
        """Return whether a series' name passes every filter."""
        return all(entry.search(name) for entry in self.required) and not any(
            entry.search(name) for entry in self.refused
        )
