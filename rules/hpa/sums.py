"""Sums of the items of an external metric: what the HPA controller makes of them without a word."""

from __future__ import annotations

import re

from rules import promql, quantity
from rules.errors import PlanError
from rules.hpa import units
from rules.hpa.proposal import Proposal, total
from rules.quoting import counted
from rules.syntax import (
    Aggregation,
    Binary,
    Call,
    Expression,
    Number,
    Parentheses,
    Subquery,
    Unary,
    bare,
)

_PERCENTILE = re.compile(r"(.*[_:])?(p[0-9]{2,3}|quantile|percentile|median)([_:].*)?")
_AVERAGE = re.compile(r"(.*[_:])?(average|avg|mean)([_:].*)?")
_QUANTILES = frozenset(("histogram_quantile", "quantile_over_time"))
_CLAMPS = ("clamp", "clamp_max", "clamp_min")
_ROUNDS = ("abs", "ceil", "floor", "round")
_LABELS = ("label_join", "label_replace", "sort", "sort_desc")
_SAME_KIND = frozenset((*_CLAMPS, *_ROUNDS, *_LABELS, "max_over_time", "min_over_time"))
"""Functions whose value is of the kind of their first argument."""
_CHOOSING = frozenset(("bottomk", "max", "min", "topk"))
"""Aggregations of which that is true."""


def doubt(proposed: Proposal) -> str:
    """Return why the sum of an external metric is not what its author wants; else empty.

    The end says what to do.
    """
    metric, items = proposed.metric, proposed.items
    if items and min(items) < 0 and metric.target == "AverageValue":
        lowest = quantity.decimal(min(items))
        what = f"is {lowest}" if len(items) == 1 else f"has an item of {lowest}"
        return (
            f"{metric.name} {what}: while the items are added up, Kubernetes 1.34 and later take a "
            "sum below 0 for an overflow and scale to maxReplicas. Write clamp_min(..., 0) in "
            "metricsQuery"
        )
    if len(items) < 2:
        return ""
    by, kind = "name", _kind_of_name(metric.name)
    if not kind and proposed.query:
        by, kind = "query", _kind_of_query(proposed.query)
    if not kind:
        return ""
    return (
        f"{metric.name} is {quantity.decimal(total(metric, items))} as the sum of "
        f"{counted(len(items), 'item')}, but by its {by} a {kind}, which no sum is. "
        "Select one item by `metric.selector`, or aggregate to one in metricsQuery"
    )


def needs_query(proposed: Proposal) -> bool:
    """Return whether only the query can tell that the items must not be added up."""
    return len(proposed.items) > 1 and not _kind_of_name(proposed.metric.name)


def _kind_of_name(name: str) -> str:
    """Return what a metric is by its name that must not be added up; else empty."""
    if _PERCENTILE.fullmatch(name):
        return "percentile"
    if _AVERAGE.fullmatch(name):
        return "mean"
    ceiling = units.ceiling(name)
    return "" if ceiling is None else "ratio" if ceiling == 1.0 else "percentage"


def _kind_of_query(query: str) -> str:
    """Return what a query computes that must not be added up; else empty."""
    try:
        node: Expression | None = promql.parse(query)
    except PlanError:
        return ""
    while node is not None:
        match node:
            case Call() if node.function in _QUANTILES:
                return "percentile"
            case Aggregation() if node.operator in {"avg", "quantile"}:
                return "mean" if node.operator == "avg" else "percentile"
            case Binary(operator="/") if not _has_number(node):
                return "ratio"
        node = _same_kind(node)
    return ""


def _same_kind(node: Expression) -> Expression | None:
    """Return the part of an expression whose value is of the same kind; None if there is none."""
    match node:
        case Parentheses() | Unary() | Subquery():
            return node.expression
        case Call() if node.function in _SAME_KIND and node.arguments:
            return node.arguments[0]
        case Aggregation() if node.operator in _CHOOSING:
            return node.expression
        case Binary():
            return node.right if isinstance(bare(node.left), Number) else node.left
        case _:
            return None


def _has_number(node: Binary) -> bool:
    return any(isinstance(bare(each), Number) for each in (node.left, node.right))
