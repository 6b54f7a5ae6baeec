"""What metrics are by their names."""

from __future__ import annotations

import pytest

from rules.query import nature


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("duty_cycle_current", "%"),
        ("sm_active_current", "%"),
        ("kv_cache_utilization_current", "%"),
        ("requests_active_current", ""),
        ("dynamo_requests_active_current", ""),
        ("time_to_first_token_p95_milliseconds_over_time", "ms"),
        ("memory_used_bytes_current", "B"),
    ],
)
def test_the_unit_follows_from_the_name(name: str, unit: str) -> None:
    assert nature.unit(name) == unit
