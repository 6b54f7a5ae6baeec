"""Names of series that are counters, and what must not be done with them.

Only names that leave no doubt: usual endings, and those of well-known exporters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import promql_parser as ast

_COUNTERS = re.compile(
    r".*(?<!memory)_(total|bucket)"
    r" | .*_(seconds|milliseconds|ms|us|bytes|length|tokens)_(count|sum)"
    r" | nv_inference_(request_(success|failure)|count|exec_count|\w+_duration_us)",
    re.VERBOSE,
)
_TIMES = re.compile(r".*(duration|latency|_time)(_\w+)?_(us|ms|milliseconds|seconds)(_sum|_total)?")
RATES = frozenset(("rate", "irate", "increase"))
_DIFFERENCES = frozenset(("delta", "idelta"))
_OVER_COUNTERS = frozenset(("absent", "timestamp", "changes", "resets"))
"""Functions of counters that mean something."""
_COUNTING = frozenset(("count", "group"))
"""Aggregations that ignore the value."""


def is_counter(series: str) -> bool:
    """Return whether the name tells that the series is a counter."""
    return bool(_COUNTERS.fullmatch(series))


def problems(expression: ast.Expr) -> Iterator[str]:
    """Yield a warning for each use of a counter in a query that has no meaning."""
    for name in filter(is_counter, raw(expression)):
        yield of_raw(name)
    for call in _calls(expression, _DIFFERENCES):
        if (name := _ranged(call)) and is_counter(name):
            yield (
                f"computes {call.func.name}() of {name}, which is a counter: negative after each "
                "restart. Use increase() or rate()"
            )
    for name in _undivided(expression):
        yield (
            f"computes a rate of {name}, a time that adds up: that is the number of requests at "
            "once, not the time of one. Divide it by the rate of the requests"
        )


def of_raw(name: str) -> str:
    """Return the warning about a counter whose value is used as it is."""
    return (
        f"takes the value of {name}, by its name or type a counter, which only grows and falls to "
        f"0 at a restart. Use rate({name}[2m]), or increase()"
    )


def raw(expression: ast.Expr) -> Iterator[str]:
    """Yield the names of the series whose value is used as it is."""
    match expression:
        case ast.VectorSelector():
            yield expression.name or ""
        case ast.MatrixSelector():
            pass
        case ast.BinaryExpr() if str(expression.op) == "-":
            pass  # a difference, such as that with an offset
        case ast.BinaryExpr() if str(expression.op) in {"and", "unless"}:
            yield from raw(expression.lhs)
        case ast.AggregateExpr() if str(expression.op) in _COUNTING:
            pass
        case ast.Call() if str(expression.func.name) in _OVER_COUNTERS:
            pass
        case ast.SubqueryExpr():
            pass  # `rate` or `increase` of it
        case _:
            for each in _children(expression):
                yield from raw(each)


def _undivided(expression: ast.Expr) -> Iterator[str]:
    """Yield the summed times whose rate is not divided by another rate."""
    match expression:
        case ast.BinaryExpr() if str(expression.op) == "/" and any(_calls(expression.rhs, RATES)):
            pass
        case ast.Call() if str(expression.func.name) in RATES:
            name = _ranged(expression)
            if is_counter(name) and _TIMES.fullmatch(name):
                yield name
        case _:
            for each in _children(expression):
                yield from _undivided(each)


def _ranged(call: ast.Call) -> str:
    """Return the name of the series of which a function takes a range; empty if there is none."""
    for argument in call.args:
        if isinstance(argument, ast.MatrixSelector):
            return argument.vector_selector.name or ""
    return ""


def _calls(expression: ast.Expr, names: frozenset[str]) -> Iterator[ast.Call]:
    found: list[ast.Expr] = []
    collect: Callable[[ast.Expr], None] = found.append
    ast.walk(expression, collect)
    for each in found:
        if isinstance(each, ast.Call) and str(each.func.name) in names:
            yield each


def _children(expression: ast.Expr) -> Iterator[ast.Expr]:
    match expression:
        case ast.BinaryExpr():
            yield expression.lhs
            yield expression.rhs
        case ast.Call():
            yield from expression.args
        case ast.AggregateExpr() | ast.ParenExpr() | ast.UnaryExpr():
            yield expression.expr
