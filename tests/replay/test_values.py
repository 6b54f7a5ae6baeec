"""Past values of replays are the answers that the server gave then."""

from __future__ import annotations

import asyncio

import pytest

from tests.replay import values, worlds

pytestmark = pytest.mark.usefixtures("real_servers")


def test_past_values_equal_the_answers_of_the_server():
    """`python -m tests.replay values` has 200 cases, with a table."""
    rows = asyncio.run(values.run(25, seed=3, steps=24))

    assert {each.case.number: each.wrong for each in rows if each.wrong} == {}
    assert {each.case.kind for each in rows} == set(worlds.KINDS)
    assert sum(each.milli is not None for row in rows for each in row.answers) > 400
