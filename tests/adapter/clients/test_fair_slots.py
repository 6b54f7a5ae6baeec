"""Slots that namespaces share in turns, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from adapter.clients.limits import FairSlots
from tests import virtual_time


class Requests:
    """Requests that hold a slot for a second; counts those at a time, and notes their order."""

    def __init__(self, *, own: int, total: int) -> None:
        self.slots = FairSlots(own=own, total=total)
        self.running: list[str] = []
        self.most = 0
        self.most_of_one = 0
        self.begun: list[str] = []

    async def one(self, namespace: str, seconds: float = 1.0) -> None:
        async with self.slots.slot(namespace):
            self.begun.append(namespace)
            self.running.append(namespace)
            self.most = max(self.most, len(self.running))
            self.most_of_one = max(self.most_of_one, self.running.count(namespace))
            try:
                await asyncio.sleep(seconds)
            finally:
                self.running.remove(namespace)


@pytest.mark.parametrize(("own", "total"), [(1, 1), (1, 12), (2, 12), (3, 2)])
def test_as_many_requests_run_as_the_limits_say_and_no_more(own, total):
    async def run():
        requests = Requests(own=own, total=total)
        many = [f"namespace-{number}" for number in range(20)] * 5
        await asyncio.gather(*(requests.one(each) for each in many))
        alone = Requests(own=own, total=total)
        await asyncio.gather(*(alone.one("one") for _ in range(10)))
        return requests, alone

    requests, alone = virtual_time.run(run())

    assert requests.most == total
    assert requests.most_of_one <= own
    assert alone.most == alone.most_of_one == min(own, total)


def test_a_namespace_with_many_requests_waits_for_its_turn_like_one_with_few():
    async def run():
        requests = Requests(own=2, total=2)
        await asyncio.gather(*(requests.one(each) for each in ["a"] * 6 + ["b", "c", "b"]))
        return requests.begun

    assert virtual_time.run(run()) == ["a", "a", "a", "b", "c", "a", "b", "a", "a"]


def test_no_slot_is_lost_whenever_requests_are_cancelled():
    chosen = random.Random(41)

    async def run():
        requests = Requests(own=2, total=3)
        tasks = [
            asyncio.create_task(requests.one(chosen.choice("abcde"), chosen.random()))
            for _ in range(300)
        ]
        for _ in range(200):
            await asyncio.sleep(chosen.random() / 8)
            chosen.choice(tasks).cancel()
            if chosen.random() < 0.5:  # also one that has just got its slot
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        requests.most = 0
        await asyncio.gather(*(requests.one(each) for each in "abc"))
        return requests

    requests = virtual_time.run(run())

    assert requests.most == 3
    assert requests.most_of_one == 2


def test_a_request_that_is_cancelled_as_it_gets_its_slot_gives_it_to_the_next():
    async def run():
        requests = Requests(own=1, total=1)
        async with requests.slots.slot("a"):
            second, third = (asyncio.create_task(requests.one(each)) for each in "bc")
            await asyncio.sleep(1.0)
        second.cancel()  # it has the slot, and has not run since
        await asyncio.gather(second, third, return_exceptions=True)
        return second.cancelled(), requests.begun

    assert virtual_time.run(run()) == (True, ["c"])


def test_a_slot_is_released_while_a_cancelled_request_is_still_in_the_queue():
    async def run():
        slots = FairSlots(own=1, total=1)
        async with contextlib.AsyncExitStack() as held:
            await held.enter_async_context(slots.slot("a"))
            waiting = asyncio.create_task(_take(slots, "b"))
            other = asyncio.create_task(_take(slots, "c"))
            await asyncio.sleep(0)
            waiting.cancel()
        await other
        await asyncio.gather(waiting, return_exceptions=True)
        await _take(slots, "b")

    virtual_time.run(run())


async def _take(slots, namespace):
    async with slots.slot(namespace):
        pass
