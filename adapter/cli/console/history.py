"""History of one autoscaler: from kube-state-metrics or Events. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from adapter.cli.console.autoscalers import ReplicaSample
from adapter.cli.doctor import history
from adapter.clients.prometheus_result import RangeResult
from rules.hpa.autoscaler import Autoscaler

RANGES = {"15m": 900.0, "1h": 3600.0, "6h": 21_600.0, "1d": 86_400.0, "7d": 604_800.0}
"""Time range that a page offers -> its seconds."""
RANGE = "6h"
"""The range of a page without another one."""
POINTS = 240
"""Points of a line from Prometheus."""
_PRESENT, _WANTED, _VALUE = history.CURRENT, history.DESIRED, history.TARGET_METRIC
_NEW_SIZE = re.compile(r"New size: ([0-9]+);")
"""Message of the Event with which the controller reports a rescale."""
_TYPES = {"AverageValue": "average", "Value": "value", "Utilization": "utilization"}


def query(namespace: str, name: str) -> str:
    """Return the query for the status of an HPA."""
    return history.of_status(namespace, name, _PRESENT, _WANTED, _VALUE)


def samples(hpa: Autoscaler, ranges: Iterable[RangeResult]) -> list[ReplicaSample]:
    """Return what the series say, oldest first; times without replicas are left out."""
    found: dict[tuple[str, str, str], dict[float, float]] = {}
    for each in ranges:
        labels = each.labels
        key = labels.get("metric_name", ""), labels.get("metric_target_type", "")
        points = found.setdefault((labels.get("__name__", ""), *key), {})
        points |= {time: value for time, value in each.points if math.isfinite(value)}
    present, wanted = (found.get((name, "", ""), {}) for name in (_PRESENT, _WANTED))
    values = [
        (found.get((_VALUE, each.name, _TYPES[each.target]), {}), each.target)
        for each in hpa.metrics
    ]
    return [
        ReplicaSample(
            time,
            int(present[time]),
            int(wanted.get(time, present[time])),
            tuple(
                round(points[time] * (1 if target == "Utilization" else 1000))
                if time in points
                else None
                for points, target in values
            ),
        )
        for time in sorted(present)
    ]


def rescales(events: Iterable[Mapping[str, Any]]) -> list[ReplicaSample]:
    """Return the desired replicas that the controller's Events report, oldest first.

    Equal Events are one, which has the time of the last: what was before that is not known.
    """
    found = [
        (datetime.fromisoformat(each["time"]).timestamp(), int(size[1]), each["count"] > 1)
        for each in events
        if each["reason"] == "SuccessfulRescale"
        and (size := _NEW_SIZE.match(each["message"]))
        and each["time"]
    ]
    since = max((time for time, _, repeated in found if repeated), default=0.0)
    return [ReplicaSample(time, None, size, ()) for time, size, _ in sorted(found) if time >= since]
