from __future__ import annotations

import pytest

from tests.playground import chart
from tests.playground.view import Moment


def moment(seconds: float, load: float = 0.0) -> Moment:
    return Moment(seconds=seconds, load=load, askers=0, value=None, wanted=0, ready=0)


@pytest.mark.parametrize(
    ("values", "rows", "drawn"),
    [
        pytest.param([0, 25, 50, 75, 100], 1, [" ▂▄▆█"], id="in one row"),
        pytest.param([0, 25, 50, 75, 100], 2, ["   ▄█", " ▄███"], id="from the ground up"),
        pytest.param([0.01], 2, [" ", "▁"], id="a trace is seen"),
        pytest.param([100.1, 300], 2, ["▲▲", "██"], id="too much for it"),
        pytest.param([50, None, 0], 2, ["   ", "█· "], id="unknown is not nothing"),
        pytest.param([], 2, ["", ""], id="no columns"),
    ],
)
def test_an_area_rises_in_eighths_of_a_row(values, rows: int, drawn: list[str]) -> None:
    assert chart.area(values, rows=rows, top=100) == drawn


@pytest.mark.parametrize(
    ("seconds", "width", "shown"),
    [
        pytest.param([], 2, [None, None], id="before the first look"),
        pytest.param([0.0], 3, [None, None, 0.0], id="now is on the right"),
        pytest.param([0.0, 1.0, 2.0], 2, [1.0, 2.0], id="the last look of each column counts"),
        pytest.param([0.0, 7.0], 4, [0.0, 0.0, 0.0, 7.0], id="a slow look leaves no hole"),
        pytest.param([0.0, 2.0, 4.0, 6.0], 2, [4.0, 6.0], id="what is older is not shown"),
        pytest.param([0.0, 8.0], 2, [0.0, 8.0], id="held from before the first column"),
    ],
)
def test_a_column_is_two_seconds(seconds, width: int, shown) -> None:
    found = chart.columns([moment(each) for each in seconds], width)

    assert [each and each.seconds for each in found] == shown


@pytest.mark.parametrize(
    ("value", "row"), [(0, 3), (20, 1), (19.9, 2), (25, 1), (39, 0), (40, 0), (90, 0)]
)
def test_a_line_is_drawn_where_its_value_begins(value: float, row: int) -> None:
    assert chart.row_of(value, rows=4, top=40) == row


@pytest.mark.parametrize(
    ("value", "above"),
    [(0, 1), (0.7, 0.8), (1, 1), (1.2, 1.5), (99, 100), (100, 100), (101, 150), (620, 800)],
)
def test_a_scale_ends_at_a_round_number(value: float, above: float) -> None:
    assert chart.nice(value) == pytest.approx(above)


def test_a_meter_has_a_bar_for_each_gpu_and_a_dot_for_a_free_one() -> None:
    assert chart.meter([0, 12.5, 13, 100, None]) == "▁▁▂█·"
