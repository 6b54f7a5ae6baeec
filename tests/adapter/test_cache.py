from __future__ import annotations

import asyncio

import pytest

from adapter.cache import SingleFlightCache


class Oracle:
    """Answers with how often it was asked; waits for `gate` first."""

    def __init__(self):
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure = None
        self.cancelled = 0

    async def find(self, key):
        self.asked.append(key)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure:
            raise self.failure
        return len(self.asked)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def remembered(oracle, *, ttl=10.0, max_size=3, **options):
    return SingleFlightCache(oracle.find, ttl=lambda key, value: ttl, max_size=max_size, **options)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_holds_for_its_time():
    oracle, clock = Oracle(), Clock()
    known = remembered(oracle, clock=clock)

    assert await known.get("a") == 1
    clock.now = 9.9
    assert await known.get("a") == 1
    clock.now = 10.0
    assert await known.get("a") == 2


async def test_what_lasts_no_time_is_asked_again():
    oracle = Oracle()
    known = remembered(oracle, ttl=0.0)

    assert [await known.get("a"), await known.get("a")] == [1, 2]


async def test_the_longest_unused_makes_room():
    oracle = Oracle()
    known = remembered(oracle)
    for key in ("a", "b", "c", "a", "d", "a", "c", "d", "b"):
        await known.get(key)

    assert oracle.asked == ["a", "b", "c", "d", "b"]


async def test_large_entries_take_the_room_of_several():
    oracle = Oracle()
    known = remembered(oracle, size=len)
    for key in ("a", "b", "cc", "b", "a", "dddd", "dddd"):
        await known.get(key)

    assert oracle.asked == ["a", "b", "cc", "a", "dddd", "dddd"]


async def test_the_room_of_what_expired_is_free_again():
    oracle, clock = Oracle(), Clock()
    known = remembered(oracle, clock=clock)
    for _ in range(5):
        await known.get("a")
        clock.now += 10
    for key in ("b", "c"):
        await known.get(key)
    asked = len(oracle.asked)

    for key in ("b", "c"):
        await known.get(key)

    assert len(oracle.asked) == asked


async def test_a_question_under_way_is_shared():
    oracle = Oracle()
    oracle.gate.clear()
    known = remembered(oracle)
    waiting = [asyncio.create_task(known.get("a")) for _ in range(3)]
    await settle()
    waiting[0].cancel()
    await settle()
    oracle.gate.set()

    assert await asyncio.gather(*waiting[1:]) == [1, 1]
    assert (oracle.asked, oracle.cancelled) == (["a"], 0)


async def test_a_question_that_nobody_waits_for_ends_and_can_be_asked_again():
    oracle = Oracle()
    oracle.gate.clear()
    known = remembered(oracle)
    first = asyncio.create_task(known.get("a"))
    await settle()
    first.cancel()
    second = asyncio.create_task(known.get("a"))
    await settle()
    third = asyncio.create_task(known.get("a"))
    await settle()
    oracle.gate.set()

    assert [await second, await third] == [2, 2]
    assert oracle.cancelled == 1
    assert await known.get("a") == 2


async def test_a_failure_goes_to_everyone_and_is_not_remembered():
    oracle = Oracle()
    oracle.gate.clear()
    oracle.failure = ValueError("no")
    known = remembered(oracle)
    waiting = [asyncio.create_task(known.get("a")) for _ in range(2)]
    await settle()
    oracle.gate.set()

    for each in waiting:
        with pytest.raises(ValueError, match="no"):
            await each
    oracle.failure = None
    assert await known.get("a") == 2
