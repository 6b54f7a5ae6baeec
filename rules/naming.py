"""Compiles `seriesFilters` and `name`: which series a rule takes, and its metrics' names.

`rules.mapping` determines the resources of a metric.
"""

from __future__ import annotations

from dataclasses import dataclass

from rules import patterns
from rules.document import config
from rules.errors import PatternError

MAX_NAME = 8 << 10
"""Characters of the name of a metric. Proxies refuse longer request lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namer:
    """`name`, compiled."""

    matches: patterns.Pattern
    metric_name: patterns.Expansion
    limit: int
    """Characters of the longest name of a metric."""

    def metric(self, series: str) -> str | None:
        """Return the metric's name for a series' name.

        Returns None if `matches` does not match it, or if the metric's name is too long.
        """
        match = self.matches.search(series)
        return self.metric_name.of(match, self.limit) if match else None

    def size(self, series: str) -> int:
        """Return the number of characters of the metric's name, also if it is too long."""
        match = self.matches.search(series)
        return self.metric_name.size(match) if match else 0


def compile(  # noqa: A001 (naming.compile reads as re.compile does)
    matches: str, as_: str, budget: patterns.PatternBudget | None = None, *, limit: int = MAX_NAME
) -> Namer:
    """Compile `name.matches` and `name.as`; either may be empty.

    An empty `matches` matches every name. An empty `as` stands for `$1` if the pattern has a group
    and for `$0` if it has none. Raises PatternError if the pattern is invalid, or if it has several
    groups and `as` is empty.
    """
    compiled = patterns.compile(matches or ".*", budget)
    if not as_ and len(compiled.names) > 1:
        raise PatternError(
            f"the regular expression {matches!r} has {len(compiled.names)} groups: set name.as, "
            'such as "${1}_${2}"'
        )
    default = "$1" if compiled.names else "$0"
    metric_name = patterns.expansion(as_ or default, compiled)
    return Namer(matches=compiled, metric_name=metric_name, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One entry of `seriesFilters`, compiled."""

    pattern: patterns.Pattern
    negated: bool
    """Whether the entry is `isNot`, which accepts names that do not match."""

    def accepts(self, series: str) -> bool:
        """Return whether a series' name passes the filter."""
        return (self.pattern.search(series) is None) == self.negated


def compile_filter(
    entry: config.SeriesFilter, budget: patterns.PatternBudget | None = None
) -> Filter:
    """Compile an entry of `seriesFilters`.

    Raises PatternError if the pattern is invalid, or if the entry has not exactly one of `is` and
    `isNot`.
    """
    if entry.is_ and entry.is_not:
        raise PatternError("has both is and isNot: remove one")
    if not entry.is_ and not entry.is_not:
        raise PatternError("has neither is nor isNot: add one")
    return Filter(
        pattern=patterns.compile(entry.is_ or entry.is_not, budget), negated=bool(entry.is_not)
    )
