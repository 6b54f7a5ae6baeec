"""Charts of one autoscaler: each metric with its target, and replicas. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from adapter.console import chart
from adapter.console.autoscalers import Sample
from adapter.console.chart import Chart, Series
from rules.hpa.autoscaler import Autoscaler


def charts(hpa: Autoscaler, samples: Sequence[Sample]) -> list[Chart]:
    """Return a chart of each metric with its target, and one of replicas."""
    found = []
    for index, metric in enumerate(hpa.metrics):
        unit = 1.0 if metric.target == "Utilization" else 1000.0
        known = [each for each in samples if index < len(each.values)]
        points = [
            (each.time, None if (value := each.values[index]) is None else value / unit)
            for each in known
        ]
        target = [(each.time, metric.value / unit) for each in known]
        found.append(
            chart.draw(
                str(metric),
                [
                    Series(label="target", style="target", points=target),
                    Series(label="value", style="value", points=points),
                ],
            )
        )
    present = [(each.time, float(each.present)) for each in samples]
    wanted = [(each.time, float(each.wanted)) for each in samples]
    found.append(
        chart.draw(
            "Replicas",
            [
                Series(label="wanted", style="target", points=wanted, steps=True),
                Series(label="present", style="value", points=present, steps=True),
            ],
        )
    )
    return [each for each in found if each is not None]
