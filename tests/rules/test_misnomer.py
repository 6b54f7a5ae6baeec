from __future__ import annotations

import time

import pytest

from rules import misnomer


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
    assert misnomer.close(name, {"power", "duty_cycle_now", "duty_cycle_over"}) == close


def test_a_name_that_is_very_long_resembles_nothing_and_takes_no_time():
    began = time.perf_counter()

    assert misnomer.close("a" * 1_000_000, {"a" * 1000}) == []
    assert time.perf_counter() - began < 1
