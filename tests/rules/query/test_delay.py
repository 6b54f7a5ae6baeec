"""What delays the value of a query."""

from __future__ import annotations

import pytest

from rules.query import delay


@pytest.mark.parametrize(
    ("query", "seconds", "function"),
    [
        ("avg by (pod) (a)", 0, ""),
        ("avg_over_time(a[3m])", 180, "avg_over_time"),
        ("sum(rate(a[5m])) / sum(rate(b[2m]))", 300, "rate"),
        ("histogram_quantile(0.95, sum by (le) (rate(a_bucket[5m])))", 300, "rate"),
        ("quantile_over_time(0.9, a[4m])", 240, "quantile_over_time"),
        ("avg_over_time((max by (pod) (a))[3m:15s])", 180, "avg_over_time"),
        ("avg_over_time(rate(a[2m])[3m:15s])", 300, "avg_over_time"),
        # A maximum rises at once, one of rates as the rates do.
        ("max_over_time(a[10m])", 0, ""),
        ("max_over_time(rate(a[2m])[10m:])", 120, "rate"),
        ("irate(a[5m]) + last_over_time(b[5m])", 0, ""),
        # Only the left side has the values.
        ("a and avg_over_time(b[5m]) > 1", 0, ""),
        ("a or avg_over_time(b[5m])", 300, "avg_over_time"),
        ("a offset 5m", 300, "offset"),
        ("a offset -5m", 0, ""),
        ("rate(a[1m] offset 5m)", 360, "rate"),
        ("avg_over_time(a[1m:] offset 5m)", 360, "avg_over_time"),
        ("topk(3, a) * scalar(avg_over_time(b[5m]))", 300, "avg_over_time"),
        ("a[", 0, ""),
    ],
)
def test_delay_of_a_query(query: str, seconds: float, function: str) -> None:
    assert delay.of_query(query) == delay.Delay(seconds=seconds, function=function)
