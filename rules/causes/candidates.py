"""The rules and their series, and the metric names that a rule produces, or may produce.

Some rules fix the name in the file. Others derive it from the names of series. Before a relist
finds these, every name that the rule does not exclude counts as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules import patterns
from rules.errors import PatternError
from rules.kinds import Kinds
from rules.patterns import Expansion
from rules.query.catalog import Catalog, Listing, Series
from rules.ruleset import CompiledRule, RuleSet
from rules.syntax import Matcher

MAX_MEMORY = 1 << 20
"""Bytes of patterns that are compiled for a cause, in milliseconds; larger ones may match."""
_WHOLE_MATCH = Expansion(parts=((0,),))
"""`$0`: the metric is named like the series."""

SeriesByMetric = Mapping[int, Mapping[str, tuple[Series, ...]]]
"""`CompiledRule.index` -> metric -> its series."""


def fixed_name(rule: CompiledRule) -> str | None:
    """Return the metric name that the rules file fixes; None where it depends on series."""
    if rule.pinned_series is not None:
        return rule.metric(rule.pinned_series)
    parts = rule.namer.metric_name.parts
    literal = [part for part in parts if isinstance(part, str)]
    return "".join(literal) if len(literal) == len(parts) else None


def matches_name(rule: CompiledRule, metric: str, name: str | None) -> bool:
    """Return whether a request for `metric` matches `name`, which `rule` produces.

    External metrics are compared case-insensitively: an HPA requests them in lower case.
    """
    if name is None:
        return False
    return name == metric or (_ignores_case(rule) and name.lower() == metric.lower())


def must_produce(rule: CompiledRule, metric: str) -> bool:
    """Return whether `rule` names all its series `metric`."""
    return matches_name(rule, metric, fixed_name(rule))


def may_produce(rule: CompiledRule, metric: str) -> bool:
    """Return whether there may be a series that `rule` names `metric`."""
    if fixed_name(rule) is not None or rule.pinned_series is not None:
        return must_produce(rule, metric)
    expansion = rule.namer.metric_name
    if expansion == _WHOLE_MATCH and rule.namer.metric(metric) == metric:
        return _accepts(rule, metric) and _selects(rule, metric)
    first, last = expansion.parts[0], expansion.parts[-1]
    return (not isinstance(first, str) or matches_name(rule, metric[: len(first)], first)) and (
        not isinstance(last, str) or matches_name(rule, metric[-len(last) :], last)
    )


def series_by_metric(ruleset: RuleSet, listings: Mapping[int, Listing]) -> SeriesByMetric:
    """Return the metrics of every listing. As expensive as building a catalog."""
    return {
        rule.index: _metrics(rule, listings[rule.index].series)
        for rule in ruleset.all
        if rule.index in listings
    }


def _metrics(rule: CompiledRule, series: Iterable[Series]) -> dict[str, tuple[Series, ...]]:
    metrics: dict[str, list[Series]] = {}
    for each in series:
        if (metric := rule.metric(each.name)) is not None:
            metrics.setdefault(metric, []).append(each)
    return {metric: tuple(of_metric) for metric, of_metric in metrics.items()}


def _ignores_case(rule: CompiledRule) -> bool:
    return rule.section == "externalRules"


def _accepts(rule: CompiledRule, name: str) -> bool:
    """Return whether the filters accept this name, in any case for an external metric."""
    if not _ignores_case(rule):
        return rule.accepts(name)
    required = (each.pattern.text for each in rule.filters if not each.negated)
    budget = patterns.PatternBudget(MAX_MEMORY)
    try:
        return all(patterns.compile(f"(?i){text}", budget).search(name) for text in required)
    except PatternError:
        return True


def _selects(rule: CompiledRule, name: str) -> bool:
    """Return whether the selector may match this name."""
    matchers = (each for each in rule.matchers if each.label == "__name__")
    budget = patterns.PatternBudget(MAX_MEMORY)
    try:
        return all(_matches(rule, each, name, budget) for each in matchers)
    except PatternError:
        return True


def _matches(
    rule: CompiledRule, matcher: Matcher, name: str, budget: patterns.PatternBudget
) -> bool:
    if _ignores_case(rule) and matcher.operator in {"!=", "!~"}:
        return True  # the series may have another case than the excluded name
    if matcher.operator in {"=", "!="}:
        return matches_name(rule, name, matcher.value) == (matcher.operator == "=")
    return matches_pattern(matcher, name, budget, flag="(?i)" if _ignores_case(rule) else "")


def matches_pattern(
    matcher: Matcher, value: str, budget: patterns.PatternBudget, *, flag: str = ""
) -> bool:
    """Return whether a value meets a matcher by `=~` or `!~`. Raises PatternError."""
    match = patterns.compile(f"{flag}^(?s:{matcher.value})$", budget).search(value)
    return (match is not None) == (matcher.operator == "=~")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingStatus:
    """State of the relists of one rule."""

    listed: float | None
    """When the last successful relist started, in Unix seconds; None before the first."""
    failed: bool
    """Whether the last relist failed."""
    first_listed: float | None = None
    """When the first successful relist started; None if that does not matter."""
    failing_since: float | None = None
    """When the first of the failed relists since the last success started."""
    partial: bool = False
    """Whether the last successful relist may lack series."""
    refusal: str = ""
    """Why Prometheus, or a limit, refused the last relist if it failed for that; else empty."""


NEVER_LISTED = ListingStatus(listed=None, failed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that a diagnosis needs."""

    ruleset: RuleSet
    catalog: Catalog
    kinds: Kinds
    listings: Mapping[int, Listing]
    """`CompiledRule.index` -> last successful relist. Pinned listings are not included."""
    series_by_metric: SeriesByMetric
    """The metrics of `listings`; it may have those of further rules."""
    statuses: Mapping[int, ListingStatus]
    """`CompiledRule.index` -> state of its relists."""
    now: float
    """Unix seconds."""

    def status(self, rule: CompiledRule) -> ListingStatus:
        """Return the state of the relists of `rule`."""
        return self.statuses.get(rule.index, NEVER_LISTED)

    def series(self, rule: CompiledRule) -> tuple[Series, ...]:
        """Return the series of the last successful relist of `rule`; empty before the first."""
        listing = self.listings.get(rule.index)
        return listing.series if listing else ()

    def series_of(self, rule: CompiledRule, metric: str) -> tuple[Series, ...]:
        """Return those series of the last successful relist that `rule` names `metric`."""
        if rule.index not in self.listings:
            return ()
        return self.series_by_metric[rule.index].get(metric, ())
