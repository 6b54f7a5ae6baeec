"""Means and sums of ratios and percentiles in queries, which say nothing.

`rules.query.nature` says what a whole query computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.syntax import (
    Aggregation,
    Binary,
    Call,
    Expression,
    Number,
    VectorSelector,
    bare,
    walk,
)

_PERCENTILES = frozenset(("histogram_quantile", "quantile_over_time"))
_LEAST = 0.1
"""Summands of a divisor below it only prevent a division by 0."""


def is_plain_average(expression: Expression) -> bool:
    """Return whether a query averages all series into one value."""
    node = bare(expression)
    return isinstance(node, Aggregation) and node.operator == "avg" and node.labels is None


def problems(expression: Expression) -> Iterator[str]:
    """Yield a warning for each mean of ratios or percentiles, and for summands of divisors."""
    for node in walk(expression):
        match node:
            case Aggregation(operator="avg" | "sum"):
                inner = bare(node.expression)
                verb = "averages" if node.operator == "avg" else "adds up"
                if isinstance(inner, Binary) and _divides_series(inner):
                    yield (
                        f"{verb} the quotients of series, in which each series counts the same, "
                        "however much it did. Divide the sums: sum(...) / sum(...)"
                    )
                elif isinstance(inner, Call) and inner.function in _PERCENTILES:
                    yield (
                        f"{verb} percentiles, and the result is not one. Add the buckets up: "
                        "histogram_quantile(0.95, sum by (..., le) (...))"
                    )
            case Binary(operator="/"):
                divisor = bare(node.right)
                if isinstance(divisor, Binary) and divisor.operator == "+":
                    sides = bare(divisor.left), bare(divisor.right)
                    added = [each.value for each in sides if isinstance(each, Number)]
                    if added and added[0] >= _LEAST and any(map(_selects, sides)):
                        yield (
                            f"adds {added[0]:g} to the divisor, so that every value is too small. "
                            "Divide by the rest alone; `onNaN: zero` in the rule makes 0 of 0 / 0"
                        )


def _divides_series(node: Binary) -> bool:
    """Return whether it divides each series by another one."""
    divisor = bare(node.right)
    if node.operator != "/" or node.many or isinstance(divisor, Aggregation):
        return False
    scalar = isinstance(divisor, Call) and divisor.scalar
    return not scalar and _selects(node.left) and _selects(divisor)


def _selects(expression: Expression) -> bool:
    return any(isinstance(each, VectorSelector) for each in walk(expression))
