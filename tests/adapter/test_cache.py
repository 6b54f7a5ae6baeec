from __future__ import annotations

import asyncio
import gc
import operator
import weakref

import pytest

from adapter import errors
from adapter.cache import FairLRUCache, LRUCache, SingleFlight, SingleFlightCache
from tools.waiting import Clock


class Backend:
    """Returns the number of calls so far; waits for `gate` first."""

    def __init__(self):
        self.keys = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure = None
        self.cancelled = 0

    async def find(self, key):
        self.keys.append(key)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure:
            raise self.failure
        return len(self.keys)


class Cache(SingleFlightCache):
    """Cache that loads from `backend`."""

    def __init__(self, backend, *, ttl=10.0, max_size=3, **options):
        super().__init__(ttl=lambda key, value: ttl, max_size=max_size, **options)
        self.backend = backend

    async def get(self, key):
        return await super().get(key, lambda: self.backend.find(key))

    async def find(self, key, load=None, **options):
        return await super().find(key, load or (lambda: self.backend.find(key)), **options)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


# LRU


def test_reading_an_entry_protects_it_from_eviction():
    cache = LRUCache(2)
    cache.set("a", 1)
    cache.set("b", 2)
    cache.get("a")
    cache.set("c", 3)

    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_replacing_or_discarding_an_entry_frees_its_size():
    cache = LRUCache(10)
    for _ in range(3):
        cache.set("a", "old", size=6)
    cache.set("a", "new", size=1)
    cache.set("b", "b", size=9)
    assert [cache.get(key) for key in "ab"] == ["new", "b"]

    cache.discard("b")
    cache.discard("none")
    cache.set("c", "c", size=9)

    assert [cache.get(key) for key in "abc"] == ["new", None, "c"]


# LRU cache that owners share


def fair(max_size):
    """Keys are pairs of an owner and a name."""
    return FairLRUCache(max_size, operator.itemgetter(0))


def test_an_owner_of_200_000_entries_evicts_none_of_another():
    cache = fair(100_000)
    for number in range(10):
        cache.set(("a", number), number)
    for number in range(200_000):
        cache.set(("hostile", number), number)

    assert [cache.get(("a", number)) for number in range(10)] == list(range(10))
    assert 99_000 <= len(cache) <= 100_000
    assert cache.get(("hostile", 199_999)) == 199_999


def test_an_owner_that_comes_late_gets_an_equal_share():
    cache = fair(1000)
    for owner in "abc":
        for number in range(2000):
            cache.set((owner, number), number)

    for owner in "abc":
        kept = sum(1 for number in range(2000) if cache.get((owner, number)) is not None)
        assert kept == pytest.approx(333, abs=5)


def test_reading_or_replacing_an_entry_protects_it_from_those_of_its_owner():
    cache = fair(3)
    for name in "xyz":
        cache.set(("a", name), name)
    cache.get(("a", "x"))
    cache.set(("a", "y"), "new")
    cache.set(("a", "w"), "w")

    assert [cache.get(("a", name)) for name in "xyzw"] == ["x", "new", None, "w"]


def test_entries_that_are_discarded_or_not_retained_make_room():
    cache = fair(2)
    cache.set(("a", "x"), 1)
    cache.set(("b", "x"), 1)
    cache.discard(("a", "x"))
    cache.discard(("none", "x"))
    cache.retain(lambda key: key[0] != "b")
    assert len(cache) == 0

    cache.set(("c", "x"), 1)
    cache.set(("c", "y"), 1)

    assert [cache.get(("c", name)) for name in "xy"] == [1, 1]
    assert cache.get(("b", "x")) is None


# TTL and size


async def test_value_is_cached_for_its_ttl():
    backend, clock = Backend(), Clock()
    cache = Cache(backend, clock=clock)

    assert await cache.get("a") == 1
    clock.now = 9.9
    assert await cache.get("a") == 1
    clock.now = 10.0
    assert await cache.get("a") == 2


