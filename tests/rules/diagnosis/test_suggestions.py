from __future__ import annotations

import time

import pytest

from rules.diagnosis import suggestions


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("duty_cycel_now", ["duty_cycle_now", "duty_cycle_over"]),
        ("powr", ["power"]),
        ("queue", []),
        ("", []),
    ],
)
def test_similar_names_are_suggested(name, similar):
    assert (
        suggestions.similar_names(name, {"power", "duty_cycle_now", "duty_cycle_over"}) == similar
    )


@pytest.mark.parametrize("typed", ["app_metric_1717_totl", "apq_metric_1717_total"])
def test_the_most_similar_of_very_many_names_is_found_quickly(typed):
    known = {f"app_metric_{number}_total" for number in range(20_000)}
    began = time.process_time()

    assert suggestions.similar_names(typed, known)[0] == "app_metric_1717_total"
    assert time.process_time() - began < 0.5


def test_a_very_long_name_gets_no_suggestions():
    began = time.perf_counter()

    assert suggestions.similar_names("a" * 1_000_000, {"a" * 1000}) == []
    assert time.perf_counter() - began < 1
