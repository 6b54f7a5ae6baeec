"""Rows of autoscalers: what they say is wrong, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.cli.console import rows
from rules.findings import State
from tests.adapter.cli.console.conftest import status
from tests.rules.hpa import documents


def document(name: str, value: str | None, target: str, **conditions: Any) -> Any:
    """Return an HPA with one metric of pods, of which one replica is present."""
    hpa = documents.document(documents.pods_metric(target, name), maxReplicas=1)
    return hpa | {"status": status(value, **conditions)}


@pytest.mark.parametrize(
    ("name", "value", "target", "sentence"),
    [
        ("gpu_duty_cycle_current", "30", "200m", "Write the percentage: 20 for 20 %, not 0.2"),
        ("gpu_duty_cycle_current", "30", "20k", "Write the percentage, such as 20"),
        ("requests_total", "100k", "10", "Compute a rate in metricsQuery"),
        ("queue", "100", "10", "check that the target has the unit of the metric"),
        ("queue", "15", "10", "recommend about 2. Raise maxReplicas to allow more"),
    ],
)
def test_advice_is_that_of_explain(name, value, target, sentence):
    limited = ("True", "TooManyReplicas", "")
    row = rows.row(document(name, value, target, ScalingLimited=limited))

    assert row.state is State.WARNING
    assert row.sentence.endswith(sentence)


@pytest.mark.parametrize(
    ("kind", "reason", "replicas", "cure"),
    [
        ("AbleToScale", "FailedGetScale", None, "Correct scaleTargetRef in the HPA"),
        ("ScalingActive", "AmbiguousSelector", 0, "let each select pods of its own"),
        ("ScalingActive", "InvalidSelector", 0, "in the CustomResourceDefinition"),
        ("ScalingActive", "FailedGetPodsMetric", 0, "Run: gpu-metrics-adapter doctor"),
        ("", "", None, "Wait 15 s"),
    ],
)
def test_replicas_that_nobody_counted_are_unknown_and_each_fault_has_a_cure(
    kind, reason, replicas, cure
):
    found = document(
        "queue", None, "10", **({kind: ("False", reason, "it failed")} if kind else {})
    )
    found["status"] |= {"currentReplicas": 0, "desiredReplicas": 0}
    if not kind:
        found["status"]["conditions"] = []

    row = rows.row(found)

    assert (row.present, row.wanted) == (replicas, replicas)
    assert row.sentence.endswith(cure)
