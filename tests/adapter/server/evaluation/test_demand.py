from __future__ import annotations

import pytest

from adapter.server.evaluation.demand import Demand
from rules.query.plan import SelectedObjects


def demand_for(*questions: tuple[str, tuple[str, ...]], at: float = 0.0) -> Demand:
    demand = Demand()
    for question in questions:
        demand.record(question, at)
    return demand


def many(number: int, namespaces: int = 1) -> list[tuple[str, tuple[str, ...]]]:
    """Return questions for `number` names in all, ten names each."""
    return [
        (f"n{i % namespaces}", tuple(f"p{i}-{j}" for j in range(10))) for i in range(number // 10)
    ]


def test_objects_are_the_union_of_what_was_requested():
    demand = demand_for(("b", ("x", "y")), ("a", ("y", "z")))

    assert demand.objects(1, returned=None, wide=True) == SelectedObjects(
        namespaces=("a", "b"), names=("x", "y", "z")
    )


def test_old_questions_are_forgotten():
    demand = demand_for(("a", ("x",)))
    demand.record(("a", ("y",)), 100)
    demand.record(("a", ("z",)), 130)

    assert demand.objects(130, returned=None, wide=True) == SelectedObjects(
        namespaces=("a",), names=("y", "z")
    )
    assert demand.size == 4


@pytest.mark.parametrize(
    ("requested", "returned", "matched"),
    [
        (300, None, True),
        (310, None, False),
        (100, 150, False),
        (100, 1000, True),
        (2000, 4000, True),
        (2000, 3000, False),
        (2010, 100_000, False),
    ],
)
def test_names_are_matched_if_they_are_few_or_most_samples_are_not_wanted(
    requested, returned, matched
):
    demand = demand_for(*many(requested))

    objects = demand.objects(100, returned=returned, wide=True)

    assert objects is not None
    assert (objects.names is not None) == matched
    assert objects.namespaces == ("n0",)


def test_names_must_be_matched_if_the_query_without_them_failed():
    few, too_many = demand_for(*many(2000)), demand_for(*many(2010))

    objects = few.objects(100, returned=None, wide=False)
    assert objects is not None
    assert len(objects.names or ()) == 2000
    assert too_many.objects(100, returned=None, wide=False) is None


def test_many_namespaces_are_not_matched():
    demand = demand_for(*((f"n{i}", ("p",)) for i in range(101)))

    assert demand.objects(100, returned=None, wide=True) == SelectedObjects(
        namespaces=None, names=("p",)
    )


def test_after_a_start_every_object_is_expected():
    demand = Demand()
    for i in range(20):
        assert not demand.storm(0.4 * i)
        demand.record(("a", (f"p{i}",)), 0.4 * i)

    assert demand.storm(8)
    assert demand.objects(8, returned=None, wide=True) == SelectedObjects(
        namespaces=None, names=None
    )
    assert not demand.storm(10.1)


def test_busy_means_three_requests_within_the_freshness():
    demand = demand_for(("a", ("x",)), ("a", ("x",)))
    assert not demand.busy(0, 1)

    demand.record(("a", ("x",)), 0.9)

    assert demand.busy(0.9, 1)
    assert not demand.busy(0.9, 0.9)
    assert not demand.busy(0.9, 0)


def test_demand_is_bounded():
    demand = Demand()
    for i in range(20_000):
        demand.record(("a", (f"p{i}",)), 0)
    assert demand.size == 2 * 8192

    for i in range(300):
        demand.record((f"n{i}", tuple(map(str, range(1000)))), 0)
    assert demand.size == 100_100
