"""From the names of series to the names of metrics: `seriesFilters` and `name`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rules import patterns
from rules.document import config
from rules.errors import PatternError

pattern = patterns.compile


@dataclass(frozen=True, slots=True, kw_only=True)
class Namer:
    """`name`: which series names a rule takes, and what it calls the metrics it makes of them."""

    matches: patterns.Pattern
    metric_name: patterns.Expansion

    def metric(self, series: str) -> str | None:
        """The metric's name; None where `matches` does not take the series."""
        match = self.matches.search(series)
        return self.metric_name.of(match) if match else None


def compile(matches: str, as_: str) -> Namer:  # noqa: A001 (naming.compile reads as re.compile does)
    """Compile `name.matches` and `name.as`; either may be empty.

    Without `matches` every name is taken. Without `as` the metric is called what the pattern's
    only group matched, or, in a pattern without groups, what the whole of it did. Raises
    PatternError for a pattern that does not compile, and for several groups with no `as`.
    """
    compiled = patterns.compile(matches or ".*")
    if not as_ and len(compiled.names) > 1:
        raise PatternError(
            f"the regular expression {matches!r} has {len(compiled.names)} groups, so `as` must say"
            " how they make the metric's name"
        )
    default = "$1" if compiled.names else "$0"
    return Namer(matches=compiled, metric_name=patterns.expansion(as_ or default, compiled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """`seriesFilters`: what a series' name must and must not match."""

    required: tuple[patterns.Pattern, ...]
    refused: tuple[patterns.Pattern, ...]

    @classmethod
    def of(cls, series_filters: Iterable[config.SeriesFilter]) -> Filters:
        """Compile the entries, each of which has exactly one of `is` and `isNot`.

        Raises PatternError for the first that does not, or that does not compile.
        """
        entries = tuple(series_filters)
        for entry in entries:
            if bool(entry.is_) == bool(entry.is_not):
                raise PatternError(
                    "an entry of seriesFilters must have exactly one of `is` and `isNot`, but has "
                    + (f"both: {entry.is_!r} and {entry.is_not!r}" if entry.is_ else "neither")
                )
        return cls(
            required=tuple(patterns.compile(entry.is_) for entry in entries if entry.is_),
            refused=tuple(patterns.compile(entry.is_not) for entry in entries if entry.is_not),
        )

    def accept(self, name: str) -> bool:
        """Whether every entry agrees with the series' name."""
        return all(entry.search(name) for entry in self.required) and not any(
            entry.search(name) for entry in self.refused
        )
