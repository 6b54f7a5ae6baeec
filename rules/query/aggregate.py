"""From samples to one number for each object.

Deterministic, and exact where doubles are: the order of the samples never matters, and what does
not fit 64 bits is a bigger integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rules import quantity
from rules.document.config import OnNaN
from rules.errors import AmbiguousSampleError
from rules.query.plan import ExternalPlan, Plan, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float
    time: float
    """Unix seconds, as Prometheus gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What is answered for one object."""

    milli: int
    """In thousandths, cut toward zero."""
    time: float
    """Unix seconds: of the earliest sample used."""
    samples: int
    """How many were used; 0 for a constant (`onMissing: {value: N}`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalValue:
    """One row of an external metric's answer."""

    labels: Mapping[str, str] | None
    """None for a scalar, which has none."""
    value: Value


def answer(
    plan: Plan, vectors: Sequence[Sequence[Sample]], *, now: float = 0.0
) -> dict[str, Value]:
    """One value for each object of `plan.names` that has one, in the order of the names.

    `vectors` holds one instant vector for each step; `now`, in unix seconds, is the time that
    constants get. Samples belong to the object that the resource's label names, whatever else they
    carry. Raises AmbiguousSampleError where a rule says `aggregate: error` and there are several
    samples for one object.
    """
    wanted = frozenset(plan.names)
    values: dict[str, Value] = {}
    for step, vector in zip(plan.steps, vectors, strict=True):
        for name, samples in _by_object(step, vector, wanted - values.keys()).items():
            values[name] = _combined(plan, step, name, samples)
    constant = next(
        (
            step.rule.config.on_missing.value
            for step in plan.steps
            if step.rule.config.on_missing.value is not None
        ),
        None,
    )
    if constant is not None:
        missing = Value(milli=quantity.milli(constant), time=now, samples=0)
        values = {name: values.get(name, missing) for name in plan.names}
    return {name: values[name] for name in plan.names if name in values}


def external(
    plan: ExternalPlan, samples: Sequence[Sample], *, scalar: bool = False
) -> tuple[ExternalValue, ...]:
    """One value for each sample, in Prometheus' order, with all its labels; none with a scalar."""
    on_nan = plan.step.rule.config.on_nan
    rows = []
    for sample in samples:
        number = _finite(sample.value, on_nan)
        if number is not None:
            value = Value(milli=quantity.milli(number), time=sample.time, samples=1)
            rows.append(ExternalValue(labels=None if scalar else sample.labels, value=value))
    return tuple(rows)


def _finite(value: float, on_nan: OnNaN) -> float | None:
    if math.isfinite(value):
        return value
    return 0.0 if on_nan == "zero" else None


def _by_object(
    step: Step, vector: Sequence[Sample], wanted: frozenset[str]
) -> dict[str, list[tuple[float, float]]]:
    """Finite values and their times, of the objects wanted."""
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in vector:
        name = sample.labels.get(step.binding.resource, "")
        if name in wanted:
            number = _finite(sample.value, step.rule.config.on_nan)
            if number is not None:
                found.setdefault(name, []).append((number, sample.time))
    return found


def _combined(plan: Plan, step: Step, name: str, samples: list[tuple[float, float]]) -> Value:
    numbers = [number for number, _ in samples]
    how = step.rule.config.aggregate
    if how == "error" and len(numbers) > 1:
        place = f"{plan.namespace}/{name}" if plan.namespace else name
        raise AmbiguousSampleError(
            f"{len(numbers)} samples of {plan.metric!r} for {plan.resource} {place!r}, and the "
            "rule says `aggregate: error`: let its query aggregate by "
            f"{step.binding.resource!r}, or set `aggregate` to avg, max, min or sum"
        )
    return Value(
        milli=_AGGREGATES[how](numbers),
        time=min(time for _, time in samples),
        samples=len(samples),
    )


def _sum(numbers: list[float]) -> int:
    try:
        return quantity.milli(math.fsum(numbers))
    except OverflowError:
        return int(sum(map(Fraction, numbers)) * 1000)


def _avg(numbers: list[float]) -> int:
    """The double nearest to the exact mean: 0.1, 0.2 and 0.3 have the mean 0.2."""
    if len(numbers) == 1:
        return quantity.milli(numbers[0])
    return quantity.milli(float(sum(map(Fraction, numbers)) / len(numbers)))


_AGGREGATES: Mapping[str, Callable[[list[float]], int]] = {
    "avg": _avg,
    "max": lambda numbers: quantity.milli(max(numbers)),
    "min": lambda numbers: quantity.milli(min(numbers)),
    "sum": _sum,
    "error": lambda numbers: quantity.milli(numbers[0]),
}
