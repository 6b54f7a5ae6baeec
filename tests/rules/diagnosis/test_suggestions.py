from __future__ import annotations

import time

import pytest

from rules.diagnosis import suggestions


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("duty_cycel_now", ["duty_cycle_now", "duty_cycle_over"]),
        ("powr", ["power"]),
        ("queue", []),
        ("", []),
    ],
)
def test_names_that_resemble_another(name, close):
    assert suggestions.close(name, {"power", "duty_cycle_now", "duty_cycle_over"}) == close


@pytest.mark.parametrize("typed", ["app_metric_1717_totl", "apq_metric_1717_total"])
def test_of_very_many_names_the_nearest_is_found_in_no_time(typed):
    known = {f"app_metric_{number}_total" for number in range(20_000)}
    began = time.process_time()

    assert suggestions.close(typed, known)[0] == "app_metric_1717_total"
    assert time.process_time() - began < 0.5


def test_a_name_that_is_very_long_resembles_nothing_and_takes_no_time():
    began = time.perf_counter()

    assert suggestions.close("a" * 1_000_000, {"a" * 1000}) == []
    assert time.perf_counter() - began < 1
