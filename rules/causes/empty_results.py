"""Why a query of series that exist has no result.

Pure; from the results of the queries that `questions.of_empty_result` returns.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

from rules import promql, syntax
from rules.causes import questions, wording
from rules.causes.ended import Results
from rules.causes.questions import ExaminedStep
from rules.syntax import Binary, Call, Expression, MatrixSelector, Number, Subquery

_OF_TWO = frozenset({"rate", "increase", "irate", "delta", "idelta", "deriv", "predict_linear"})
"""Functions without a result for a range with one sample."""
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_DEFAULT_STEP = 60.0
"""Seconds between the steps of a subquery without one: Prometheus' default evaluation interval."""


def why_empty(question: ExaminedStep, query: str, results: Results, now: float) -> tuple[str, str]:
    """Return why a query of series that exist has no result, as far as that is known; and a cure.

    `results` has those of `questions.of_empty_result`.
    """
    for _, matchers in questions.selected(question, query):
        if results.get(f"selected {matchers}") == ():
            label = matchers.partition("=")[0].rstrip("!")
            written = re.search(rf"\b{re.escape(label)}\s*[=!]", question.rule.config.metrics_query)
            who = "query" if written else "metric selector"
            return f"none with {matchers}", f"Correct the {who}, unless that means 0"
    if step := subquery_step(query, results, now):
        why = f"its subquery has one value each {step:g}s, and the series began after the last one"
        return f"the query has no result: {why}", f"Wait {step:g}s"
    comparison = promql.comparison(query)
    values = results.get("compared") or ()
    if comparison and any(_holds(each.value, comparison[1]) for each in values):
        comparison = None
    if comparison and values:
        shown = wording.names(sorted({f"{each.value:g}" for each in values}))
        compared, condition = map(wording.code, comparison)
        return (
            f"the query has no result: {compared} is {shown}, so its comparison {condition} fails",
            "Correct the comparison, or what it compares",
        )
    seconds = interval(results, now)
    if seconds and (short := short_range(query, seconds)):
        then = ""
        if comparison:
            then = f"; then its comparison {wording.code(comparison[1])} may still leave nothing"
        return f"the query has no result: {short}{then}", ""
    nodes = questions.nodes(query)
    parts = [
        *(["its range (`rate` needs two samples)"] if any(map(_is_rate, nodes)) else []),
        *([f"its comparison {wording.code(comparison[1])}"] if comparison else []),
        *(["the labels by which it joins series"] if any(map(_joins, nodes)) else []),
    ]
    return "the query has no result", f"Check {' and '.join(parts)}" if parts else ""


def interval(results: Results, now: float) -> float:
    """Return the seconds between samples of the series; 0 if they are not known."""
    if not all(results.get(each) for each in ("scrapes", "first", "latest")):
        return 0.0
    count, first, latest = (results[each][0].value for each in ("scrapes", "first", "latest"))
    if first <= now - questions.WINDOW + questions.STEP:
        return questions.WINDOW / count if count else 0.0
    return (latest - first) / (count - 1) if count > 1 else 0.0


def short_range(query: str, seconds: float) -> str:
    """Return why a range of a query holds too few samples, one each `seconds`; else empty."""
    nodes = questions.nodes(query)
    rated = [x for each in nodes if _is_rate(each) for x in each.arguments]
    needed = ((rated, 2, "two scrapes", ", and a rate needs two"), (nodes, 1, "a scrape", ""))
    for among, count, shortest, why in needed:
        ranges = [x.range.total_seconds() for x in among if isinstance(x, MatrixSelector)]
        if ranges and min(ranges) < count * seconds:
            return (
                f"the range {min(ranges):g}s is shorter than {shortest}: there is one sample each "
                f"{seconds:.0f} s{why}. Use {2 * count * seconds:.0f}s or more"
            )
    return ""


def subquery_step(query: str, results: Results, now: float) -> float:
    """Return the seconds between the steps of a subquery that has had none since the series began.

    0 if there is no such subquery, or if it is not known.
    """
    steps = [
        _DEFAULT_STEP if each.step is None else each.step.total_seconds()
        for each in questions.nodes(query)
        if isinstance(each, Subquery)
    ]
    step = max(steps, default=0.0)
    if not step or not results.get("scrapes"):
        return 0.0
    # Steps are multiples of their length, whenever the query is evaluated. "first" has such steps
    # too: without a result, the series began after the last of them.
    last = now // step * step
    first = results.get("first")
    none = last < first[0].value if first else last <= now // questions.STEP * questions.STEP
    return step if none else 0.0


def _holds(value: float, condition: str) -> bool:
    """Return whether a value passes a comparison as `promql.comparison` returns it: `<= 100`."""
    sign = condition[: 2 if condition[1] == "=" else 1]
    return _OPERATORS[sign](value, float(condition[len(sign) :]))


def _is_rate(node: Expression) -> TypeGuard[Call]:
    """Return whether a node calls a function that has no result for a range with one sample."""
    return isinstance(node, Call) and node.function in _OF_TWO


def _joins(node: Expression) -> bool:
    """Return whether a node combines series with series."""
    sides = (node.left, node.right) if isinstance(node, Binary) else ()
    return bool(sides) and not any(isinstance(syntax.bare(each), Number) for each in sides)
