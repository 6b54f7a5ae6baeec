from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from dataclasses import dataclass

import pytest

from adapter import errors
from adapter.evaluation.recent import Recent


@dataclass(frozen=True)
class Result:
    began: float
    expires: float
    size: int = 1


class Calls:
    """Counts calls; each returns when `opened` is set, and fails if `failure` is."""

    def __init__(self, ttl: float = 1000.0) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.started = asyncio.Event()
        self.number = self.cancelled = 0
        self.failure: errors.BackendError | None = None
        self._ttl = ttl

    async def __call__(self) -> Result:
        self.number += 1
        self.started.set()
        began = now()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return Result(began, began + self._ttl)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_result_is_shared_until_it_expires():
    recent: Recent[str, Result] = Recent(100)
    lasting, fleeting = Calls(), Calls(ttl=0)

    results = [await recent.run("a", lasting, deadline=None) for _ in range(3)]
    for _ in range(3):
        await recent.run("b", fleeting, deadline=None)

    assert results[0] is results[1] is results[2] is recent.get("a", now())
    assert (lasting.number, fleeting.number) == (1, 3)


async def test_result_that_began_too_early_is_obtained_again():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    await recent.run("a", calls, deadline=None)

    second = await recent.run("a", calls, deadline=None, after=now())

    assert calls.number == 2
    assert recent.get("a", now()) is second


async def test_concurrent_callers_share_one_call():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls(ttl=0)

    results = await asyncio.gather(*(recent.run("a", calls, deadline=None) for _ in range(5)))

    assert calls.number == 1
    assert all(each is results[0] for each in results)


async def test_failure_is_shared_by_concurrent_and_later_callers():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    calls.failure = errors.Refused("bad query", status=400)

    concurrent = (recent.run("a", calls, deadline=None, error_ttl=1000.0) for _ in range(3))
    outcomes = await asyncio.gather(*concurrent, return_exceptions=True)
    with pytest.raises(errors.Refused):
        await recent.run("a", calls, deadline=None)

    assert [type(each) for each in outcomes] == [errors.Refused] * 3
    assert calls.number == 1


async def test_failure_is_not_kept_without_a_ttl():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    calls.failure = errors.Unreachable("no route")
    for _ in range(2):
        with pytest.raises(errors.Unreachable):
            await recent.run("a", calls, deadline=None, error_ttl=0.0)

    assert calls.number == 2


async def test_cancelled_caller_does_not_cancel_the_call_of_the_others():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    calls.opened.clear()
    first, second = (asyncio.create_task(recent.run("a", calls, deadline=None)) for _ in range(2))
    await calls.started.wait()

    first.cancel()
    await asyncio.wait([first])
    calls.opened.set()

    assert (await second).size == 1
    assert (first.cancelled(), calls.cancelled) == (True, 0)


async def test_call_is_cancelled_with_its_last_caller():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    calls.opened.clear()
    callers = [asyncio.create_task(recent.run("a", calls, deadline=None)) for _ in range(2)]
    await calls.started.wait()

    for caller in callers:
        caller.cancel()
    for caller in callers:
        with suppress(asyncio.CancelledError):
            await caller
    calls.opened.set()

    assert (await recent.run("a", calls, deadline=None)).size == 1
    assert (calls.number, calls.cancelled) == (2, 1)


async def test_caller_waits_no_longer_than_its_own_deadline():
    recent: Recent[str, Result] = Recent(100)
    calls = Calls()
    calls.opened.clear()
    patient = asyncio.create_task(recent.run("a", calls, deadline=now() + 1000))
    await calls.started.wait()

    with pytest.raises(errors.TimedOut):
        await recent.run("a", calls, deadline=now() + 0.05)

    calls.opened.set()
    assert (await patient).size == 1
    assert calls.number == 1


async def test_size_is_bounded():
    recent: Recent[int, Result] = Recent(110)
    for key in range(100):
        await recent.run(key, Calls(), deadline=None)

    assert [key for key in range(100) if recent.get(key, now())] == list(range(90, 100))


async def test_kept_failure_holds_nothing_of_the_response():
    recent: Recent[str, Result] = Recent(100)
    parsed: list[weakref.ref[Result]] = []

    async def fail() -> Result:
        response = Result(0.0, 1000.0)
        parsed.append(weakref.ref(response))
        raise errors.TooLarge("too large") from ValueError(response)

    with pytest.raises(errors.TooLarge):
        await recent.run("a", fail, deadline=None)
    gc.collect()

    assert parsed[0]() is None
    with pytest.raises(errors.TooLarge):
        await recent.run("a", fail, deadline=None)
    assert len(parsed) == 1
