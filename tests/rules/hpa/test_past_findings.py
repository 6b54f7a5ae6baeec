"""Findings from the past of an HPA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rules.hpa import past_findings, replay
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.replay import MetricReading, Sync
from tests.rules.hpa import documents

START = 1_800_000_000.0


def past(*parts: tuple[int, float, int]) -> list[Sync]:
    """Return syncs: of each part their number, the value of each pod, and the pods."""
    every = [(value, pods) for number, value, pods in parts for _ in range(number)]
    return [
        Sync(
            time=START + 15 * index,
            readings=(MetricReading(milli=int(1000 * value) * pods, counted=pods),),
            replicas=pods,
            present=pods,
            pods=pods,
            ready=pods,
        )
        for index, (value, pods) in enumerate(every)
    ]


def sentences(hpa: Autoscaler, history: Sequence[Sync]) -> list[str]:
    totals = [replay.is_load(each) for each in hpa.metrics]
    found = past_findings.findings(hpa, history, startup=60, step=15, totals=totals)
    return [each.sentence for each in found]


def hpa(minimum: int = 1) -> Autoscaler:
    return documents.hpa(documents.pods_metric("40"), minimum=minimum)


def test_settings_that_fit_have_no_finding() -> None:
    busy = past((80, 10, 2), (80, 70, 2), (80, 35, 4))

    assert sentences(hpa(), busy) == []


def test_a_target_that_was_never_reached_is_named() -> None:
    (found,) = sentences(hpa(), past((80, 10, 2), (80, 25, 2)))

    assert found.startswith(
        "duty_cycle_current: its target 40 % was never reached: 25 % was the highest value"
    )


def test_a_target_below_the_value_without_load_is_named() -> None:
    (found,) = sentences(hpa(), past((80, 90, 2), (80, 55, 4)))

    assert found.startswith("duty_cycle_current: its target 40 % is below the value without load")


def test_only_an_average_value_is_divided_by_the_replicas() -> None:
    busy = past((80, 30, 4), (80, 10, 4))
    history = [
        replace(each, readings=(MetricReading(milli=each.readings[0].milli),)) for each in busy
    ]

    for target in ({"value": "100"}, {"averageValue": "20"}):
        settings = documents.hpa(documents.object_metric(**target))
        found = past_findings.findings(settings, history, startup=60, step=15, totals=[True])
        assert list(found) == []


def test_a_metric_that_new_pods_do_not_share_is_named() -> None:
    shared = [(40, 60.0, 2), (40, 31.0, 4)] * 6
    not_shared = [(40, 30.0, 2), (40, 45.0, 4)] * 6

    assert sentences(hpa(), past(*shared)) == []
    (found,) = sentences(hpa(), past(*not_shared))
    assert "after 6 of 6 scale-ups it had not fallen once the new pods had started" in found


def test_a_minimum_that_was_never_needed_is_named() -> None:
    history = past((200, 10, 4), (100, 50, 4))

    (found,) = sentences(hpa(minimum=6), history)
    assert found.startswith("minReplicas: 6 replicas were never needed: the metrics need at most 5")
    assert sentences(hpa(minimum=5), history) == []
    assert sentences(replace(hpa(minimum=6), maximum=10_001), history) == []  # not simulated
