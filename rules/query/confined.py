"""Confines queries and series selectors to one namespace, by a matcher in each selector.

The query is written anew from its syntax tree. So what Prometheus parses is what was checked here,
however comments, quotes or keywords of the text read to another parser. What no function here
writes, or may read series that are not among its arguments, is refused.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable

from rules import promql, syntax
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
_GROUPS = {"left": "group_left", "right": "group_right"}


def confine(query: str | syntax.Expression, label: str, namespace: str) -> str:
    """Return `query` so that it reads only series whose `label` is `namespace`.

    A text that was returned earlier is returned as it is. Raises PlanError if that is not possible,
    or the query does not parse.
    """
    if not label or not namespace:
        raise PlanError("cannot confine a query without a label and a namespace")
    tree = promql.parse(query) if isinstance(query, str) else query
    return Writer(promql.matcher(label, "=", namespace)).text(tree)


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

    def text(self, node: syntax.Expression) -> str:
        """Return the text of an expression. Raises PlanError for what is refused."""
        match node:
            case syntax.VectorSelector():
                return self.selector(node) + _shift(node)
            case syntax.MatrixSelector():
                inner = node.selector
                return f"{self.selector(inner)}[{_duration(node.range)}]{_shift(inner)}"
            case syntax.Subquery():
                step = _duration(node.step) if node.step else ""
                inside = f"({self.text(node.expression)})[{_duration(node.range)}:{step}]"
                return inside + _shift(node)
            case syntax.Binary():
                operator = f"{node.operator}{_modifier(node)}"
                return f"({self.text(node.left)}) {operator} ({self.text(node.right)})"
            case syntax.Aggregation():
                return self._aggregation(node)
            case syntax.Call():
                arguments = ", ".join(map(self.text, node.arguments))
                return f"{_checked(node.function)}({arguments})"
            case syntax.Parentheses():  # the text around it has those that are needed
                return self.text(node.expression)
            case syntax.Unary():
                return f"-({self.text(node.expression)})"
            case syntax.Number():
                return _number(node.value)
            case syntax.String():
                return quote(node.value)

    def selector(self, node: syntax.VectorSelector) -> str:
        """Return a selector without its offset, and with the matcher."""
        if node.alternatives:
            raise PlanError("a query of a namespace cannot join matchers by `or`")
        name = [promql.matcher("__name__", "=", node.name)] if node.name else []
        others = (promql.matcher(each.label, each.operator, each.value) for each in node.matchers)
        matchers = dict.fromkeys((*name, *others, self._matcher))
        return f"{{{','.join(filter(None, matchers))}}}"

    def _aggregation(self, node: syntax.Aggregation) -> str:
        labels = ""
        if node.labels is not None:
            word = "by" if node.labels.listed else "without"
            labels = f" {word} {_labels(node.labels.names)} "
        arguments = ", ".join(map(self.text, syntax.children(node)))
        return f"{_checked(node.operator)}{labels}({arguments})"


def _checked(function: str) -> str:
    if function not in _FUNCTIONS:
        raise PlanError(f"a query of a namespace cannot use {function}()")
    return function


def _labels(names: Iterable[str]) -> str:
    return f"({', '.join(map(promql.label, names))})"


def _modifier(node: syntax.Binary) -> str:
    if node.fills:
        raise PlanError("a query of a namespace cannot fill missing values")
    text = " bool" if node.boolean else ""
    if node.labels is not None:
        text += f" {'on' if node.labels.listed else 'ignoring'} {_labels(node.labels.names)}"
    if node.many:
        text += f" {_GROUPS[node.many]} {_labels(node.copied)}"
    return text


def _shift(node: syntax.VectorSelector | syntax.Subquery) -> str:
    text = ""
    if node.at:
        text = f" {node.at}"
        if text == " @ 0.000":
            # promql-parser has the same text for times before 1970.
            raise PlanError("a query of a namespace cannot read samples from before 1970")
    return f"{text} offset {_duration(node.offset)}" if node.offset else text


def _duration(duration: dt.timedelta) -> str:
    return f"{duration // _MILLISECOND}ms"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Inf" if value > 0 else "-Inf")
