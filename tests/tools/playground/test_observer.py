from __future__ import annotations

import pytest

from tests.tools.playground import sample_view
from tools.cluster.hpa import Hpa
from tools.playground import observer


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
    return Hpa(document=document, cells=sample_view.CELLS)


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
    ("reason", "message", "line"),
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
            id="other event",
        ),
    ],
)
def test_event_is_one_line(reason: str, message: str, line: str) -> None:
    assert observer.format_event(reason, message) == line


def test_event_is_yielded_once_and_again_when_its_count_rises() -> None:
    counts: dict[str, int] = {}
    first = event("a", "New size: 2; reason: x")
    later = event("b", "New size: 5; reason: y", at="2026-01-01T00:00:09Z")

    assert list(observer.new_events([later, first], counts)) == ["scaled to 2: x", "scaled to 5: y"]
    assert list(observer.new_events([first, later], counts)) == []
    again = event("a", "New size: 2; reason: x", count=2, at="2026-01-01T00:01:00Z")
    assert list(observer.new_events([again, later], counts)) == ["scaled to 2: x"]


@pytest.mark.parametrize(
    ("metric", "name", "target"),
    [
        pytest.param(pods("20"), "duty", 20.0, id="pods"),
        pytest.param(external("1500m"), "queue", 1.5, id="external"),
        pytest.param(resource(80), "cpu", 80.0, id="resource"),
    ],
)
def test_autoscaler_has_the_first_metric(metric: dict, name: str, target: float) -> None:
    scaler = observer.autoscaler(hpa(metric, None))

    assert (scaler.metric, scaler.target) == (name, target)
    assert (scaler.min_replicas, scaler.max_replicas) == (1, 10)
    assert scaler.cells == sample_view.CELLS


@pytest.mark.parametrize(
    ("value", "parsed"), [("20", 20.0), ("19666m", 19.666), ("1k", 1000.0), (None, None)]
)
def test_current_value_is_parsed_as_a_quantity(value: str | None, parsed: float | None) -> None:
    current = value and [{"type": "Pods", "pods": {"current": {"averageValue": value}}}]

    assert observer.current_value(hpa(pods("20"), current)) == parsed
