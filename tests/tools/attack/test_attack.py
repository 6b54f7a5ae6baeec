"""One flood of `make attack`, one attack by objects, and the check of their measurements.

`COUNT=2000 SEED=1 pytest tests/tools/attack` creates more objects, and others.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tools.attack import __main__ as command
from tools.attack import objects
from tools.control_plane.plane import ControlPlane
from tools.documents import Document

COUNT, SEED = int(os.environ.get("COUNT", "100")), int(os.environ.get("SEED", "41"))
SLOW = command.Result(values=1, start=4, start_of_teams=20)
GOOD = command.Result(rss=100, livez=0.1, autoscaler=0.1, values=10)


@pytest.mark.usefixtures("real_servers")
def test_a_flood_is_measured_and_ends_by_itself():
    with command.backends() as testbed:
        result = command.attack("silent_connections", testbed)

    assert list(result.problems(command.memory_limit())) == []
    assert result.rss > 20
    assert result.bare > 0


def test_hostile_objects_of_one_namespace_change_nothing_of_others(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    found = objects.attack(control_plane, tmp_path, seed=SEED, count=COUNT)

    assert found.problems == []
    assert found.created.keys() == {"ConfigMap", "HorizontalPodAutoscaler", "Pod"}
    assert found.states["Refused"]
    assert found.answers > 20


def test_a_seed_yields_the_same_objects() -> None:
    def some(seed: int) -> list[Document]:
        return list(itertools.islice(objects.Generator(seed), 50))

    assert some(1) == some(1)
    assert some(1) != some(2)


@pytest.mark.parametrize(
    ("result", "problems"),
    [
        (GOOD, []),
        (command.Result(rss=100, livez=3, bare=2.1, values=10), []),
        (command.Result(rss=100, livez=3, bare=1.9, values=10), ["/livez took 3.0 s"]),
        (command.Result(connect=3.6, values=1), ["a connection took 3.6 s"]),
        (command.Result(rss=800, livez=2, values=1), ["peak RSS 800 MiB", "/livez took 2.0 s"]),
        (command.Result(failures=["429"], values=1), ["the HPA controller got ['429']"]),
        (command.Result(), ["the HPA controller got nothing"]),
        (command.Result(values=1, autoscaler=5), []),
        (command.Result(values=1, among=GOOD), []),
        (command.Result(values=1, bare=2, autoscaler=3.1, among=GOOD), ["a value took 1.1 s"]),
        (command.Result(values=1, among=command.Result()), ["started among the objects: the HPA"]),
        (command.Result(values=1, among=SLOW), ["CPU of the start: 4.0 s", "teams: 20.0 s"]),
    ],
)
def test_exceeded_limits_are_problems(result, problems):
    found = list(result.problems(768))

    assert len(found) == len(problems)
    assert all(each.startswith(start) for each, start in zip(found, problems, strict=True))
