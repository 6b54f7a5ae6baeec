from __future__ import annotations

import pytest

from tools.playground import chart
from tools.playground.view import Snapshot


def snapshot(seconds: float) -> Snapshot:
    return Snapshot(seconds=seconds, load=0.0, load_replicas=0, value=None, desired=0, ready=0)


@pytest.mark.parametrize(
    ("values", "rows", "lines"),
    [
        pytest.param([0, 25, 50, 75, 100], 1, [" ▂▄▆█"], id="one row"),
        pytest.param([0, 25, 50, 75, 100], 2, ["   ▄█", " ▄███"], id="two rows"),
        pytest.param([0.01], 2, [" ", "▁"], id="smallest value is visible"),
        pytest.param([100.1, 300], 2, ["▲▲", "██"], id="above the top"),
        pytest.param([50, None, 0], 2, ["   ", "█· "], id="missing value"),
        pytest.param([], 2, ["", ""], id="no columns"),
    ],
)
def test_area_has_a_resolution_of_an_eighth_of_a_row(values, rows: int, lines: list[str]) -> None:
    assert chart.area(values, rows=rows, top=100) == lines


@pytest.mark.parametrize(
    ("seconds", "width", "expected"),
    [
        pytest.param([], 2, [None, None], id="no snapshot"),
        pytest.param([0.0], 3, [None, None, 0.0], id="now is the last column"),
        pytest.param([0.0, 1.0, 2.0], 2, [1.0, 2.0], id="last snapshot of a column"),
        pytest.param([0.0, 7.0], 4, [0.0, 0.0, 0.0, 7.0], id="gap is filled"),
        pytest.param([0.0, 2.0, 4.0, 6.0], 2, [4.0, 6.0], id="older snapshots are left out"),
        pytest.param([0.0, 8.0], 2, [0.0, 8.0], id="gap at the first column"),
    ],
)
def test_column_covers_two_seconds(seconds, width: int, expected) -> None:
    columns = chart.columns([snapshot(each) for each in seconds], width)

    assert [each and each.seconds for each in columns] == expected
