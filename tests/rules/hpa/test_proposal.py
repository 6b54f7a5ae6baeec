"""Proposals of single metrics: the values of the walkthroughs, and the rules of the controller."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest

from rules.hpa import autoscaler, proposal
from rules.hpa.autoscaler import Pod
from rules.hpa.proposal import PodValue, Proposal
from tests.rules.hpa.documents import (
    external_metric,
    hpa,
    object_metric,
    pod,
    pods,
    pods_metric,
    resource_metric,
    scale,
)

TOLERANCES = 0.1, 0.1
STARTED = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()


def of_pods(
    values: Mapping[str, float], listed: list[Pod], *, current: int, target: str = "40"
) -> Proposal:
    (metric,) = hpa(pods_metric(target)).metrics
    given = {name: PodValue(value=int(value * 1000)) for name, value in values.items()}
    return proposal.of_pods(metric, given, listed, current=current, tolerances=TOLERANCES)


@pytest.mark.parametrize(
    ("values", "target", "shown", "replicas"),
    [
        ([63], "40", "63", 2),
        ([100, 0], "40", "50", 3),
        ([0, 0, 0], "40", "0", 0),
        ([22], "20", "22", 1),  # exactly at the tolerance
        ([23], "20", "23", 2),
        ([11.5, 11.5], "20", "11500m", 2),  # 1.15 replicas
        ([36], "40", "36", 1),
        ([35], "40", "35", 1),
        ([100, 100, 100.001], "40", "100", 8),  # the mean is cut to thousandths
        ([44.0009, 44.0], "40", "44", 2),
    ],
)
def test_the_average_of_all_pods_decides(
    values: list[float], target: str, shown: str, replicas: int
) -> None:
    named = {f"p{index}": value for index, value in enumerate(values)}
    found = of_pods(named, pods(len(values)), current=len(values), target=target)

    assert (found.metric.written(found.current), found.replicas) == (shown, replicas)
    assert found.groups.counted == tuple(named)
    assert found.adjusted is None


def test_a_pod_without_a_value_counts_as_0_before_a_scale_up() -> None:
    found = of_pods({"p0": 100, "p1": 100}, pods(3), current=3)

    assert (found.ratio, found.adjusted) == (2.5, pytest.approx(1.66665))
    assert found.groups.missing == ("p2",)
    assert found.replicas == 5


def test_a_pod_without_a_value_counts_as_the_target_before_a_scale_down() -> None:
    found = of_pods({"p0": 0, "p1": 0}, pods(3), current=3)

    assert found.adjusted == pytest.approx(0.333, abs=0.001)
    assert found.replicas == 1


def test_pods_without_values_never_turn_the_direction() -> None:
    """One of four pods at 2.5 times the target would be 0.625 with the others as 0."""
    found = of_pods({"p0": 100}, pods(4), current=4)

    assert found.adjusted == 0.625
    assert found.replicas == 4


def test_a_pending_pod_counts_as_0_before_a_scale_up_and_not_at_all_before_a_scale_down() -> None:
    listed = [pod("p0"), pod("p1", "Pending")]

    up = of_pods({"p0": 100, "p1": 100}, listed, current=2)
    down = of_pods({"p0": 0}, listed, current=2)

    assert (up.groups.unready, up.adjusted, up.replicas) == (("p1",), 1.25, 3)
    assert (down.adjusted, down.replicas) == (None, 0)


def test_deleted_and_failed_pods_are_ignored_and_others_are_not() -> None:
    """A finished pod counts as missing; a pod that is not ready has a value like any other."""
    listed = [
        pod("p0"),
        pod("p1", deleted=True),
        pod("p2", "Failed"),
        pod("p3", "Succeeded"),
        pod("p4", ready="False"),
    ]
    found = of_pods({"p0": 60, "p1": 1000, "p4": 60, "foreign": 60}, listed, current=2)

    assert found.groups == proposal.Groups(
        counted=("p0", "p4"), missing=("p3",), ignored=("p1", "p2")
    )
    assert (found.current, found.adjusted, found.replicas) == (60_000, 1.125, 5)


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        ([], "no pods returned by selector while calculating replica count"),
        (
            [pod("p0", "Pending")],
            "did not receive metrics for targeted pods (pods might be unready)",
        ),
    ],
)
def test_without_a_pod_that_counts_there_is_no_proposal(listed: list[Pod], error: str) -> None:
    found = of_pods({"p0": 1}, listed, current=1)

    assert (found.replicas, found.error) == (None, error)


@pytest.mark.parametrize(
    ("value", "current", "ready", "replicas"),
    [
        (12, 1, 1, 3),
        (7.666, 3, 3, 5),
        (5, 3, 3, 3),
        (5.5, 3, 2, 3),  # within the tolerance, the ready pods do not matter
        (0, 3, 3, 0),
        (12, 3, 1, 3),  # only ready pods count
        (12, 0, 0, 3),  # from zero, the ratio is the number
    ],
)
def test_an_object_metric_multiplies_the_ready_pods(
    value: float, current: int, ready: int, replicas: int
) -> None:
    (metric,) = hpa(object_metric(type="Value", value="5")).metrics
    others = [pod("q", ready="False"), pod("r", ready="Unknown"), pod("s", "Pending")]
    listed = [*pods(ready), *others]

    counted = proposal.ready_pods(listed)
    found = proposal.of_value(
        metric, int(value * 1000), counted, scale(current), tolerances=TOLERANCES
    )

    assert found.replicas == replicas


@pytest.mark.parametrize(
    ("value", "replicas", "shown", "desired"),
    [(100, 1, "100", 4), (100, 4, "25", 4), (85, 3, "28334m", 3), (0, 3, "0", 0), (32, 1, "32", 1)],
)
def test_an_average_of_an_external_metric_is_divided_by_the_replicas(
    value: int, replicas: int, shown: str, desired: int
) -> None:
    (metric,) = hpa(external_metric(type="AverageValue", averageValue="30")).metrics

    found = proposal.of_value(
        metric, value * 1000, None, scale(9, status=replicas), tolerances=TOLERANCES
    )

    assert (metric.written(found.current), found.replicas) == (shown, desired)
    assert str(metric) == "External metric queue_length"
    assert metric.selector == "queue=a"


@pytest.mark.parametrize(
    ("target", "values", "replicas"),
    [
        ("AverageValue", [-90, 30], 2**31 - 1),  # a sum below 0 counts as an overflow
        ("AverageValue", [30, -90, 90], 2**31 - 1),
        ("AverageValue", [120, -30], 3),
        ("Value", [-90, 30], -4),
        ("Value", [2**62, 2**62], 2**31 - 1),
    ],
)
def test_the_sum_of_an_external_metric_is_that_of_the_controller(
    target: str, values: list[int], replicas: int
) -> None:
    key = "averageValue" if target == "AverageValue" else "value"
    (metric,) = hpa(external_metric(**{"type": target, key: "30"})).metrics
    total = proposal.total(metric, [value * 1000 for value in values])

    found = proposal.of_value(metric, total, 2, scale(2), tolerances=TOLERANCES)

    assert found.replicas == replicas


def test_a_proposal_of_more_than_32_bits_overflows() -> None:
    metric = hpa(object_metric(type="AverageValue", averageValue="1")).metrics[0]

    found = of_pods({"p0": 2e12}, pods(1), current=1)
    average = proposal.of_value(metric, 10**13, None, scale(1), tolerances=TOLERANCES)

    assert (found.replicas, average.replicas) == (-(2**31), -(2**31))


def test_a_pod_with_requests_of_its_own_has_those_of_its_containers_for_the_rest() -> None:
    def container(name: str, cpu: str, policy: str = "") -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy}

    spec: dict[str, Any] = {
        "containers": [container("a", "500m")],
        "initContainers": [container("s", "100m", "Always"), container("i", "2")],
        "overhead": {"cpu": "250m", "memory": "1k"},
        "resources": {"requests": {"memory": "5k"}},
    }

    def requests() -> Mapping[str, int]:
        return autoscaler.pod({"metadata": {"name": "p0"}, "spec": spec}).pod_requests

    assert requests() == {"cpu": 2350, "memory": 6_000_000}
    spec["initContainers"].pop()
    assert requests() == {"cpu": 850, "memory": 6_000_000}
    spec["resources"] = {"requests": {"example.com/gpu": "1"}}
    assert requests() == {}


def test_configured_tolerances_replace_the_default() -> None:
    found = hpa(pods_metric(), up={"tolerance": "0"}, down={"tolerance": "500m"})

    assert found.tolerances == (0.5, 0.0)


CPU = {"a": {"cpu": "500m"}, "b": {"cpu": "500m"}}


def of_cpu(values: dict[str, PodValue], listed: list[Pod], now: float = 1e12) -> Proposal:
    (metric,) = hpa(resource_metric(type="Utilization", averageUtilization=50)).metrics
    return proposal.of_pods(
        metric, values, listed, current=len(listed), tolerances=TOLERANCES, now=now
    )


def test_utilization_is_relative_to_the_requests() -> None:
    found = of_cpu({"p0": PodValue(value=900)}, [pod("p0", requests=CPU)])

    assert (found.metric.written(found.current), found.ratio, found.replicas) == ("90%", 1.8, 2)


def test_a_pod_without_usage_counts_as_its_request_before_a_scale_down() -> None:
    listed = [pod("p0", requests=CPU), pod("p1", requests=CPU)]

    found = of_cpu({"p0": PodValue(value=100)}, listed)

    assert (found.ratio, found.adjusted, found.replicas) == (0.2, 1.1, 2)


@pytest.mark.parametrize(
    ("ready", "time", "now", "counts"),
    [
        ("True", 100, 200, True),
        ("True", 60, 200, False),  # the window began before the pod was ready
        ("Unknown", 100, 200, True),
        ("False", 100, 200, False),
        ("False", 100, 1000, False),  # never ready: the condition changed within 30 s
        ("", 100, 1000, False),
    ],
)
def test_cpu_usage_of_a_pod_that_starts_is_ignored(
    ready: str, time: float, now: float, *, counts: bool
) -> None:
    listed = [pod("p0", requests=CPU, ready=ready)]
    values = {"p0": PodValue(value=900, time=STARTED + time)}

    found = of_cpu(values, listed, now=STARTED + now)

    assert (found.replicas is not None) == counts


@pytest.mark.parametrize(
    ("container", "error"),
    [
        ("", "missing request for cpu in container c of Pod p0"),
        ("d", "container d not found in Pod p0"),
        ("c", "missing request for cpu in container c of Pod p0"),
    ],
)
def test_without_a_request_there_is_no_utilization(container: str, error: str) -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    (metric,) = hpa(resource_metric(container=container, **target)).metrics
    listed = [pod("p0", requests={"a": {"cpu": "1"}, "c": {}})]

    found = proposal.of_pods(
        metric, {"p0": PodValue(value=1)}, listed, current=1, tolerances=TOLERANCES, now=1e12
    )

    assert found.error == error
