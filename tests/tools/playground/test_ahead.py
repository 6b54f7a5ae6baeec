"""The day that is drawn with and without `ahead`; the clusters are not started here."""

from __future__ import annotations

import pytest

from tools.playground import ahead
from tools.playground.ahead import AHEAD, DAY, NOW, Moment


@pytest.mark.parametrize(
    ("hour", "pods"), [(0, 1.0), (7.5, 3.5), (9, 6.0), (20, 8.0), (23.5, 1.25)]
)
def test_the_load_of_a_day_has_straight_lines_between_its_hours(hour: float, pods: float) -> None:
    for day in (-3, 0):
        at = (hour - ahead.FIRST + 24 * day) / 24 * DAY
        assert ahead.load(at) == pytest.approx(pods * ahead.TARGET)


def test_what_was_observed_is_summed_up_and_drawn() -> None:
    late = {NOW: (3, 1), AHEAD: (3, 3)}
    moments = [
        Moment(seconds=-1.0, load=500.0, replicas=late),
        Moment(seconds=0.0, load=50.0, replicas={NOW: (1, 1), AHEAD: (3, 3)}),
        Moment(seconds=1800.0, load=150.0, replicas=late),
        Moment(seconds=2400.0, load=150.0, replicas={NOW: (3, 3), AHEAD: (3, 3)}),
        Moment(seconds=3600.0, load=150.0, replicas={NOW: (3, 3), AHEAD: (3, 3)}),
    ]

    drawn = list(ahead.lines(moments))

    assert [each for each in drawn if each.startswith("ready")] == [
        "ready pods without `ahead`: 600 s above the target, 2.00 pod-hours",
        "ready pods with `ahead`: 0 s above the target, 3.00 pod-hours",
    ]
    assert len(drawn) == 3 * 7
