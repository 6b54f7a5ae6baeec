"""Objectives: names, units and limits."""

from __future__ import annotations

import pytest

from rules.errors import UnreadableError
from rules.hpa import objective

NAMES = (
    "time_to_first_token_p95_milliseconds_over_time",
    "queue_time_p95_milliseconds_over_time",
    "queue_time_average_milliseconds_over_time",
    "checkout_seconds",
    "kv_cache_utilization_current",
    "memory_used_bytes_current",
    "requests_waiting_current",
)


@pytest.mark.parametrize(
    ("text", "metric", "limit"),
    [
        ("time_to_first_token_p95 < 500ms", NAMES[0], 500_000),
        ("time_to_first_token_p95<0.5s", NAMES[0], 500_000),
        (" queue_time_p95 < 1m30s ", NAMES[1], 90_000_000),
        ("queue_time_p95_milliseconds_over_time < 20", NAMES[1], 20_000),
        ("checkout < 250ms", NAMES[3], 250),
        ("checkout_seconds < 1.5", NAMES[3], 1_500),
        ("kv_cache_utilization < 80%", NAMES[4], 80_000),
        ("memory_used_bytes_current < 2Gi", NAMES[5], 2 * 1024**3 * 1000),
        ("requests_waiting_current < 500m", NAMES[6], 500),
    ],
)
def test_a_limit_has_the_unit_of_its_metric(text: str, metric: str, limit: int) -> None:
    assert objective.read(text, NAMES) == objective.Objective(metric=metric, limit=limit)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("time_to_first_token_p95", "must be METRIC < LIMIT"),
        ("time_to_first_token_p95 > 500ms", "must be METRIC < LIMIT"),
        ("absent < 500ms", "the cluster serves no metric absent"),
        (
            "queue_time < 5s",
            "beginning of queue_time_average_milliseconds_over_time, queue_time_p95",
        ),
        ("checkout < 5 parsecs", "must be METRIC < LIMIT"),
        ("checkout < 5parsecs", "unknown unit"),
        ("checkout < 0s", "must be above 0"),
        ("requests_waiting < 5ms", "requests_waiting_current has no such unit"),
        ("requests_waiting < 5%", "requests_waiting_current has no such unit"),
        ("memory_used_bytes < 2GB", "'2GB' is not a quantity"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem) as raised:
        objective.read(text, NAMES)

    assert raised.value.status == 400
    assert repr(text) in str(raised.value)
