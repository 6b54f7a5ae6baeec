"""The comparison of values on a small fleet; it finds values that are wrong."""

from __future__ import annotations

import time

import pytest

from tools.bench import values
from tools.bench.workload import Size


@pytest.mark.usefixtures("real_servers")
def test_every_value_is_right_while_load_and_pods_change(capsys):
    assert values.main(["20x100x2", "4"]) == 0

    assert (
        "were those that Prometheus had at their timestamps, 0 were not" in capsys.readouterr().out
    )


def test_wrong_missing_and_outdated_pods_are_found():
    fleet = values.Fleet(size=Size.parse("1x3x1"))
    (app,) = fleet.apps
    first, second, third = fleet.apps[app]
    now = time.time()
    fleet.rounds.append([now - 20, now - 19])
    fleet.apps[app][third].ended = now - 10
    comparison = values.Comparison(fleet)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 5))

    def item(name, value):
        return {"describedObject": {"name": name}, "value": value, "timestamp": stamp}

    comparison.compare(app, {"items": [item(first, "7"), item(third, "2")]}, now, now)

    assert [each.partition(":")[0].partition(" is")[0] for each in comparison.wrong] == [
        first,
        third,
        second,
    ]
