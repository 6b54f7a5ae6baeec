"""Aggregation: from samples to one value for each object.

The order of the samples does not matter. Results beyond 64 bits are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from operator import itemgetter
from typing import NamedTuple, Protocol

from rules import quantity
from rules.document.config import Workloads
from rules.errors import AmbiguousSampleError
from rules.query.catalog import Step
from rules.query.plan import ExternalPlan, Plan
from rules.ruleset import CompiledRule


class Sample(NamedTuple):
    """One element of an instant vector. A tuple takes half the time of a dataclass to create."""

    labels: Mapping[str, str]
    value: float
    time: float
    """Unix seconds."""


LooseSample = tuple[Mapping[str, str], float, float]
"""A sample while it is read, which takes even less time to create."""


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


Point = tuple[float, float, str]
"""A value, its time (Unix seconds) and the container that it describes, or empty.

It is finite, except in a query of `resourceRules`.
"""


class SamplesByObject:
    """Samples by the name of their object.

    Most objects have one sample, of the time at which the query was evaluated. Of these only the
    number is kept: the garbage collector then has nothing to look at, however many there are.
    """

    __slots__ = ("numbers", "points", "time")

    def __init__(self, time: float = 0.0) -> None:
        self.time = time
        self.numbers: dict[str, float] = {}
        self.points: dict[str, list[Point]] = {}

    def __len__(self) -> int:
        return len(self.numbers) + len(self.points)

    def __contains__(self, name: str) -> bool:
        return name in self.numbers or name in self.points

    def of(self, name: str) -> Sequence[Point]:
        """Return the samples of an object."""
        number = self.numbers.get(name)
        if number is None:
            return self.points.get(name, ())
        return ((number, self.time, ""),)

    def add(self, name: str, number: float, time: float, container: str) -> None:
        """Add a sample of an object."""
        if time == self.time and not container and name not in self:
            self.numbers[name] = number
            return
        points = self.points.get(name)
        if points is None:
            points = self.points[name] = list(self.of(name))
            self.numbers.pop(name, None)
        points.append((number, time, container))

    def only(self, names: SamplesByObject) -> SamplesByObject:
        """Return the samples of those objects that also have some in `names`."""
        kept = SamplesByObject(self.time)
        kept.numbers = {name: each for name, each in self.numbers.items() if name in names}
        kept.points = {name: each for name, each in self.points.items() if name in names}
        return kept


NO_SAMPLES = SamplesByObject()


class Reduction:
    """Samples of one step by namespace and object, collected while they arrive.

    A sample belongs to the object that its resource label names, whatever its other labels say.
    Only with `by_namespace`, its namespace label counts; otherwise all are below the namespace "".
    """

    def __init__(self, step: Step, *, by_namespace: bool = False) -> None:
        binding = step.binding
        self._resource, self._container = binding.resource, binding.container
        self._namespace = binding.namespace if by_namespace else ""
        self._on_nan = step.rule.config.on_nan
        self._found: dict[str, SamplesByObject] = {}
        self.count = 0
        """Number of samples, also of those that count for no object."""

    def add(self, vector: Iterable[LooseSample]) -> None:
        """Add samples; 100 take a tenth of a millisecond."""
        resource, namespace, container = self._resource, self._namespace, self._container
        found, space, part = self._found, "", ""
        count = 0
        for labels, value, time in vector:
            count += 1
            name = labels.get(resource)
            if not name:
                continue
            if not isfinite(value):
                if self._on_nan == "missing":
                    continue
                if self._on_nan == "zero":
                    value = 0.0  # noqa: PLW2901 (a copy takes time)
            if namespace:
                space = labels.get(namespace, "")
            below = found.get(space)
            if below is None:
                below = found[space] = SamplesByObject(time)
            if container:
                part = labels.get(container, "")
            # Most samples end here, so this is not a call.
            if not part and time == below.time and name not in below.numbers and not below.points:
                below.numbers[name] = value
            else:
                below.add(name, value, time, part)
        self.count += count

    def by_object(self, recent: Reduction | None = None) -> Mapping[str, SamplesByObject]:
        """Return the samples of each object, by namespace.

        Objects without a sample in `recent`, that of `StepQueries.recent`, are left out.
        """
        if recent is None:
            return self._found
        others = recent.by_object()
        return {
            space: each.only(others.get(space, NO_SAMPLES)) for space, each in self._found.items()
        }


def custom(
    plan: Plan, samples: Sequence[SamplesByObject], *, now: float = 0.0, constants: bool = True
) -> dict[str, Value]:
    """Return the values by object name, in the order of `plan.names`, without missing ones.

    `samples` has those of the plan's namespace for each step; objects that the plan does not name
    are ignored. With `constants`, missing objects get the constant of their rule, if it has one,
    and the time `now` (Unix seconds). Raises AmbiguousSampleError for
    several samples of one object if the rule says `aggregate: error`.
    """
    of_rules = (step.rule.config.on_missing.value for step in plan.steps)
    constant = next((each for each in of_rules if each is not None), None)
    missing = None
    if constants and constant is not None:
        missing = Value(milli=quantity.milli(constant), time=now, samples=0)
    steps = tuple(zip(plan.steps, samples, strict=True))
    values = {}
    for name in plan.names:
        value = missing
        for step, by_name in steps:
            if found := by_name.of(name):
                value = _combined(plan, step, name, found)
                break
        if value is not None:
            values[name] = value
    return values


Identity = tuple[object, ...]
"""What identifies a plan, or one of its objects, among those of other rules and requests."""


class LastValues(Protocol):
    """Last values of objects, for `onMissing: {lastKnown: ...}`."""

    def get(self, key: Identity) -> Value | None:
        """Return the last value."""

    def set(self, key: Identity, value: Value) -> None:
        """Replace the last value."""


namespace_of: Callable[[Identity], str] = itemgetter(0)
"""Return the namespace of an identity."""
rule_of: Callable[[Identity], CompiledRule] = itemgetter(1)
"""Return the rule of an identity."""


def identity(plan: Plan) -> Identity:
    """Return what identifies a plan, without the names of its objects.

    Its rule is the one that has last values, or the first one: which rules are in a plan changes
    with the exporters.
    """
    rules = [step.rule for step in plan.steps]
    with_last = (rule for rule in rules if rule.config.on_missing.last_known is not None)
    rule = next(with_last, rules[0])
    return plan.namespace, rule, plan.metric, str(plan.resource), str(plan.selector)


def last_known(steps: Iterable[Step]) -> float | None:
    """Return the seconds for which a last value is used; None if no rule says so."""
    ages = (step.rule.config.on_missing.last_known for step in steps)
    return next((age for age in ages if age is not None), None)


def complete(
    plan: Plan, values: Mapping[str, Value], last: LastValues, *, now: float, keep: bool = True
) -> Mapping[str, Value]:
    """Add the last values to the `values` that `custom` returned at `now` (Unix seconds).

    With `keep`, `values` are the next last values.
    """
    max_age = last_known(plan.steps)
    if max_age is None:
        return values
    found: dict[str, Value] = {}
    of_plan = identity(plan)
    for name in plan.names:
        key = (*of_plan, name)
        if name in values:
            found[name] = values[name]
            if keep:
                last.set(key, values[name])
        elif (value := last.get(key)) is not None and value.time >= now - max_age:
            found[name] = value
    return found


def of_workloads(
    pods: Mapping[str, Sequence[str]], values: Mapping[str, Value], how: Workloads
) -> dict[str, Value]:
    """Return the values of workloads, from their `pods` and the values of these.

    Pods without a value do not count; a workload without any is missing.
    """
    found = {}
    for workload, names in pods.items():
        if of_pods := [values[name] for name in names if name in values]:
            found[workload] = Value(
                milli=_OF_MILLIS[how]([each.milli for each in of_pods]),
                time=min(each.time for each in of_pods),
                samples=sum(each.samples for each in of_pods),
            )
    return found


def external(
    plan: ExternalPlan, samples: Sequence[Sample], *, scalar: bool = False
) -> tuple[ExternalValue, ...]:
    """Return one value for each sample, in the order of Prometheus, with all its labels."""
    on_nan = plan.step.rule.config.on_nan
    values = []
    for sample in samples:
        finite = math.isfinite(sample.value)
        if finite or on_nan == "zero":
            number = sample.value if finite else 0.0
            value = Value(milli=quantity.milli(number), time=sample.time, samples=1)
            values.append(ExternalValue(labels=None if scalar else sample.labels, value=value))
    return tuple(values)


def _combined(plan: Plan, step: Step, name: str, samples: Sequence[Point]) -> Value:
    if len(samples) == 1:  # as in most rules; every aggregate of one number is this number
        ((number, time, _),) = samples
        return Value(milli=quantity.milli(number), time=time, samples=1)
    numbers = [number for number, _, _ in samples]
    aggregate = step.rule.config.aggregate
    if aggregate == "error":
        place = f" in namespace {plan.namespace}" if plan.namespace else ""
        raise AmbiguousSampleError(
            f"{step.rule.config.where}: its query returned {len(numbers)} samples for "
            f"{plan.resource}/{name}{place}, and the rule says `aggregate: error`. Aggregate by "
            f"{step.binding.resource} in the query, or set `aggregate` to avg, max, min or sum"
        )
    return Value(
        milli=_AGGREGATES[aggregate](numbers),
        time=min(time for _, time, _ in samples),
        samples=len(samples),
    )


def _sum(numbers: list[float]) -> int:
    """Return the sum in thousandths: added exactly, then rounded to a double if in range."""
    total = sum(map(Fraction, numbers))
    try:
        return quantity.milli(float(total))
    except OverflowError:
        return int(total * 1000)


def average(numbers: Sequence[float]) -> int:
    """Return the mean in thousandths, rounded to a double once: of 0.1, 0.2 and 0.3 it is 0.2."""
    if len(numbers) == 1:
        return quantity.milli(numbers[0])
    return quantity.milli(float(sum(map(Fraction, numbers)) / len(numbers)))


_AGGREGATES: Mapping[str, Callable[[list[float]], int]] = {
    "avg": average,
    "max": lambda numbers: quantity.milli(max(numbers)),
    "min": lambda numbers: quantity.milli(min(numbers)),
    "sum": _sum,
}
_OF_MILLIS: Mapping[Workloads, Callable[[list[int]], int]] = {
    "avg": lambda millis: math.trunc(Fraction(sum(millis), len(millis))),
    "max": max,
    "min": min,
    "sum": sum,
}
