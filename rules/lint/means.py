"""Means and sums of ratios and percentiles in queries, which say nothing.

`rules.query.nature` says what a whole query computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules import syntax

_PERCENTILES = frozenset(("histogram_quantile", "quantile_over_time"))
_SUM_OF_QUOTIENTS = (
    "adds up the quotients of series. With target type AverageValue, an HPA divides the sum by the "
    "replicas: that is a mean in which each series counts the same, however small its divisor. For "
    "the quotient of all: sum(...) / sum(...), with type Value"
)
_LEAST = 0.1
"""Summands of a divisor below it only prevent a division by 0."""


def plainly_averaged(expression: syntax.Expression) -> syntax.Expression | None:
    """Return what a query averages into one value; None if it does not do that."""
    node = syntax.bare(expression)
    if isinstance(node, syntax.Aggregation) and node.operator == "avg" and node.labels is None:
        return node.expression
    return None


def problems(expression: syntax.Expression, *, external: bool) -> Iterator[str]:
    """Yield a warning for each mean of ratios or percentiles, and for summands of divisors.

    `external` says whether an HPA divides the value by the replicas if its type is AverageValue.
    """
    for node in syntax.walk(expression):
        match node:
            case syntax.Aggregation(operator="avg" | "sum"):
                inner = syntax.bare(node.expression)
                verb = "averages" if node.operator == "avg" else "adds up"
                if isinstance(inner, syntax.Binary) and _divides_series(inner):
                    if external and node is syntax.bare(expression) and node.operator == "sum":
                        yield _SUM_OF_QUOTIENTS
                        continue
                    yield (
                        f"{verb} the quotients of series, so that each series counts the same, "
                        "however small its divisor. Divide the sums: sum(...) / sum(...)"
                    )
                elif isinstance(inner, syntax.Call) and inner.function in _PERCENTILES:
                    yield (
                        f"{verb} percentiles, and the result is not one. Add the buckets up: "
                        "histogram_quantile(0.95, sum by (..., le) (...))"
                    )
            case syntax.Binary(operator="/"):
                divisor = syntax.bare(node.right)
                if isinstance(divisor, syntax.Binary) and divisor.operator == "+":
                    sides = syntax.bare(divisor.left), syntax.bare(divisor.right)
                    added = [each.value for each in sides if isinstance(each, syntax.Number)]
                    if added and added[0] >= _LEAST and any(map(_selects, sides)):
                        yield (
                            f"adds {added[0]:g} to the divisor, so that every value is too small. "
                            f"Drop the {added[0]:g}. For 0 / 0, set `onNaN: zero` in the rule"
                        )


def _divides_series(node: syntax.Binary) -> bool:
    """Return whether it divides each series by another one."""
    divisor = syntax.bare(node.right)
    if node.operator != "/" or node.many or isinstance(divisor, syntax.Aggregation):
        return False
    scalar = isinstance(divisor, syntax.Call) and divisor.scalar
    return not scalar and _selects(node.left) and _selects(divisor)


def _selects(expression: syntax.Expression) -> bool:
    return any(True for _ in syntax.every(expression, syntax.VectorSelector))
