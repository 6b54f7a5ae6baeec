from __future__ import annotations

import asyncio

import pytest

from adapter import errors
from adapter.clients import limits
from tools.waiting import Clock


class Sleeping(Clock):
    """Clock that records for how long it was told to sleep."""

    def __init__(self):
        super().__init__(100.0)
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_burst_passes_at_once_and_the_rest_at_the_rate():
    clock = Sleeping()
    bucket = limits.TokenBucket(5.0, 2, clock=clock, sleep=clock.sleep)

    for _ in range(4):
        await bucket.take(30.0)
    clock.now += 1.0
    await bucket.take(30.0)

    assert clock.slept == pytest.approx([0.2, 0.4])


async def test_unused_tokens_accumulate_up_to_the_burst():
    clock = Sleeping()
    bucket = limits.TokenBucket(5.0, 2, clock=clock, sleep=clock.sleep)
    clock.now += 3600.0

    for _ in range(3):
        await bucket.take(30.0)

    assert clock.slept == pytest.approx([0.2])


async def test_wait_beyond_the_timeout_fails_at_once():
    clock = Sleeping()
    bucket = limits.TokenBucket(0.1, 1, flags="--client-qps", clock=clock, sleep=clock.sleep)
    await bucket.take(5.0)

    with pytest.raises(errors.TimedOut, match="may be sent in 10 s; raise --client-qps"):
        await bucket.take(5.0)
    await bucket.take(30.0)

    assert clock.slept == pytest.approx([10.0])


async def test_a_cancelled_wait_returns_its_token():
    clock = Sleeping()
    bucket = limits.TokenBucket(1.0, 1, clock=clock)
    await bucket.take(5.0)
    for _ in range(20):
        waiting = asyncio.create_task(bucket.take(5.0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    clock.now += 1.0
    await bucket.take(0.0)


async def test_a_limit_without_flags_gives_no_advice():
    bucket = limits.TokenBucket(0.1, 1)
    await bucket.take(5.0)

    with pytest.raises(errors.TimedOut, match=r"in 10 s$"):
        await bucket.take(5.0)


def test_what_one_key_uses_is_not_taken_from_another():
    clock = Clock(100.0)
    allowances = limits.Allowances(2, 10.0, clock=clock)

    assert [allowances.take("a") for _ in range(3)] == [True, True, False]
    assert allowances.take("b")
    clock.now += 4.0
    assert not allowances.take("a")
    clock.now += 6.0
    assert [allowances.take("a") for _ in range(2)] == [True, False]


def test_allowances_are_kept_only_while_they_are_used():
    clock = Clock(100.0)
    allowances = limits.Allowances(2, 10.0, clock=clock)
    for number in range(100):
        allowances.take(number)
        clock.now += 11.0

    assert len(allowances._used) == 1
