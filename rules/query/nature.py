"""What a metric is by its name or its query: a percentile, a mean, a ratio or a percentage.

Values of these must not be added up, as the HPA controller does with those of an external metric.
`doubt_of_sum` says so.
"""

from __future__ import annotations

import re

from rules import promql, syntax
from rules.findings import Finding, warning

PERCENT = re.compile(
    r".*(duty_cycle|_utilization|(?<!requests)_active)(_average)?_(current|over_time)"
    r"|.*_percent(age)?(_.*)?"
)
"""Names of percentages. Other names with `utilization` may be those of a share of 1."""
SHARE = re.compile(r"(\w+[:_])?(gpu|kv|cpu)_cache_usage_perc|(\w+[:_])?token_usage|.*_ratio")
"""Names of shares of 1. Model servers report them, some as `perc`."""
_PART = re.compile(r".*_(pct|perc)([_:].*)?")
"""Names of percentages or shares: which of them, the name leaves open."""
_PERCENTILE = re.compile(r"(.*[_:])?(p[0-9]{2,3}|quantile|percentile|median)([_:].*)?")
_AVERAGE = re.compile(r"(.*[_:])?(average|avg|mean)([_:].*)?")
_TIME = r"us|microseconds|ms|milliseconds|seconds"
_UNIT = re.compile(rf".*_(?P<unit>{_TIME}|bytes|tokens|joules)(_sum|_total)?|.*_sum")
"""Names of series that add up something other than events."""
_SHOWN_UNITS = {
    "bytes": "B",
    "celsius": "°C",
    "milliseconds": "ms",
    "milliwatts": "mW",
    "seconds": "s",
    "watts": "W",
}
_SHOWN_UNIT = re.compile(rf".*_(?P<unit>{'|'.join(_SHOWN_UNITS)})(_current|_over_time)?")
_DERIVED = frozenset(("delta", "deriv", "idelta", "increase", "irate", "rate"))
"""Functions whose value is a change of their argument."""
_QUANTILES = frozenset(("histogram_quantile", "quantile_over_time"))
_CLAMPS = ("clamp", "clamp_max", "clamp_min")
_ROUNDS = ("abs", "ceil", "floor", "round")
_LABELS = ("label_join", "label_replace", "sort", "sort_desc")
_OVER_TIME = ("avg_over_time", "last_over_time", "max_over_time", "min_over_time")
_OTHERS = ("scalar", "vector")
_SAME_KIND = frozenset((*_CLAMPS, *_ROUNDS, *_LABELS, *_OVER_TIME, *_OTHERS))
"""Functions whose value is of the kind of their first argument."""
_CHOOSING = frozenset(("bottomk", "max", "min", "topk"))
"""Aggregations of which that is true."""


def doubt_of_sum(name: str, query: str = "") -> Finding | None:
    """Return why the values of a metric must not be added up; None if they may be.

    Without a `query`, only the name decides.
    """
    by, kind = "name", of_name(name)
    if not kind and query:
        by, kind = "query", of_query(query)
    if not kind:
        return None
    cure = "Select one item by `metric.selector`, or aggregate to one in metricsQuery"
    fact = f"by its {by} a {kind}, and a sum of {kind}s is not a {kind}"
    return warning("", fact, cure=cure)


def of_name(name: str) -> str:
    """Return what a metric is by its name; empty if its values may be added up."""
    if _PERCENTILE.fullmatch(name):
        return "percentile"
    if _AVERAGE.fullmatch(name):
        return "mean"
    if SHARE.fullmatch(name):
        return "ratio"
    return "percentage" if PERCENT.fullmatch(name) or _PART.fullmatch(name) else ""


def unit(name: str) -> str:
    """Return the unit that the values of a metric have by its name; empty if it names none."""
    if PERCENT.fullmatch(name):
        return "%"
    found = _SHOWN_UNIT.fullmatch(name)
    return _SHOWN_UNITS[found["unit"]] if found else ""


def of_query(query: str) -> str:
    """Return what a query computes; empty if its values may be added up, or that is unknown."""
    tree = promql.tree(query)
    return of_tree(tree) if tree else ""


def of_tree(tree: syntax.Expression) -> str:
    """Return what a query computes, as `of_query`."""
    node: syntax.Expression | None = tree
    while node is not None:
        match node:
            case syntax.Call() if node.function in _QUANTILES:
                return "percentile"
            case syntax.Aggregation() if node.operator in {"avg", "quantile"}:
                return "mean" if node.operator == "avg" else "percentile"
            case syntax.Binary(operator="/") if not _has_number(node):
                return "mean" if _is_mean(node) else "ratio"
        node = _same_kind(node)
    return ""


def _same_kind(node: syntax.Expression) -> syntax.Expression | None:
    """Return the part of an expression whose value is of the same kind; None if there is none."""
    match node:
        case syntax.Parentheses() | syntax.Unary() | syntax.Subquery():
            return node.expression
        case syntax.Call() if node.function in _SAME_KIND and node.arguments:
            return node.arguments[0]
        case syntax.Aggregation() if node.operator in _CHOOSING:
            return node.expression
        case syntax.Binary():
            return node.right if isinstance(syntax.bare(node.left), syntax.Number) else node.left
        case _:
            return None


def _is_mean(node: syntax.Binary) -> bool:
    """Return whether an amount is divided by a number of events, as seconds by requests."""
    amounts, events = map(_summed, (node.left, node.right))
    return amounts[0] == events[0] and bool(amounts[1] - {""}) and events[1] == {""}


def _summed(side: syntax.Expression) -> tuple[bool, frozenset[str]]:
    """Return whether a side of a division is a change of series, and the units of these."""
    every = list(syntax.walk(side))
    names = (each.name for each in every if isinstance(each, syntax.VectorSelector))
    units = (_UNIT.fullmatch(name) for name in names)
    changes = any(isinstance(each, syntax.Call) and each.function in _DERIVED for each in every)
    return changes, frozenset((each["unit"] or "sum") if each else "" for each in units)


def _has_number(node: syntax.Binary) -> bool:
    return any(isinstance(syntax.bare(each), syntax.Number) for each in (node.left, node.right))
