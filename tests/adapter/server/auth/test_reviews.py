from __future__ import annotations

import pytest

from adapter import errors
from adapter.server.auth import reviews


class FakeApi:
    """Answers each request with the next outcome: a document, or an exception to raise."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.requests = []
        self.delays = []

    async def post(self, path, document, *, timeout=None):
        self.requests.append((path, document, timeout))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(self, seconds):
        self.delays.append(seconds)

    async def post_review(self, document=None):
        return await reviews.post_review(
            self, "/x", document or {"a": 1}, timeout=10.0, sleep=self.sleep
        )


def failure(retry_after):
    return errors.Broken("it broke", retry_after=retry_after)


async def test_retryable_errors_are_retried_with_backoff_and_jitter():
    api = FakeApi(*[failure(0.0)] * 4, {})

    assert await api.post_review() == {}
    assert len(api.requests) == 5
    for delay, backoff in zip(api.delays, (0.5, 0.75, 1.125, 1.6875), strict=True):
        assert backoff <= delay <= 1.2 * backoff


async def test_the_fifth_failure_is_raised():
    api = FakeApi(*[failure(0.0)] * 6)

    with pytest.raises(errors.Broken, match="it broke"):
        await api.post_review()

    assert len(api.requests) == 5


async def test_other_errors_are_not_retried():
    api = FakeApi(failure(None))

    with pytest.raises(errors.Broken):
        await api.post_review()

    assert len(api.requests) == 1


async def test_retry_after_prolongs_the_backoff():
    api = FakeApi(failure(3.0), {})

    await api.post_review()

    assert api.delays == [3.0]


async def test_bytes_that_are_not_utf8_are_sent_as_replacement_characters():
    api = FakeApi({})

    await api.post_review(
        {"spec": {"a\udcffb": ["\udc80\udc81", "é"], "token": "\udcff"}, "ok": False}
    )

    ((_, document, _),) = api.requests
    assert document == {
        "spec": {"a\ufffdb": ["\ufffd\ufffd", "é"], "token": "\ufffd"},
        "ok": False,
    }
