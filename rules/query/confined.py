"""Confines queries and series selectors to one namespace, by a matcher in each selector.

The query is written anew from its syntax tree. So what Prometheus parses is what was checked here,
however comments, quotes or keywords of the text read to another parser. What no function here
writes, or may read series that are not among its arguments, is refused.
"""

from __future__ import annotations

import datetime as dt
import math

import promql_parser as ast

from rules import promql
from rules.errors import PlanError
from rules.query.clauses import POINTWISE
from rules.quoting import quote

_FUNCTIONS = POINTWISE | frozenset(
    """
    absent absent_over_time bottomk limit_ratio limitk pi scalar sort sort_by_label
    sort_by_label_desc sort_desc time topk vector
    """.split()  # noqa: SIM905 (shorter)
)
"""Functions and aggregations that read only their arguments. `info` also reads other series."""
_MILLISECOND = dt.timedelta(milliseconds=1)
_GROUPS = {
    "VectorMatchCardinality.ManyToOne": "group_left",
    "VectorMatchCardinality.OneToMany": "group_right",
}


def confine(query: str, label: str, namespace: str) -> str:
    """Return `query` so that it reads only series whose `label` is `namespace`.

    A text that was returned earlier is returned as it is. Raises PlanError if that is not possible,
    or the query does not parse.
    """
    if not label or not namespace:
        raise PlanError("cannot confine a query without a label and a namespace")
    return Writer(promql.matcher(label, "=", namespace)).text(promql.parse(query))


def confine_selector(selector: str, label: str, namespace: str) -> str:
    """Return a series selector of those of its series whose `label` is `namespace`.

    Raises PlanError for what is no series selector, and as `confine` does.
    """
    promql.selector(selector)
    return confine(promql.in_expression(selector), label, namespace)


class Writer:
    """Writes syntax trees as PromQL, with one more matcher in each selector."""

    def __init__(self, matcher: str) -> None:
        self._matcher = matcher

    def text(self, node: ast.Expr) -> str:
        """Return the text of an expression. Raises PlanError for what is refused."""
        match node:
            case ast.VectorSelector():
                return self.selector(node) + _shift(node)
            case ast.MatrixSelector():
                inner = node.vector_selector
                return f"{self.selector(inner)}[{_duration(node.range)}]{_shift(inner)}"
            case ast.SubqueryExpr():
                step = _duration(node.step) if node.step else ""
                inside = f"({self.text(node.expr)})[{_duration(node.range)}:{step}]"
                return inside + _shift(node)
            case ast.BinaryExpr():
                operator = f"{node.op}{_modifier(node.modifier)}"
                return f"({self.text(node.lhs)}) {operator} ({self.text(node.rhs)})"
            case ast.AggregateExpr():
                return self._aggregation(node)
            case ast.Call():
                arguments = ", ".join(map(self.text, node.args))
                return f"{_checked(node.func.name)}({arguments})"
            case ast.ParenExpr():  # the text around it has those that are needed
                return self.text(node.expr)
            case ast.UnaryExpr():
                return f"-({self.text(node.expr)})"
            case ast.NumberLiteral():
                return _number(node.val)
            case ast.StringLiteral():
                return quote(node.val)
        raise PlanError(f"a query of a namespace cannot have {type(node).__name__}")

    def selector(self, node: ast.VectorSelector) -> str:
        """Return a selector without its offset, and with the matcher."""
        if node.matchers.or_matchers:
            raise PlanError("a query of a namespace cannot join matchers by `or`")
        name = [promql.matcher("__name__", "=", node.name)] if node.name else []
        others = (
            promql.matcher(each.name, promql.OPERATORS[str(each.op)], each.value)
            for each in node.matchers.matchers
        )
        matchers = dict.fromkeys((*name, *others, self._matcher))
        return f"{{{','.join(filter(None, matchers))}}}"

    def _aggregation(self, node: ast.AggregateExpr) -> str:
        modifier, labels = node.modifier, ""
        if modifier is not None:
            word = "by" if modifier.type == ast.AggModifierType.By else "without"
            labels = f" {word} {_labels(modifier.labels)} "
        arguments = [self.text(each) for each in (node.param, node.expr) if each is not None]
        return f"{_checked(str(node.op))}{labels}({', '.join(arguments)})"


def _checked(function: str) -> str:
    if function not in _FUNCTIONS:
        raise PlanError(f"a query of a namespace cannot use {function}()")
    return function


def _labels(names: list[str]) -> str:
    return f"({', '.join(map(promql.label, names))})"


def _modifier(modifier: ast.BinModifier | None) -> str:
    if modifier is None:
        return ""
    fill = modifier.fill_values
    if (fill.lhs, fill.rhs) != (None, None):
        raise PlanError("a query of a namespace cannot fill missing values")
    text = " bool" if modifier.return_bool else ""
    if (matching := modifier.matching) is not None:
        word = "on" if matching.type == ast.LabelModifierType.Include else "ignoring"
        text += f" {word} {_labels(matching.labels)}"
    if group := _GROUPS.get(str(modifier.card)):
        text += f" {group} {_labels(modifier.group_labels or [])}"
    return text


def _shift(node: ast.VectorSelector | ast.SubqueryExpr) -> str:
    text = ""
    if (at := node.at) is not None:
        text = f" {at}"
        if text == " @ 0.000":
            # promql-parser has the same text for times before 1970.
            raise PlanError("a query of a namespace cannot read samples of before 1970")
    return f"{text} offset {_duration(node.offset)}" if node.offset else text


def _duration(duration: dt.timedelta | None) -> str:
    assert duration is not None
    return f"{duration // _MILLISECOND}ms"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Inf" if value > 0 else "-Inf")
