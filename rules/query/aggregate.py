"""Aggregation: from samples to one value for each object.

The order of the samples does not matter. Results beyond 64 bits are exact.
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
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value of a metric for one object."""

    milli: int
    """In thousandths, truncated toward zero."""
    time: float
    """Unix seconds of the earliest sample."""
    samples: int
    """Number of samples; 0 for a constant (`onMissing: {value: N}`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalValue:
    """One value of an external metric."""

    labels: Mapping[str, str] | None
    """None for a scalar, which has no labels."""
    value: Value


def custom(
    plan: Plan, vectors: Sequence[Sequence[Sample]], *, now: float = 0.0
) -> dict[str, Value]:
    """Return the values by object name, in the order of `plan.names`, without missing ones.

    `vectors` has one instant vector for each step. A sample belongs to the object that its
    resource label names, whatever its other labels say. Constants get the time `now` (Unix
    seconds). Raises AmbiguousSampleError for several samples of one object if the rule says
    `aggregate: error`.
    """
    wanted = frozenset(plan.names)
    values: dict[str, Value] = {}
    for step, vector in zip(plan.steps, vectors, strict=True):
        for name, samples in _by_object(step, vector, wanted - values.keys()).items():
            values[name] = _combined(plan, step, name, samples)
    constants = (step.rule.config.on_missing.value for step in plan.steps)
    constant = next((each for each in constants if each is not None), None)
    if constant is not None:
        missing = Value(milli=quantity.milli(constant), time=now, samples=0)
        values = {name: values.get(name, missing) for name in plan.names}
    return {name: values[name] for name in plan.names if name in values}


def external(
    plan: ExternalPlan, samples: Sequence[Sample], *, scalar: bool = False
) -> tuple[ExternalValue, ...]:
    """Return one value for each sample, in the order of Prometheus, with all its labels."""
    on_nan = plan.step.rule.config.on_nan
    values = []
    for sample in samples:
        number = _finite(sample.value, on_nan)
        if number is not None:
            value = Value(milli=quantity.milli(number), time=sample.time, samples=1)
            values.append(ExternalValue(labels=None if scalar else sample.labels, value=value))
    return tuple(values)


def _finite(value: float, on_nan: OnNaN) -> float | None:
    if math.isfinite(value):
        return value
    return 0.0 if on_nan == "zero" else None


def _by_object(
    step: Step, vector: Sequence[Sample], wanted: frozenset[str]
) -> dict[str, list[tuple[float, float]]]:
    """Return the finite values and their times, by name of the wanted objects."""
    samples: dict[str, list[tuple[float, float]]] = {}
    for sample in vector:
        name = sample.labels.get(step.binding.resource, "")
        if name in wanted:
            number = _finite(sample.value, step.rule.config.on_nan)
            if number is not None:
                samples.setdefault(name, []).append((number, sample.time))
    return samples


def _combined(plan: Plan, step: Step, name: str, samples: list[tuple[float, float]]) -> Value:
    numbers = [number for number, _ in samples]
    aggregate = step.rule.config.aggregate
    if aggregate == "error" and len(numbers) > 1:
        place = f"{plan.namespace}/{name}" if plan.namespace else name
        raise AmbiguousSampleError(
            f"{plan.resource} {place!r} has {len(numbers)} samples of {plan.metric!r}, and the "
            f"rule says `aggregate: error`: aggregate by {step.binding.resource!r} in its query, "
            "or set `aggregate` to avg, max, min or sum"
        )
    return Value(
        milli=_AGGREGATES[aggregate](numbers),
        time=min(time for _, time in samples),
        samples=len(samples),
    )


def _sum(numbers: list[float]) -> int:
    """Return the sum in thousandths: added exactly, then rounded to a double if in range."""
    total = sum(map(Fraction, numbers))
    try:
        return quantity.milli(float(total))
    except OverflowError:
        return int(total * 1000)


def _avg(numbers: list[float]) -> int:
    """Return the mean in thousandths, rounded to a double once: of 0.1, 0.2 and 0.3 it is 0.2."""
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
