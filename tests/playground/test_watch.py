from __future__ import annotations

import pytest

from tests.cluster.hpa import Hpa
from tests.playground import sample, watch


def event(uid: str, message: str, *, count: int = 1, at: str = "2026-01-01T00:00:00Z") -> dict:
    return {
        "metadata": {"uid": uid},
        "reason": "SuccessfulRescale",
        "message": message,
        "count": count,
        "lastTimestamp": at,
    }


def hpa(metric: dict, current: list[dict] | None) -> Hpa:
    spec = {"minReplicas": 1, "maxReplicas": 10, "metrics": [metric]}
    document = {"spec": spec, "status": {"currentMetrics": current}}
    return Hpa(document=document, cells=sample.CELLS)


def pods(amount: str) -> dict:
    target = {"type": "AverageValue", "averageValue": amount}
    return {"type": "Pods", "pods": {"metric": {"name": "duty"}, "target": target}}


def external(amount: str) -> dict:
    target = {"type": "Value", "value": amount}
    return {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}


def resource(amount: int) -> dict:
    target = {"type": "Utilization", "averageUtilization": amount}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        pytest.param(
            "SuccessfulRescale",
            "New size: 3; reason: pods metric duty_cycle_current above target",
            "scaled to 3: pods metric duty_cycle_current above target",
            id="scaled",
        ),
        pytest.param(
            "FailedGetPodsMetric",
            "unable to get metric:\n no metrics   returned",
            "FailedGetPodsMetric: unable to get metric: no metrics returned",
            id="anything else",
        ),
    ],
)
def test_an_event_is_a_sentence(reason: str, message: str, told: str) -> None:
    assert watch.sentence(reason, message) == told


def test_an_event_is_told_once_and_again_when_it_comes_again() -> None:
    told: dict[str, int] = {}
    first = event("a", "New size: 2; reason: x")
    later = event("b", "New size: 5; reason: y", at="2026-01-01T00:00:09Z")

    assert list(watch.news([later, first], told)) == ["scaled to 2: x", "scaled to 5: y"]
    assert list(watch.news([first, later], told)) == []
    again = event("a", "New size: 2; reason: x", count=2, at="2026-01-01T00:01:00Z")
    assert list(watch.news([again, later], told)) == ["scaled to 2: x"]


@pytest.mark.parametrize(
    ("metric", "name", "target"),
    [
        pytest.param(pods("20"), "duty", 20.0, id="pods"),
        pytest.param(external("1500m"), "queue", 1.5, id="external"),
        pytest.param(resource(80), "cpu", 80.0, id="resource"),
    ],
)
def test_the_autoscaler_is_what_its_first_metric_says(
    metric: dict, name: str, target: float
) -> None:
    found = watch.autoscaler(hpa(metric, None))

    assert (found.metric, found.target) == (name, target)
    assert (found.smallest, found.largest) == (1, 10)
    assert dict(zip(found.header, found.cells, strict=True))["REPLICAS"] == "5"


@pytest.mark.parametrize(
    ("value", "read"), [("20", 20.0), ("19666m", 19.666), ("1k", 1000.0), (None, None)]
)
def test_a_value_is_read_as_kubernetes_writes_it(value: str | None, read: float | None) -> None:
    current = value and [{"type": "Pods", "pods": {"current": {"averageValue": value}}}]

    assert watch.current(hpa(pods("20"), current)) == read
