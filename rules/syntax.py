"""Syntax trees of PromQL: plain values, in the order of the query's text.

promql-parser has the parser. Its own trees are not used any further, because its `walk` copies the
subtree of each node. `rules.promql.parse` returns these trees; they are no deeper than it allows,
so functions over them may be recursive.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import promql_parser as ast

_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_MANY: Mapping[str, Literal["left", "right"]] = {
    "VectorMatchCardinality.ManyToOne": "left",
    "VectorMatchCardinality.OneToMany": "right",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher; the metric name is the label `__name__`."""

    label: str
    operator: str
    """`=`, `!=`, `=~` or `!~`."""
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelList:
    """Labels in parentheses: of `by`, `without`, `on` or `ignoring`."""

    names: tuple[str, ...]
    listed: bool
    """True for `by` and `on`, whose labels stay; false for `without` and `ignoring`."""

    def keeps(self, label: str) -> bool:
        """Return whether `label` stays; the name of a metric never does by default."""
        return label in self.names if self.listed else label not in {*self.names, "__name__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSelector:
    """An instant vector selector."""

    name: str
    """The name before the braces; empty without one."""
    matchers: tuple[Matcher, ...]
    alternatives: bool
    """Whether `or` joins matchers (VictoriaMetrics); they are not in `matchers`."""
    offset: dt.timedelta | None
    at: str
    """`@ 5.000`, `@ start()` or `@ end()`; empty without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSelector:
    """A range vector selector."""

    selector: VectorSelector
    range: dt.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """A subquery."""

    expression: Expression
    range: dt.timedelta
    step: dt.timedelta | None
    offset: dt.timedelta | None
    at: str
    """As in VectorSelector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """An aggregation."""

    operator: str
    expression: Expression
    parameter: Expression | None
    """The first argument of `topk`, `quantile` and others."""
    labels: LabelList | None
    """None without `by` and `without`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function."""

    function: str
    arguments: tuple[Expression, ...]
    scalar: bool
    """Whether the function returns a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A binary operation."""

    operator: str
    left: Expression
    right: Expression
    labels: LabelList | None
    """None without `on` and `ignoring`."""
    many: Literal["", "left", "right"]
    """The side that may have several samples for one of the other: group_left or group_right."""
    copied: tuple[str, ...]
    """Labels in parentheses of `group_left` and `group_right`."""
    boolean: bool
    """Whether a comparison says `bool`."""
    fills: bool
    """Whether missing samples of a side get a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary:
    """A negated expression; promql-parser drops the sign `+`."""

    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Parentheses:
    """An expression in parentheses."""

    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class String:
    """A string."""

    value: str


Expression = (
    VectorSelector
    | MatrixSelector
    | Subquery
    | Aggregation
    | Call
    | Binary
    | Unary
    | Parentheses
    | Number
    | String
)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly below `node`, in the order of the text."""
    match node:
        case MatrixSelector():
            return (node.selector,)
        case Subquery() | Unary() | Parentheses():
            return (node.expression,)
        case Aggregation():
            first = () if node.parameter is None else (node.parameter,)
            return (*first, node.expression)
        case Call():
            return node.arguments
        case Binary():
            return (node.left, node.right)
        case _:
            return ()


Kind = TypeVar("Kind")


def walk(
    root: Expression, below: Callable[[Expression], tuple[Expression, ...]] = children
) -> Iterator[Expression]:
    """Yield all expressions of a tree, each before those below it, in the order of the text.

    `below` returns the expressions below one that are yielded, too.
    """
    left = [root]
    while left:
        yield (node := left.pop())
        left.extend(reversed(below(node)))


def every(root: Expression, kind: type[Kind]) -> Iterator[Kind]:
    """Yield all expressions of one kind, as `walk`."""
    return (node for node in walk(root) if isinstance(node, kind))


def depth(root: Expression) -> int:
    """Return the number of expressions on the longest way from the root to a leaf."""
    deepest, left = 0, [(root, 1)]
    while left:
        node, level = left.pop()
        deepest = max(deepest, level)
        left += [(each, level + 1) for each in children(node)]
    return deepest


def bare(node: Expression) -> Expression:
    """Return the expression without the parentheses around it."""
    while isinstance(node, Parentheses):
        node = node.expression
    return node


def convert(root: ast.Expr, strings: Mapping[str, str]) -> Expression:
    """Return the tree of promql-parser as plain values.

    `strings` maps the strings that stand for others in the query to those. Raises OverflowError
    for a duration of more than 2.7 million years.
    """
    return _Conversion(strings).expression(root)


class _Conversion:
    def __init__(self, strings: Mapping[str, str]) -> None:
        self._strings = strings

    def expression(self, node: Any) -> Expression:
        match node:
            case ast.VectorSelector():
                return self._selector(node)
            case ast.MatrixSelector():
                selector = self._selector(node.vector_selector)
                return MatrixSelector(selector=selector, range=node.range)
            case ast.SubqueryExpr():
                assert node.range is not None  # the grammar requires it
                return Subquery(
                    expression=self.expression(node.expr),
                    range=node.range,
                    step=node.step,
                    offset=node.offset,
                    at=_at(node),
                )
            case ast.BinaryExpr():
                return self._operation(node)
            case ast.AggregateExpr():
                modifier = node.modifier
                return Aggregation(
                    operator=str(node.op),
                    expression=self.expression(node.expr),
                    parameter=None if node.param is None else self.expression(node.param),
                    labels=modifier and self._labels(modifier, ast.AggModifierType.By),
                )
            case ast.Call():
                return Call(
                    function=node.func.name,
                    arguments=tuple(map(self.expression, node.args)),
                    scalar=node.func.return_type == ast.ValueType.Scalar,
                )
            case ast.ParenExpr():
                return Parentheses(expression=self.expression(node.expr))
            case ast.UnaryExpr():
                return Unary(expression=self.expression(node.expr))
            case ast.NumberLiteral():
                return Number(value=node.val)
            case ast.StringLiteral():
                return String(value=self._string(node.val))
        raise AssertionError(f"promql-parser returned {type(node).__name__}")

    def _string(self, text: str) -> str:
        return self._strings.get(text, text)

    def _selector(self, node: ast.VectorSelector) -> VectorSelector:
        return VectorSelector(
            name=self._string(node.name or ""),
            matchers=tuple(
                Matcher(
                    label=self._string(each.name),
                    operator=_OPERATORS[str(each.op)],
                    value=self._string(each.value),
                )
                for each in node.matchers.matchers
            ),
            alternatives=bool(node.matchers.or_matchers),
            offset=node.offset,
            at=_at(node),
        )

    def _operation(self, node: ast.BinaryExpr) -> Binary:
        modifier = node.modifier
        matching = modifier.matching if modifier else None
        fills = modifier.fill_values if modifier else None
        return Binary(
            operator=str(node.op),
            left=self.expression(node.lhs),
            right=self.expression(node.rhs),
            labels=matching and self._labels(matching, ast.LabelModifierType.Include),
            many=_MANY.get(str(modifier.card), "") if modifier else "",
            copied=self._names(modifier.group_labels or ()) if modifier else (),
            boolean=bool(modifier and modifier.return_bool),
            fills=fills is not None and (fills.lhs, fills.rhs) != (None, None),
        )

    def _labels(self, modifier: Any, listed: object) -> LabelList:
        return LabelList(names=self._names(modifier.labels), listed=modifier.type == listed)

    def _names(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self._string, names))


def _at(node: ast.VectorSelector | ast.SubqueryExpr) -> str:
    return "" if node.at is None else str(node.at)
