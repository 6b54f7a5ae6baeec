"""Small parts of `python -m tools.replay`, which has tables for more cases."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from tools.control_plane.plane import ControlPlane
from tools.replay import decisions, simulation, values, worlds

pytestmark = pytest.mark.usefixtures("real_servers")


@pytest.fixture(scope="module")
def rows(real_servers: None) -> list[values.Row]:
    return asyncio.run(values.run(25, seed=3, steps=24))


def test_past_values_equal_the_answers_of_the_server(rows: list[values.Row]) -> None:
    assert {each.case.number: each.wrong for each in rows if each.wrong} == {}
    assert {each.case.kind for each in rows} == set(worlds.KINDS)
    assert any(each.case.other for each in rows)
    assert sum(each.milli is not None for row in rows for of in row.answers for each in of) > 400


def test_replays_equal_a_second_simulation(rows: list[values.Row]) -> None:
    found = values.simulate(rows)

    assert (found.decisions, found.replicas) == (0, 0)
    assert found.syncs > 2 * found.modelled / 3 > 1000


def test_the_second_simulation_imports_nothing_of_the_first() -> None:
    tree = ast.parse(Path(simulation.__file__).read_text())

    names = [
        each.module or "" if isinstance(each, ast.ImportFrom) else each.names[0].name
        for each in ast.walk(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
    ]

    assert not [each for each in names if each.partition(".")[0] in {"rules", "adapter", "tests"}]


def test_decisions_equal_those_of_the_real_controller(control_plane: ControlPlane) -> None:
    short = asyncio.run(values.run(12, seed=5, steps=9))

    found = decisions.compare(control_plane, decisions.fitting(short), seconds=2.2)

    assert {each.row.case.number: each.wrong for each in found if each.wrong} == {}
    assert sum(each.changes for each in found) > 8
    assert {each.row.case.kind for each in found} == set(worlds.KINDS)
