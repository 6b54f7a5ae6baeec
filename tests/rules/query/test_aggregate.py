from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rules.errors import AmbiguousSampleError
from rules.query import aggregate, plan
from rules.query.aggregate import NO_SAMPLES, Point, Reduction, Sample, SamplesByObject, Value
from rules.query.catalog import Step
from tests import world

RULE = """
- seriesQuery: m
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: m
"""


def custom(*extras: str, names: tuple[str, ...] = ("a", "b", "c")) -> plan.Plan:
    """A plan with one step for each of `extras`, which are further keys of its rule."""
    merge = "merge: true, " if len(extras) > 1 else ""
    text = "rules:" + "".join(
        f"{RULE}  <<: {{{merge}{extra}}}\n" if merge or extra else RULE for extra in extras
    )
    listings = ["m namespace pod"] * len(extras)
    return world.pods_plan(text, "m", names, *listings, namespace="ml")


def external(extra: str = "") -> plan.ExternalPlan:
    more = f"\n  {extra}" if extra else ""
    text = (
        "externalRules:\n- seriesQuery: m\n  metricsQuery: m\n  resources: {namespaced: false}"
        f"{more}\n"
    )
    return world.external_plan(text, "m", "m", namespace="ml")


def test_objects_without_a_recent_sample_are_left_out():
    (step,) = custom("maxSampleAge: 1m").steps
    vector = [sample("a", 1), sample("b", 2), sample("b", 3)]

    found = reduced(step, vector).by_object(reduced(step, [sample("b", 1), sample("c", 1)]))

    assert points(found[""], "a", "b", "c") == {"b": [(2, 100.0, ""), (3, 100.0, "")]}
    assert len(reduced(step, vector).by_object(reduced(step, []))[""]) == 0


def test_an_object_is_not_recent_because_one_in_another_namespace_is():
    (step,) = custom("maxSampleAge: 1m").steps
    vector = [sample("a", 1, namespace="x"), sample("a", 2, namespace="y")]

    recent = reduced(step, [sample("a", 1, namespace="y")], by_namespace=True)
    found = reduced(step, vector, by_namespace=True).by_object(recent)

    assert {space: points(each, "a") for space, each in found.items()} == {
        "x": {},
        "y": {"a": [(2, 100.0, "")]},
    }


def test_samples_are_kept_in_any_order_and_at_any_time():
    """Only the first sample of an object, at the time of the first one, is kept as a number."""
    (step,) = custom("").steps
    vector = [
        *(sample("a", 1), sample("b", 2), sample("b", 0), sample("c", 3, time=99.0)),
        *(sample("d", 0), sample("a", 0), sample("e", 5), sample("", 7)),
    ]

    reduction = reduced(step, vector[:3])
    reduction.add(vector[3:])

    assert reduction.count == len(vector)
    assert len(reduction.by_object()[""]) == 5
    assert points(reduction.by_object()[""], *"abcdef") == {
        "a": [(1, 100.0, ""), (0, 100.0, "")],
        "b": [(2, 100.0, ""), (0, 100.0, "")],
        "c": [(3, 99.0, "")],
        "d": [(0, 100.0, "")],
        "e": [(5, 100.0, "")],
    }


def reduced(step: Step, vector: Iterable[Sample], *, by_namespace: bool = False) -> Reduction:
    reduction = Reduction(step, by_namespace=by_namespace)
    reduction.add(vector)
    return reduction


def points(samples: SamplesByObject, *names: str) -> dict[str, list[Point]]:
    return {name: list(found) for name in names if (found := samples.of(name))}


def sample(pod: str, value: float, time: float = 100.0, **labels: str) -> Sample:
    return Sample(labels={"pod": pod, **labels}, value=value, time=time)


def aggregated(
    plan_: plan.Plan, vectors: list[list[Sample]], *, now: float = 0.0
) -> dict[str, Value]:
    samples = [
        reduced(step, vector).by_object().get("", NO_SAMPLES)
        for step, vector in zip(plan_.steps, vectors, strict=True)
    ]
    return aggregate.custom(plan_, samples, now=now)


def milli(plan_: plan.Plan, *vectors: list[Sample]) -> dict[str, int]:
    return {name: value.milli for name, value in aggregated(plan_, list(vectors)).items()}


def test_sample_belongs_to_the_object_that_its_label_names():
    vector = [sample("b", 20.5, time=7.25), sample("a", 1)]

    values = aggregated(custom(""), [vector])

    assert values == {
        "a": Value(milli=1000, time=100.0, samples=1),
        "b": Value(milli=20500, time=7.25, samples=1),
    }
    assert list(values) == ["a", "b"]


def test_other_labels_do_not_matter():
    vector = [sample("a", 1, namespace="another"), Sample(labels={"app": "a"}, value=9, time=1)]

    assert milli(custom(""), vector) == {"a": 1000}


def test_samples_of_other_objects_are_dropped():
    assert milli(custom("", names=("a",)), [sample("a", 1), sample("b", 2)]) == {"a": 1000}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("", 25_000),
        ("aggregate: avg", 25_000),
        ("aggregate: max", 40_000),
        ("aggregate: min", 10_000),
        ("aggregate: sum", 75_000),
    ],
)
def test_several_samples_of_one_object_are_aggregated(extra, expected):
    vector = [sample("a", 40, time=3), sample("a", 10, time=2), sample("a", 25, time=1)]

    values = aggregated(custom(extra), [vector])

    assert values == {"a": Value(milli=expected, time=1, samples=3)}


