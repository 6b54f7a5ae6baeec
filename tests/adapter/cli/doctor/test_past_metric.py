"""Readings of a metric of pods in the past."""

from __future__ import annotations

import pytest

from adapter.cli.doctor.past_metric import PastMetric
from rules.hpa.autoscaler import Pod
from rules.hpa.past_pods import PastPods
from rules.hpa.replay import MetricReading
from rules.query.aggregate import Value
from tests.adapter.server.evaluation.support import USED
from tests.rules.hpa import documents

HPA = documents.hpa(documents.pods_metric())
RUNNING = documents.pod("a")


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([RUNNING], MetricReading(milli=7000)),
        ([RUNNING, documents.pod("b", deleted=True)], MetricReading(milli=7000)),
        ([documents.pod("a", deleted=True)], MetricReading(milli=None)),
        ([documents.pod("a", "Pending")], MetricReading(milli=None)),
    ],
)
def test_samples_of_pods_that_do_not_count_are_no_value(
    pods: list[Pod], expected: MetricReading
) -> None:
    metric = PastMetric(HPA, HPA.metrics[0], HPA.target, (USED, ()))

    read = metric._reading(
        {"a": Value(milli=7000, time=0.0, samples=1)}, PastPods(pods=tuple(pods)), ("a",)
    )

    assert read == expected
