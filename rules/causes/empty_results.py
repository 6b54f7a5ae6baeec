"""Why a query of series that exist has no result.

Pure; from the results of the queries that `questions.of_empty_result` returns.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from rules import promql, syntax
from rules.causes import questions, wording
from rules.causes.ended import Results
from rules.causes.questions import ExaminedStep
from rules.syntax import Binary, Call, Expression, MatrixSelector, Number

_OF_TWO = frozenset({"rate", "increase", "irate", "delta", "idelta", "deriv", "predict_linear"})
"""Functions without a result for a range with one sample."""


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
    comparison = promql.comparison(query)
    if comparison and (values := results.get("compared")):
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


def _is_rate(node: Expression) -> TypeGuard[Call]:
    """Return whether a node calls a function that has no result for a range with one sample."""
    return isinstance(node, Call) and node.function in _OF_TWO


def _joins(node: Expression) -> bool:
    """Return whether a node combines series with series."""
    sides = (node.left, node.right) if isinstance(node, Binary) else ()
    return bool(sides) and not any(isinstance(syntax.bare(each), Number) for each in sides)
