"""Queries of KEDA's triggers: what their results can be, and the query of the rule for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rules import promql, syntax
from rules.errors import PlanError
from rules.query import nature

Kind = Literal["vector", "scalar", "string", "matrix", "unknown"]
Count = Literal["bare", "one", "many"]
"""Elements of a vector: one at most, without labels; one at most; or several."""

_CHOOSE = frozenset(("topk", "bottomk", "limitk"))
_SETS = frozenset(("and", "unless"))
_ABSENT = frozenset(("absent", "absent_over_time"))
_LABELS = frozenset(("label_replace", "label_join"))
_QUANTILES = frozenset(("histogram_quantile", "histogram_fraction"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """What is known of a query from its text."""

    kind: Kind
    """`unknown` if it cannot be parsed."""
    problem: str = ""
    """Why it cannot be parsed."""
    is_single: bool = False
    """Whether it has one element at most."""
    nature: str = ""
    """What it computes, if that is not a sum: a mean, a percentile or a ratio; else empty."""
    divides: bool = False
    series: str = ""
    """Name of a series that it reads; empty if it names none."""


def analyze(text: str) -> QueryFacts:
    """Return what the text of a query shows."""
    try:
        tree = promql.parse(text)
    except PlanError as error:
        return QueryFacts(kind="unknown", problem=str(error))
    every = list(syntax.walk(tree))
    names = (each.name for each in every if isinstance(each, syntax.VectorSelector) and each.name)
    return QueryFacts(
        kind=_kind(tree),
        is_single=_count(tree) != "many",
        nature=nature.of_tree(tree),
        divides=any(isinstance(each, syntax.Binary) and each.operator == "/" for each in every),
        series=next(names, ""),
    )


def of_rule(text: str, *, ignore_null: bool) -> str:
    """Return the PromQL whose value is KEDA's, with `onNaN: missing`.

    `scalar` is NaN, and thus no value, for several elements, which are an error in KEDA. A query
    with comments stands on lines of its own.
    """
    text = text.strip()
    inner = f"(\n{text}\n)" if "#" in text or "\n" in text else f"({text})"
    if ignore_null:
        return f"clamp_min(vector(scalar(({inner} > -Inf < Inf) or on() vector(0))), 0)"
    return f"clamp_min(vector(scalar({inner})) > -Inf < Inf, 0)"


def _kind(tree: syntax.Expression) -> Kind:
    match syntax.bare(tree):
        case syntax.Number():
            return "scalar"
        case syntax.String():
            return "string"
        case syntax.MatrixSelector() | syntax.Subquery():
            return "matrix"
        case syntax.Unary() as unary:
            return _kind(unary.expression)
        case syntax.Binary() as binary:
            sides = {_kind(binary.left), _kind(binary.right)}
            return "scalar" if sides == {"scalar"} else "vector"
        case syntax.Call() as call:
            return "scalar" if call.scalar else "vector"
        case _:
            return "vector"


def _count(tree: syntax.Expression) -> Count:
    match syntax.bare(tree):
        case syntax.Number() | syntax.String():
            return "bare"
        case syntax.Unary() | syntax.Subquery() as outer:
            return _count(outer.expression)
        case syntax.Aggregation() as aggregation:
            return _of_aggregation(aggregation)
        case syntax.Binary() as binary:
            return _of_operation(binary)
        case syntax.Call() as call:
            return _of_call(call)
        case _:
            return "many"


def _of_aggregation(tree: syntax.Aggregation) -> Count:
    inner = _count(tree.expression)
    if inner != "many":
        return "one" if tree.operator == "count_values" else inner
    if tree.labels is not None and (tree.labels.names or not tree.labels.listed):
        return "many"
    if tree.operator in _CHOOSE:
        number = tree.parameter
        return "one" if isinstance(number, syntax.Number) and number.value <= 1 else "many"
    return "many" if tree.operator in {"count_values", "limit_ratio"} else "bare"


def _of_operation(tree: syntax.Binary) -> Count:
    sides = (_count(tree.left), _count(tree.right))
    if tree.operator == "or":
        on_nothing = tree.labels == syntax.LabelList(names=(), listed=True)
        if sides == ("bare", "bare"):
            return "bare"
        return "one" if on_nothing and "many" not in sides else "many"
    if tree.operator in _SETS:
        return sides[0]
    scalars = [_kind(side) == "scalar" for side in (tree.left, tree.right)]
    if any(scalars):
        return sides[0] if scalars[1] else sides[1]
    return _joined(sides) if "many" not in sides else _matched(tree, sides)


def _matched(tree: syntax.Binary, sides: tuple[Count, Count]) -> Count:
    """Return the elements of an operation of vectors, of which one side may have several."""
    if tree.many:
        return "many" if sides[tree.many == "right"] == "many" else "one"
    return "many" if set(sides) == {"many"} else "one"


def _of_call(tree: syntax.Call) -> Count:
    if tree.function in _ABSENT:
        return "one"
    if tree.function in _QUANTILES and _is_by_le(syntax.bare(tree.arguments[-1])):
        return "bare"
    if tree.scalar or tree.function == "vector":
        return "bare"
    counts = [_count(each) for each in tree.arguments]
    return _joined([*counts, "one"] if tree.function in _LABELS else counts)


def _joined(counts: Sequence[Count]) -> Count:
    return "many" if "many" in counts else "one" if "one" in counts else "bare"


def _is_by_le(tree: syntax.Expression) -> bool:
    return (
        isinstance(tree, syntax.Aggregation)
        and tree.labels is not None
        and tree.labels.listed
        and set(tree.labels.names) <= {"le"}
    )
