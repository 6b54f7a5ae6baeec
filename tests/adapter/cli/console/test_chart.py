"""Charts: what is drawn where."""

from __future__ import annotations

import dataclasses

import pytest

from adapter.cli.console import chart
from rules.hpa.replay import MetricReading
from tests.rules.hpa import documents
from tests.rules.hpa import test_replay as replays_of


def test_values_are_drawn_between_round_lines() -> None:
    points = [(0.0, 0.0), (600.0, 87.0)]

    drawn = chart.draw("duty", {"value": points})

    assert drawn is not None
    assert [text for _, text in drawn.rows] == ["0", "50", "100"]
    assert [text for _, text in drawn.columns] == ["00:00", "00:02", "00:05", "00:07", "00:10"]
    ((label, style, (line,)),) = drawn.lines
    assert (label, style) == ("value", "value")
    assert line.split() == ["56.0,174.0", "708.0,40.0"]
    assert drawn.summary == "value: 0 to 87, now 87"
    assert drawn.marks[0] == (56.0, 10.9, "00:00, value 0")
    assert drawn.marks[-1] == (697.1, 10.9, "00:09, value 0")


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([-3.0, 4.0], ["-4", "-2", "0", "2", "4"]),
        ([0.0, 0.0], ["0", "1"]),
        ([1e9, 3e9], ["0", "1e+09", "2e+09", "3e+09"]),
        ([1e-7, 2e-7], ["0", "5e-08", "1e-07", "1.5e-07", "2e-07"]),
    ],
)
def test_levels_suit_the_values(values: list[float], levels: list[str]) -> None:
    drawn = chart.draw("x", {"x": list(enumerate(values))})

    assert drawn is not None
    assert [text for _, text in drawn.rows] == levels


def test_steps_hold_until_the_next_value_and_gaps_divide_a_line() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.0)]

    drawn = chart.draw("x", {"x": points}, steps=True)

    assert drawn is not None
    ((_, _, parts),) = drawn.lines
    assert [len(each.split()) for each in parts] == [3, 1]
    assert [text[10:] for _, _, text in drawn.marks][::20] == ["x 1", "x 2", "x unknown"]


@pytest.mark.parametrize("points", [[], [(5.0, 1.0)], [(5.0, None), (6.0, None)]])
def test_nothing_is_drawn_of_nothing(points: list[tuple[float, float | None]]) -> None:
    assert chart.draw("x", {"x": points}) is None


@pytest.mark.parametrize(
    ("target", "shown"), [("averageValue", "value: 20"), ("value", "value: 80")]
)
def test_the_value_of_a_replay_has_the_unit_of_its_target(target: str, shown: str) -> None:
    hpa = documents.hpa(documents.external_metric(**{target: "30"}))
    history = [replays_of.sync(index, MetricReading(milli=80_000), 4) for index in range(2)]
    replayed = replays_of.report()
    was = replayed.results[:1]

    (drawn,) = chart.of_replay(
        dataclasses.replace(replayed, hpa=hpa, history=tuple(history), results=was)
    )

    assert drawn.summary == f"target: 30. {shown}"
