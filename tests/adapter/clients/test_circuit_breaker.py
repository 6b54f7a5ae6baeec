from __future__ import annotations

import asyncio
import contextlib

import pytest

from adapter import errors
from adapter.clients.circuit_breaker import CircuitBreaker
from tools.waiting import Clock


def fail(breaker: CircuitBreaker, error: BaseException) -> None:
    with pytest.raises(type(error)), breaker.request():
        raise error


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker("Prometheus", clock=clock)
    for _ in range(4):
        fail(breaker, errors.Unreachable("no route"))
    fail(breaker, errors.TimedOut("too slow"))
    return breaker


def is_open(breaker: CircuitBreaker) -> bool:
    with contextlib.suppress(errors.Unreachable), breaker.request():
        return False
    return True


def test_five_failures_open_it_and_the_error_names_the_last_one():
    breaker = opened(Clock(100.0))

    with (
        pytest.raises(errors.Unreachable, match=r"^Prometheus is not queried.*too slow$"),
        breaker.request(),
    ):
        raise AssertionError


def test_only_the_response_to_a_probe_closes_it():
    clock = Clock(100.0)
    breaker = opened(clock)
    clock.now += 1000
    assert is_open(breaker)

    with pytest.raises(errors.TimedOut), breaker.probe():
        raise errors.TimedOut("too slow")
    assert is_open(breaker)

    with breaker.probe():
        pass
    assert not is_open(breaker)


@pytest.mark.parametrize(
    "response",
    [
        errors.Refused("bad query", status=400),
        errors.Broken("503"),
        errors.QueryTimedOut("503 timeout"),
        None,
    ],
)
def test_any_response_counts_as_success(response):
    breaker = CircuitBreaker("Prometheus", clock=Clock(100.0))
    for _ in range(4):
        fail(breaker, errors.Unreachable("no route"))
    if response is None:
        with breaker.request():
            pass
    else:
        fail(breaker, response)
    for _ in range(4):
        fail(breaker, errors.Unreachable("no route"))

    assert not is_open(breaker)


def test_cancelled_requests_do_not_count():
    breaker = CircuitBreaker("Prometheus", clock=Clock(100.0))
    for _ in range(10):
        fail(breaker, asyncio.CancelledError())

    assert not is_open(breaker)


def test_a_slow_listing_is_no_reason_to_stop_queries():
    breaker = CircuitBreaker("Prometheus", clock=Clock(100.0))
    for _ in range(5):
        with pytest.raises(errors.TimedOut), breaker.request(slow_is_failure=False):
            raise errors.TimedOut("too slow")

    assert not is_open(breaker)


def test_of_several_times_to_wait_the_longest_counts():
    clock = Clock(100.0)
    breaker = CircuitBreaker("Prometheus", clock=clock)
    with contextlib.suppress(errors.Overloaded), breaker.request():
        fail(breaker, errors.Overloaded("wait", status=429, retry_after=60.0))
        raise errors.Overloaded("wait", status=429, retry_after=1.0)
    clock.now += 30

    with pytest.raises(errors.Overloaded, match="for 30 s"), breaker.request():
        raise AssertionError
