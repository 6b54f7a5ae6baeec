"""How far back queries read."""

from __future__ import annotations

import pytest

from rules import presets
from rules.query import window
from rules.ruleset import load


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", 0),
        ("rate(<<.Series>>{<<.LabelMatchers>>}[2m])", 120),
        ("rate(a[ 1m30s ]) / rate(b[30s])", 90),
        ("avg_over_time(max(<<.Series>>)[3m:15s])", 180),
        ("max_over_time(rate(a[2m])[10m:])", 720),
        ("a offset 2m or b OFFSET 30s", 120),
        ("rate(a[5m] offset 1h)", 3900),
        ("rate(a[300] offset 60)", 360),
        ('a{pod=~"b[0-9]|c[abc]"}', 0),
    ],
)
def test_ranges_subqueries_and_offsets_count(query, seconds) -> None:
    assert window.seconds(query) == seconds


def test_each_window_of_a_preset_is_found() -> None:
    rules = load([("", presets.text(name)) for name in ("gpu-dcgm", "inference-vllm")]).rules

    windows = {rule.config.name.as_: window.seconds(rule.config.metrics_query) for rule in rules}
    assert windows["duty_cycle_current"] == windows["requests_waiting_current"] == 0
    assert windows["requests_per_second_over_time"] == 120
    assert windows["duty_cycle_over_time"] == 180
    assert windows["time_to_first_token_p95_milliseconds_over_time"] == 300