def test_several_samples_are_an_error_if_the_rule_says_so():
    with pytest.raises(
        AmbiguousSampleError, match=r"returned 2 samples for pods/a in namespace ml, .*error"
    ):
        aggregated(custom("aggregate: error"), [[sample("a", 1), sample("a", 2)]])


@pytest.mark.parametrize(
    "vector",
    [
        [sample("a", 1)],
        [sample("a", 1), sample("a", math.nan)],
        [sample("a", 1), sample("z", 1), sample("z", 2)],
    ],
    ids=["one sample", "other sample is NaN", "other samples are of another object"],
)
def test_one_sample_for_each_object_is_not_an_error(vector):
    assert milli(custom("aggregate: error"), vector) == {"a": 1000}


NOT_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NOT_FINITE)
def test_value_that_is_not_finite_is_missing(value):
    vector = [sample("a", value), sample("b", value, time=1), sample("b", 4, time=2)]

    values = aggregated(custom(""), [vector])

    assert values == {"b": Value(milli=4000, time=2, samples=1)}


@pytest.mark.parametrize("value", NOT_FINITE)
def test_value_that_is_not_finite_is_zero_if_the_rule_says_so(value):
    assert milli(custom("onNaN: zero"), [sample("a", value), sample("a", 4)]) == {"a": 2000}


def test_a_value_beyond_64_bits_is_exact():
    assert milli(custom(""), [sample("a", 2.0**80)]) == {"a": 2**80 * 1000}


def test_earlier_step_wins_for_each_object():
    first = [sample("a", 1), sample("b", math.nan)]
    second = [sample("a", 9), sample("b", 2), sample("c", 3)]

    assert milli(custom("", ""), first, second) == {"a": 1000, "b": 2000, "c": 3000}


def test_each_step_follows_its_own_rule():
    plan_ = custom("aggregate: max", "aggregate: error")
    first = [sample("a", 1), sample("a", 5)]
    second = [sample("a", 1), sample("a", 2), sample("b", 3)]

    assert milli(plan_, first, second) == {"a": 5000, "b": 3000}


def test_missing_objects_get_the_first_constant():
    plan_ = custom("", "onMissing: {value: 0.5}", "onMissing: {value: 7}")

    values = aggregated(plan_, [[sample("b", 1)], [], []], now=42.0)

    constant = Value(milli=500, time=42.0, samples=0)
    assert values == {
        "a": constant,
        "b": Value(milli=1000, time=100.0, samples=1),
        "c": constant,
    }
    assert list(values) == ["a", "b", "c"]


def test_zero_is_a_constant():
    assert milli(custom("onMissing: {value: 0}", names=("a",)), []) == {"a": 0}


def test_thousandths_are_truncated_toward_zero():
    assert milli(custom(""), [sample("a", 0.0019), sample("b", -0.0019)]) == {"a": 1, "b": -1}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [("aggregate: sum", 2 * int(1.5e308) * 1000), ("aggregate: avg", int(1.5e308) * 1000)],
)
def test_results_beyond_the_range_of_doubles_are_exact(extra, expected):
    vector = [sample("a", 1.5e308), sample("a", 1.5e308)]

    assert milli(custom(extra), vector) == {"a": expected}


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    numbers=st.lists(FINITE, min_size=2, max_size=8),
    method=st.sampled_from(["avg", "max", "min", "sum"]),
    shuffle=st.randoms(use_true_random=False),
)
@example(
    numbers=[8.988465674311579e307, 8.98846567431158e307, -4.9896007738368e291],
    method="sum",
    shuffle=random.Random(1),
)
def test_order_of_the_samples_does_not_matter(numbers, method, shuffle):
    plan_ = PLANS[method]
    vector = [sample("a", number, time=i) for i, number in enumerate(numbers)]
    shuffled = vector.copy()
    shuffle.shuffle(shuffled)

    assert aggregated(plan_, [vector]) == aggregated(plan_, [shuffled])


PLANS = {method: custom(f"aggregate: {method}") for method in ("avg", "max", "min", "sum")}


def test_external_values_have_all_labels_of_their_sample():
    samples = [
        Sample(labels={"__name__": "m", "queue": "b"}, value=2, time=1.5),
        Sample(labels={}, value=1, time=2),
    ]

    values = aggregate.external(external(), samples)

    assert [(each.labels, each.value) for each in values] == [
        ({"__name__": "m", "queue": "b"}, Value(milli=2000, time=1.5, samples=1)),
        ({}, Value(milli=1000, time=2, samples=1)),
    ]


def test_scalar_is_one_value_without_labels():
    values = aggregate.external(external(), [Sample(labels={}, value=3, time=5)], scalar=True)

    assert [(each.labels, each.value.milli) for each in values] == [(None, 3000)]


@pytest.mark.parametrize(("extra", "expected"), [("", []), ("onNaN: zero", [0])])
@pytest.mark.parametrize("value", NOT_FINITE)
def test_external_value_that_is_not_finite_follows_on_nan(extra, expected, value):
    values = aggregate.external(external(extra), [Sample(labels={}, value=value, time=5)])

    assert [each.value.milli for each in values] == expected