async def test_value_with_ttl_0_is_not_cached():
    cache = Cache(Backend(), ttl=0.0)

    assert [await cache.get("a"), await cache.get("a")] == [1, 2]


async def test_large_entry_evicts_several_and_an_oversized_one_is_not_kept():
    backend = Backend()
    cache = Cache(backend, size=lambda key, _: len(key))
    for key in ("a", "b", "cc", "b", "a", "dddd", "dddd"):
        await cache.get(key)

    assert backend.keys == ["a", "b", "cc", "a", "dddd", "dddd"]


# Single flight


async def test_concurrent_callers_share_one_call_even_if_the_first_is_cancelled():
    backend = Backend()
    backend.gate.clear()
    cache = Cache(backend)
    callers = [asyncio.create_task(cache.get("a")) for _ in range(3)]
    await settle()
    callers[0].cancel()
    await settle()
    backend.gate.set()

    assert await asyncio.gather(*callers[1:]) == [1, 1]
    assert (backend.keys, backend.cancelled) == (["a"], 0)


async def test_call_is_cancelled_with_its_last_caller_and_can_be_started_again():
    backend = Backend()
    backend.gate.clear()
    cache = Cache(backend)
    first = asyncio.create_task(cache.get("a"))
    await settle()
    first.cancel()
    second = asyncio.create_task(cache.get("a"))
    await settle()
    third = asyncio.create_task(cache.get("a"))
    await settle()
    backend.gate.set()

    assert [await second, await third] == [2, 2]
    assert backend.cancelled == 1
    assert await cache.get("a") == 2


async def test_failure_reaches_every_caller_and_is_not_cached():
    backend = Backend()
    backend.gate.clear()
    backend.failure = ValueError("no")
    cache = Cache(backend)
    callers = [asyncio.create_task(cache.get("a")) for _ in range(2)]
    await settle()
    backend.gate.set()

    for each in callers:
        with pytest.raises(ValueError, match="no"):
            await each
    backend.failure = None
    assert await cache.get("a") == 2


async def test_failure_of_a_backend_is_raised_again_for_its_ttl():
    backend, clock = Backend(), Clock()
    cache = Cache(backend, clock=clock)
    backend.failure = errors.Refused("bad query", status=400)

    for clock.now in (0.0, 0.9):
        with pytest.raises(errors.Refused):
            await cache.find("a", error_ttl=1.0)
    assert backend.keys == ["a"]

    clock.now = 1.0
    with pytest.raises(errors.Refused):
        await cache.find("a")
    assert backend.keys == ["a", "a"]


async def test_kept_failure_holds_nothing_of_the_response():
    cache = Cache(None)
    parsed: list[weakref.ref[Backend]] = []

    async def fail():
        response = Backend()
        parsed.append(weakref.ref(response))
        raise errors.TooLarge("too large") from ValueError(response)

    with pytest.raises(errors.TooLarge):
        await cache.find("a", fail, error_ttl=1000.0)
    await settle()
    gc.collect()

    assert parsed[0]() is None
    with pytest.raises(errors.TooLarge):
        await cache.find("a", fail)
    assert len(parsed) == 1


async def test_finished_call_is_not_joined():
    flight, backend = SingleFlight(), Backend()
    loop = asyncio.get_running_loop()
    in_flight = loop.create_future()

    async def call():
        # Runs between the end of this call and its done callback.
        loop.call_soon(lambda: in_flight.set_result("a" in flight))
        return await backend.find("a")

    assert await flight.run("a", call) == 1
    assert not await in_flight
    assert await flight.run("a", lambda: backend.find("a")) == 2


async def test_cached_returns_a_fresh_value_without_a_call():
    backend, clock = Backend(), Clock()
    cache = Cache(backend, ttl=10, clock=clock)

    assert cache.cached("a") is None
    value = await cache.get("a")
    assert cache.cached("a") == value
    clock.now += 10
    assert cache.cached("a") is None
    assert cache.cached("a", expired=True) == value
    assert len(backend.keys) == 1
