"""Small parts of `python -m tools.replay`, which has tables for more cases."""

from __future__ import annotations

import asyncio

import pytest

from tools.control_plane.plane import ControlPlane
from tools.replay import decisions, values, worlds

pytestmark = pytest.mark.usefixtures("real_servers")


def test_past_values_equal_the_answers_of_the_server() -> None:
    rows = asyncio.run(values.run(25, seed=3, steps=24))

    assert {each.case.number: each.wrong for each in rows if each.wrong} == {}
    assert {each.case.kind for each in rows} == set(worlds.KINDS)
    assert any(each.case.other for each in rows)
    assert sum(each.milli is not None for row in rows for of in row.answers for each in of) > 400


def test_decisions_equal_those_of_the_real_controller(control_plane: ControlPlane) -> None:
    short = asyncio.run(values.run(12, seed=5, steps=9))

    found = decisions.compare(control_plane, decisions.fitting(short), seconds=2.2)

    assert {each.row.case.number: each.wrong for each in found if each.wrong} == {}
    assert sum(each.changes for each in found) > 8
    assert {each.row.case.kind for each in found} == set(worlds.KINDS)
