"""What is kept of an HPA: each limit on both sides of its edge, and whatever stands in it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.clients import collection
from adapter.clients.collection import Unreadable
from adapter.clients.value_index import Item
from adapter.server.autoscalers import watched_hpa
from adapter.server.autoscalers.watched_hpa import WatchedHpa
from adapter.server.cluster.shared_index import SharedIndex
from rules import limits
from rules.limits import HPA_TEXT
from tests.adapter.server.autoscalers.test_watch import CPU, described, external, hpa, pods
from tests.adapter.server.cluster.test_unreadable import hostile

LIMITS = limits.DEFAULT


def parsed(*metrics: Any) -> Item[WatchedHpa]:
    return watched_hpa.parse(hpa(*metrics))


def watched(*metrics: Any) -> Any:
    return parsed(*metrics).value


def long(size: int) -> dict[str, Any]:
    """Return a metric whose JSON has so many bytes."""
    missing = size - len(orjson.dumps(pods("")))
    return pods("x" * missing)


def test_metrics_beyond_the_limit_of_one_hpa_are_left_out() -> None:
    names = [f"m{number}" for number in range(LIMITS.hpa_metrics + 1)]

    assert watched(*map(pods, names[:-1])).left_out == {}
    found = watched(*map(pods, names))

    assert [each.name for each in found.metrics] == names[:-1]
    assert found.left_out == {"hpa-metrics": 1}


def test_a_metric_of_too_many_bytes_is_left_out_alone() -> None:
    edge = LIMITS.hpa_metric_text
    assert watched(long(edge)).left_out == {}

    found = watched(long(edge + 1), pods("b"))

    assert [each.name for each in found.metrics] == ["b"]
    assert found.left_out == {"hpa-metric-text": 1}


@pytest.mark.parametrize(
    "metric",
    [
        {"type": "Later", "later": {"metric": {"name": "x"}, "target": {"value": "1"}}},
        {"type": "Pods", "pods": {"metric": {"name": 5}, "target": {"averageValue": "1"}}},
        {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"averageValue": "1e999"}}},
        {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {}}},
        {"type": "Pods"},
        "junk",
        None,
    ],
    ids=str,
)
def test_a_metric_that_cannot_be_read_is_left_out_alone(metric: Any) -> None:
    found = watched(metric, pods("b"))

    assert [each.name for each in found.metrics] == ["b"]
    assert found.left_out == {"unreadable": 1}


def test_a_target_of_too_many_bytes_makes_the_hpa_unreadable() -> None:
    with pytest.raises(ValueError, match=r"its scaleTargetRef has \d+ bytes"):
        watched_hpa.parse(hpa(name="x" * LIMITS.hpa_metric_text))


def test_an_hpa_counts_by_its_metrics_and_by_their_text() -> None:
    assert parsed("junk").size == 1
    assert parsed(*map(pods, "abc")).size == 3
    assert parsed(*[long(1000)] * 3).size == pytest.approx(3 * 1000 / HPA_TEXT, abs=1)


def test_the_limits_are_those_of_the_flag() -> None:
    few = LIMITS.with_values({"hpa-metrics": 1, "hpa-metric-text": 200})

    assert watched_hpa.parse(hpa(pods("a"), pods("b")), few).value.left_out == {"hpa-metrics": 1}
    assert watched_hpa.parse(hpa(long(201)), few).value.left_out == {"hpa-metric-text": 1}


def test_metrics_that_are_left_out_take_no_memory() -> None:
    def peak(number: int) -> int:
        document = hpa(*(pods(f"m{each}") for each in range(number)))
        tracemalloc.start()
        watched_hpa.parse(document)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(13_500) < 1.5 * peak(LIMITS.hpa_metrics)


@pytest.mark.parametrize(
    "metric", [pods("util"), external("Queue"), CPU, described("Service", "v1")], ids=str
)
@given(data=st.data())
def test_whatever_stands_in_an_hpa_is_read_or_refused_alone(
    metric: dict[str, Any], data: st.DataObject
) -> None:
    index: SharedIndex[WatchedHpa] = SharedIndex(LIMITS.hpa_metrics_all)
    bad = hpa(metric, CPU)
    bad["metadata"] = {"namespace": "a", "name": "w", "uid": "1", "creationTimestamp": "2026"}

    for each in (data.draw(hostile(bad)), hpa(pods("util"), name="good")):
        found = collection.read(each, watched_hpa.parse)
        if isinstance(found, Unreadable):
            index.remove(found.namespace, found.name)
        else:
            index.put(found)
            assert found.size <= limits.DEFAULT.hpa_metrics * LIMITS.hpa_metric_text // HPA_TEXT

    assert "good" in [each.name for each in index.values()]
