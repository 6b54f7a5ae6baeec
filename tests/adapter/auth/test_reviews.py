from __future__ import annotations

import pytest

from adapter import errors
from adapter.auth import reviews


class Api:
    """Answers with the last of `outcomes` when the others have been had."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.asked = []
        self.slept = []

    async def post(self, path, document, *, timeout=None):
        self.asked.append((path, document, timeout))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(self, seconds):
        self.slept.append(seconds)

    async def ask(self, document=None):
        return await reviews.ask(self, "/x", document or {"a": 1}, timeout=10.0, sleep=self.sleep)


def failure(retry_after):
    error = errors.Broken("it broke")
    error.retry_after = retry_after
    return error


async def test_an_answer_is_asked_for_once():
    api = Api({"status": {}})

    assert await api.ask() == {"status": {}}
    assert api.asked == [("/x", {"a": 1}, 10.0)]


async def test_what_may_pass_is_asked_again_in_growing_intervals():
    api = Api(*[failure(0.0)] * 4, {})

    assert await api.ask() == {}
    assert len(api.asked) == 5
    for slept, base in zip(api.slept, (0.5, 0.75, 1.125, 1.6875), strict=True):
        assert base <= slept <= 1.2 * base


async def test_the_fifth_failure_is_the_last():
    api = Api(*[failure(0.0)] * 6)

    with pytest.raises(errors.Broken, match="it broke"):
        await api.ask()

    assert len(api.asked) == 5


async def test_what_will_not_pass_is_not_asked_again():
    api = Api(failure(None))

    with pytest.raises(errors.Broken):
        await api.ask()

    assert len(api.asked) == 1


async def test_the_api_server_may_ask_for_more_time():
    api = Api(failure(3.0), {})

    await api.ask()

    assert api.slept == [3.0]


async def test_bytes_that_are_no_text_are_asked_about_as_go_would_write_them():
    api = Api({})

    await api.ask({"spec": {"a\udcffb": ["\udc80\udc81", "é"], "token": "\udcff"}, "ok": False})

    ((_, document, _),) = api.asked
    assert document == {
        "spec": {"a\ufffdb": ["\ufffd\ufffd", "é"], "token": "\ufffd"},
        "ok": False,
    }
