"""Time that a query takes to show a change, because of its ranges and offsets. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from rules import promql, syntax

_AT_ONCE = frozenset(("idelta", "irate", "last_over_time", "max_over_time", "present_over_time"))
"""Functions of a range that show a rise with its last sample or two."""
OFFSET = "offset"
_LEFT = frozenset(("and", "unless"))
"""Operators that take values from their left side only."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Delay:
    """The slowest part of a query."""

    seconds: float = 0.0
    """Time after which it shows a rise in full."""
    function: str = ""
    """Its cause: a function of a range, or OFFSET; empty without a delay."""


_NONE = Delay()


def of_query(query: str) -> Delay:
    """Return what delays the value of a query; no delay if it cannot be parsed."""
    tree = promql.tree(query)
    return of_tree(tree) if tree else _NONE


def of_tree(node: syntax.Expression) -> Delay:
    """Return what delays the value of an expression."""
    match node:
        case syntax.VectorSelector(offset=offset):
            return _moved(_NONE, offset)
        case syntax.Call(function=function, arguments=arguments):
            return max((_argument(function, each) for each in arguments), default=_NONE)
        case syntax.Binary(operator=operator) if operator in _LEFT:
            return of_tree(node.left)
        case syntax.Aggregation(expression=expression):
            return of_tree(expression)
        case _:
            return max(map(of_tree, syntax.children(node)), default=_NONE)


def _argument(function: str, node: syntax.Expression) -> Delay:
    match node:
        case syntax.MatrixSelector(selector=selector, range=range_):
            below = of_tree(selector)
        case syntax.Subquery(expression=expression, range=range_, offset=offset):
            below = _moved(of_tree(expression), offset)
        case _:
            return of_tree(node)
    if function in _AT_ONCE:
        return below
    return Delay(seconds=below.seconds + range_.total_seconds(), function=function)


def _moved(delay: Delay, offset: dt.timedelta | None) -> Delay:
    seconds = 0.0 if offset is None else offset.total_seconds()
    return Delay(seconds=delay.seconds + seconds, function=OFFSET) if seconds > 0 else delay
