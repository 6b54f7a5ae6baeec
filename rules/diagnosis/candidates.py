"""Which names a rule gives to metrics: those that its file tells, and those that series may bring.

Some rules say the name; others make it of the names of series, which nobody knows before they are
there. What cannot be excluded counts as possible.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from rules import patterns, promql
from rules.errors import PatternError, PlanError
from rules.patterns import Expansion
from rules.query.catalog import Listing, Series
from rules.ruleset import CompiledRule, RuleSet

_WHOLE = Expansion(parts=((0,),))
"""A name that is the match itself."""


MetricsBySeries = Mapping[int, Mapping[str, tuple[Series, ...]]]
"""`CompiledRule.index` -> metric -> the series of which the rule makes it."""


def name_of(rule: CompiledRule, series: str) -> str | None:
    """What `rule` calls the metric that it makes of a series; None if it does not take it."""
    return rule.namer.metric(series) if rule.filters.accept(series) else None


def pinned_series(rule: CompiledRule) -> str | None:
    """The one series name that the rule's selector asks for; None if there is not one."""
    return _pinned(rule.config.series_query)


def fixed_name(rule: CompiledRule) -> str | None:
    """The one name that `rule` can give, if its file alone tells; None where series decide."""
    pinned = pinned_series(rule)
    if pinned is not None:
        return name_of(rule, pinned)
    parts = rule.namer.metric_name.parts
    literal = [part for part in parts if isinstance(part, str)]
    return "".join(literal) if len(literal) == len(parts) else None


def matches_name(rule: CompiledRule, metric: str, name: str | None) -> bool:
    """Whether who asks for `metric` gets what `rule` calls `name`.

    The case of an external metric tells nothing: autoscalers ask for it in lower case.
    """
    if name is None:
        return False
    return name == metric or (_folds(rule) and name.lower() == metric.lower())


def may_produce(rule: CompiledRule, metric: str) -> bool:
    """Whether series may exist of which `rule` makes what is meant by this name."""
    fixed = fixed_name(rule)
    if fixed is not None or pinned_series(rule) is not None:
        return matches_name(rule, metric, fixed)
    expansion = rule.namer.metric_name
    if expansion == _WHOLE and rule.namer.metric(metric) == metric:
        return _accepts(rule, metric) and _selects(rule, metric)
    first, last = expansion.parts[0], expansion.parts[-1]
    return (not isinstance(first, str) or matches_name(rule, metric[: len(first)], first)) and (
        not isinstance(last, str) or matches_name(rule, metric[-len(last) :], last)
    )


def made(ruleset: RuleSet, listings: Mapping[int, Listing]) -> MetricsBySeries:
    """What each rule makes of all that was found of it; costs as much as a catalog does."""
    return {
        rule.index: _made(rule, listings[rule.index].series)
        for rule in (*ruleset.rules, *ruleset.external)
        if rule.index in listings
    }


def _made(rule: CompiledRule, series: Iterable[Series]) -> dict[str, tuple[Series, ...]]:
    found: dict[str, list[Series]] = {}
    for each in series:
        if (metric := name_of(rule, each.name)) is not None:
            found.setdefault(metric, []).append(each)
    return {metric: tuple(of) for metric, of in found.items()}


_PARSED = 4096
"""Selectors of which the outcome is kept: each 404 asks for those of all rules."""
_pinned = functools.lru_cache(_PARSED)(promql.pinned_name)


@functools.lru_cache(_PARSED)
def _of_name(selector: str) -> tuple[promql.Matcher, ...]:
    """What a selector asks of names; nothing where that cannot be told."""
    try:
        matchers = promql.selector(selector).matchers
    except PlanError:
        return ()
    return tuple(each for each in matchers if each.label == "__name__")


def _folds(rule: CompiledRule) -> bool:
    return rule.section == "externalRules"


def _accepts(rule: CompiledRule, name: str) -> bool:
    """Whether the filters accept this name; True where another spelling could be accepted."""
    if not _folds(rule):
        return rule.filters.accept(name)
    required = (patterns.compile(f"(?i){each.text}") for each in rule.filters.required)
    return all(each.search(name) for each in required)


def _selects(rule: CompiledRule, name: str) -> bool:
    """Whether the rule's selector allows this name; True where that cannot be told."""
    try:
        return all(_holds(rule, each, name) for each in _of_name(rule.config.series_query))
    except PatternError:
        return True


def _holds(rule: CompiledRule, matcher: promql.Matcher, name: str) -> bool:
    if _folds(rule) and matcher.operator in {"!=", "!~"}:
        return True  # what it excludes may be spelled otherwise
    if matcher.operator in {"=", "!="}:
        return matches_name(rule, name, matcher.value) == (matcher.operator == "=")
    flag = "(?i)" if _folds(rule) else ""
    found = patterns.compile(f"{flag}^(?s:{matcher.value})$").search(name)
    return (found is not None) == (matcher.operator == "=~")
