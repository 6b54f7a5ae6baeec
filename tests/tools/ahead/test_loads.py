"""The comparison with and without a forecast: its controller, and its loads."""

from __future__ import annotations

import itertools
import random

import pytest

from rules.hpa import autoscaler, replay
from rules.hpa.autoscaler import SYNC
from rules.hpa.replay import MetricReading, Sync
from tools import documents
from tools.ahead import __main__ as tool
from tools.ahead import series

HPA = autoscaler.autoscaler(
    documents.hpa("web", documents.pods_metric("requests", "1"), maxReplicas=tool.MOST)
)


def history(loads):
    return [
        Sync(
            time=index * SYNC,
            readings=(MetricReading(milli=int(load * 1000), counted=1),),
            replicas=None,
            present=5,
            pods=5,
            ready=5,
        )
        for index, load in enumerate(loads)
    ]


@pytest.mark.parametrize("title", ["jobs each hour", "noise", "bursts"])
@pytest.mark.parametrize("start", tool.STARTS)
def test_the_controller_is_that_of_replay(title, start):
    load = series.GENERATED[title](random.Random(title), series.DAY)[:600]
    loads = [4.5, *(15 * each for each in load for _ in range(4))]
    factors = [random.Random(index).choice((1.0, 1.2)) for index in range(len(loads))]

    found = tool.controller(loads, start, factors)

    expected = replay.simulate(
        title,
        HPA,
        history(loads),
        startup=start,
        step=SYNC,
        totals=[False],
        factors=[(each,) for each in factors],
    )
    assert found.pod_hours == pytest.approx(expected.pod_hours, rel=0.005)
    assert found.above == pytest.approx(sum(expected.over) * SYNC / 3600, rel=0.05, abs=0.05)


def test_a_file_is_interpolated_between_its_points(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text(
        "timestamp,value\n2014-07-01 00:00:00,0\n2014-07-01 00:05:00,10\n2014-07-01 00:10:00,0\n"
    )

    assert series.read(path) == pytest.approx([2, 4, 6, 8, 10, 8, 6, 4, 2])


def test_the_oracle_has_what_it_needs_when_the_load_comes():
    loads = [1.0] * 30 + [5.0] * 30

    factors = list(tool._oracle(loads, 60.0))

    assert [number for number, _ in itertools.groupby(factors)] == [1, 5, 1]
    assert tool.controller(loads, 60.0, factors).above == 0


def test_a_row_says_what_a_forecast_changes():
    load = [1 + (minute % series.DAY > 600) for minute in range(10 * series.DAY)]

    cells = list(tool.row("steps", [float(each) for each in load], 86_400.0, 240.0))

    assert cells[:2] == ["steps", "240 s"]
    assert int(cells[3].rstrip("%")) < -50
    assert cells[4] == "-100%"
    assert cells[-1] == "0%"
