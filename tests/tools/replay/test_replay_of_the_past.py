"""Replays compared with what really was.

`CASES=200 SECONDS=6 pytest tests/tools/replay` compares more cases, with longer steps.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tools.control_plane.plane import ControlPlane
from tools.replay import decisions, values, worlds

CASES = int(os.environ.get("CASES", "24"))
SECONDS = float(os.environ.get("SECONDS", "0"))
pytestmark = pytest.mark.usefixtures("real_servers")


def test_past_values_equal_the_answers_of_the_server() -> None:
    rows = asyncio.run(values.run(CASES, seed=3, steps=24))

    assert {each.case.number: each.wrong for each in rows if each.wrong} == {}
    assert {each.case.kind for each in rows} == set(worlds.KINDS)
    assert any(each.case.other for each in rows)
    assert sum(each.milli is not None for row in rows for of in row.answers for each in of) > 400


def test_decisions_equal_those_of_the_real_controller(control_plane: ControlPlane) -> None:
    short = asyncio.run(values.run(CASES // 2, seed=7, steps=9))

    found = decisions.compare(control_plane, decisions.fitting(short), seconds=SECONDS)

    assert {each.row.case.number: each.wrong for each in found if each.wrong} == {}
    assert sum(each.changes for each in found) > 8
    assert {each.row.case.kind for each in found} == set(worlds.KINDS)
