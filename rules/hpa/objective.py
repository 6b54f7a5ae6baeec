"""Service level objective of an autoscaler: a metric and its limit. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from rules import quantity
from rules.errors import DurationError, QuantityError, UnreadableError
from rules.query import nature
from rules.quoting import listed

_OBJECTIVE = re.compile(r"\s*(?P<metric>[A-Za-z_:][\w:.-]*)\s*<\s*(?P<limit>[^\s<=>]+)\s*")
_NANOSECONDS = {"ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds in a unit of time that names of metrics have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric that shall be below a limit."""

    metric: str
    limit: int
    """In thousandths."""

    def __str__(self) -> str:
        """Return it as sentences show it: `queue_time_p95_milliseconds_over_time < 500 ms`."""
        return f"{self.metric} < {self.readable(self.limit)}"

    def readable(self, value: float) -> str:
        """Return a value, in thousandths, as sentences show it."""
        return quantity.readable(round(value), nature.unit(self.metric))


def split(text: str) -> tuple[str, str]:
    """Return the name and the limit in an objective. Raises ValueError."""
    match = _OBJECTIVE.fullmatch(text)
    if match is None:
        raise ValueError("must be METRIC < LIMIT, such as 'time_to_first_token_p95 < 500ms'")
    return match["metric"], match["limit"]


def read(text: str, names: Iterable[str]) -> Objective:
    """Return an objective on one of the metrics `names`. Raises UnreadableError with 400."""
    try:
        given, limit = split(text)
        name = _named(given, names)
        return Objective(metric=name, limit=_limit(limit, name))
    except (ValueError, QuantityError, DurationError) as error:
        raise UnreadableError(f"the objective {text!r}: {error}", status=400) from error


def _named(given: str, names: Iterable[str]) -> str:
    """Return the metric of a name, whose end may be left out. Raises ValueError."""
    every = sorted(set(names))
    found = [each for each in every if each == given]
    found = found or [each for each in every if each.startswith(f"{given}_")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{given} is the beginning of {listed(found)}. Write the whole name")
    near = [each for each in every if given in each] or difflib.get_close_matches(given, every)
    hint = f"; did you mean {listed(near)}?" if near else "."
    raise ValueError(
        f"the cluster serves no metric {given}{hint} If a rule or preset has it, Prometheus has no "
        "series for it: `gpu-metrics-adapter explain 'NAMESPACE/pods/*' METRIC` says why"
    )


def _limit(text: str, metric: str) -> int:
    """Return a limit in thousandths of the unit of a metric.

    Raises ValueError, QuantityError and DurationError.
    """
    unit = nature.unit(metric)
    if unit == "%":
        text = text.removesuffix("%")
    elif unit in _NANOSECONDS and text[-1:].isalpha():
        exact = Fraction(quantity.go_duration(text) * 1000, _NANOSECONDS[unit])
        return _above_zero(int(exact))
    elif text.endswith(("s", "%")):
        raise ValueError(f"the name {metric} has no such unit. Write a number such as 37.5 or 2Gi")
    return _above_zero(quantity.milli_value(text))


def _above_zero(limit: int) -> int:
    if limit <= 0:
        raise ValueError("the limit must be above 0")
    return limit
