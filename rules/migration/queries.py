"""Queries of KEDA's triggers: what their results can be, and the query of the rule for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import promql_parser as ast

from rules import promql
from rules.errors import PlanError

Kind = Literal["vector", "scalar", "string", "matrix", "unknown"]
Count = Literal["bare", "one", "many"]
"""Elements of a vector: one at most, without labels; one at most; or several."""

_CHOOSE = frozenset(("topk", "bottomk", "limitk"))
_SETS = frozenset(("and", "unless"))
_ABSENT = frozenset(("absent", "absent_over_time"))
_LABELS = frozenset(("label_replace", "label_join"))
_QUANTILES = frozenset(("histogram_quantile", "histogram_fraction"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is known of a query from its text."""

    text: str
    kind: Kind
    """`unknown` if it cannot be parsed."""
    problem: str
    """Why it cannot be parsed."""
    is_single: bool
    """Whether it has one element at most."""
    is_ratio: bool
    """Whether its value does not grow with the load: an average or a percentile."""
    divides: bool
    series: str
    """Name of a series that it reads; empty if it names none."""


def analyze(text: str) -> Query:
    """Return what the text of a query shows."""
    try:
        tree = promql.parse(text)
    except PlanError as error:
        return Query(
            text=text,
            kind="unknown",
            problem=str(error),
            is_single=False,
            is_ratio=False,
            divides=False,
            series="",
        )
    every = list(_nodes(tree))
    names = (each.name for each in every if isinstance(each, ast.VectorSelector) and each.name)
    return Query(
        text=text,
        kind=_kind(tree),
        problem="",
        is_single=_count(tree) != "many",
        is_ratio=_is_ratio(tree),
        divides=any(isinstance(each, ast.BinaryExpr) and str(each.op) == "/" for each in every),
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


def _nodes(tree: ast.Expr) -> Iterator[ast.Expr]:
    found: list[ast.Expr] = []
    ast.walk(tree, found.append)
    for each in found:
        yield each
        if isinstance(each, ast.MatrixSelector):
            yield each.vector_selector


def _inside(tree: ast.Expr) -> ast.Expr:
    while isinstance(tree, ast.ParenExpr):
        tree = tree.expr
    return tree


def _kind(tree: ast.Expr) -> Kind:
    match _inside(tree):
        case ast.NumberLiteral():
            return "scalar"
        case ast.StringLiteral():
            return "string"
        case ast.MatrixSelector() | ast.SubqueryExpr():
            return "matrix"
        case ast.UnaryExpr() as unary:
            return _kind(unary.expr)
        case ast.BinaryExpr() as binary:
            sides = {_kind(binary.lhs), _kind(binary.rhs)}
            return "scalar" if sides == {"scalar"} else "vector"
        case ast.Call() as call:
            return "scalar" if str(call.func.return_type) == "ValueType.Scalar" else "vector"
        case _:
            return "vector"


def _is_ratio(tree: ast.Expr) -> bool:
    match _inside(tree):
        case ast.AggregateExpr() as aggregate:
            return str(aggregate.op) in {"avg", "quantile"}
        case ast.Call() as call:
            return call.func.name == "histogram_quantile"
        case _:
            return False


def _count(tree: ast.Expr) -> Count:
    match _inside(tree):
        case ast.NumberLiteral() | ast.StringLiteral():
            return "bare"
        case ast.UnaryExpr() | ast.SubqueryExpr() as outer:
            return _count(outer.expr)
        case ast.AggregateExpr() as aggregate:
            return _of_aggregation(aggregate)
        case ast.BinaryExpr() as binary:
            return _of_operation(binary)
        case ast.Call() as call:
            return _of_call(call)
        case _:
            return "many"


def _of_aggregation(tree: ast.AggregateExpr) -> Count:
    inner = _count(tree.expr)
    operator = str(tree.op)
    if inner != "many":
        return "one" if operator == "count_values" else inner
    if tree.modifier is not None and (
        tree.modifier.labels or tree.modifier.type != ast.AggModifierType.By
    ):
        return "many"
    if operator in _CHOOSE:
        number = tree.param
        return "one" if isinstance(number, ast.NumberLiteral) and number.val <= 1 else "many"
    return "many" if operator in {"count_values", "limit_ratio"} else "bare"


def _of_operation(tree: ast.BinaryExpr) -> Count:
    sides = (_count(tree.lhs), _count(tree.rhs))
    operator = str(tree.op)
    if operator == "or":
        on_nothing = "on()" in "".join(str(tree.modifier and tree.modifier.matching).split())
        if sides == ("bare", "bare"):
            return "bare"
        return "one" if on_nothing and "many" not in sides else "many"
    if operator in _SETS:
        return sides[0]
    scalars = [_kind(side) == "scalar" for side in (tree.lhs, tree.rhs)]
    if any(scalars):
        return sides[0] if scalars[1] else sides[1]
    return _joined(sides) if "many" not in sides else _matched(tree, sides)


def _matched(tree: ast.BinaryExpr, sides: tuple[Count, Count]) -> Count:
    """Return the elements of an operation of vectors, of which one side may have several."""
    card = str(tree.modifier.card) if tree.modifier else ""
    many = 0 if "ManyToOne" in card else 1 if "OneToMany" in card else None
    if many is not None:
        return "many" if sides[many] == "many" else "one"
    return "many" if set(sides) == {"many"} else "one"


def _of_call(tree: ast.Call) -> Count:
    name = tree.func.name
    if name in _ABSENT:
        return "one"
    if name in _QUANTILES and _is_by_le(_inside(tree.args[-1])):
        return "bare"
    if str(tree.func.return_type) == "ValueType.Scalar" or name == "vector":
        return "bare"
    counts = [_count(each) for each in tree.args]
    return _joined([*counts, "one"] if name in _LABELS else counts)


def _joined(counts: Sequence[Count]) -> Count:
    return "many" if "many" in counts else "one" if "one" in counts else "bare"


def _is_by_le(tree: ast.Expr) -> bool:
    return (
        isinstance(tree, ast.AggregateExpr)
        and tree.modifier is not None
        and tree.modifier.type == ast.AggModifierType.By
        and set(tree.modifier.labels) <= {"le"}
    )
