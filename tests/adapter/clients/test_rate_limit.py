from __future__ import annotations

import pytest

from adapter import errors
from adapter.clients import rate_limit


class Clock:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_a_burst_goes_through_and_the_rest_is_paced():
    clock = Clock()
    bucket = rate_limit.TokenBucket(5.0, 2, clock=clock, sleep=clock.sleep)

    for _ in range(4):
        await bucket.take(30.0)
    clock.now += 1.0
    await bucket.take(30.0)

    assert clock.slept == pytest.approx([0.2, 0.4])


async def test_no_more_than_a_burst_is_saved_up():
    clock = Clock()
    bucket = rate_limit.TokenBucket(5.0, 2, clock=clock, sleep=clock.sleep)
    clock.now += 3600.0

    for _ in range(3):
        await bucket.take(30.0)

    assert clock.slept == pytest.approx([0.2])


async def test_a_turn_that_comes_too_late_is_given_up_at_once():
    clock = Clock()
    bucket = rate_limit.TokenBucket(0.1, 1, clock=clock, sleep=clock.sleep)
    await bucket.take(5.0)

    with pytest.raises(errors.TimedOut, match="--client-qps"):
        await bucket.take(5.0)
    await bucket.take(30.0)

    assert clock.slept == pytest.approx([10.0])
