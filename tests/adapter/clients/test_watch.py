from __future__ import annotations

import contextlib
import logging

import pytest

from adapter import errors
from adapter.clients import watch

LIST = {"metadata": {"resourceVersion": "10"}, "items": None}


def event(kind, version, name="one"):
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


ERROR = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


class Source:
    """Returns one of its responses per request; raises ExhaustedError after the last one."""

    def __init__(self, *responses, seconds=60.0):
        self.responses = list(responses)
        self.requests = []
        self.slept = []
        self.now = 0.0
        self.seconds = seconds

    def _next(self, request):
        if not self.responses:
            raise ExhaustedError
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    async def get(self, path, params=None):
        return self._next(("list", dict(params)))

    async def stream(self, path, params, *, ttl):
        self.ttl = ttl
        for line in self._next(("watch", params["resourceVersion"])):
            if isinstance(line, Exception):
                raise line
            yield line
        self.now += self.seconds

    async def sleep(self, seconds):
        self.slept.append(seconds)

    async def events(self):
        """Return the events until the responses are exhausted."""
        events = []
        watched = watch.follow(
            self, "/x", {"fieldSelector": "a=b"}, clock=lambda: self.now, sleep=self.sleep
        )
        with contextlib.suppress(ExhaustedError):
            async for kind, item in watched:
                events.append((kind, item if kind == "LISTED" else item["metadata"]["name"]))
        return events


class ExhaustedError(Exception):
    """The test is over."""


LISTING = ("list", {"fieldSelector": "a=b"})


async def test_watch_resumes_from_the_last_bookmark():
    source = Source(LIST, [event("ADDED", 11), event("BOOKMARK", 50)], [event("DELETED", 51)])

    assert await source.events() == [("LISTED", []), ("ADDED", "one"), ("DELETED", "one")]
    assert source.requests == [LISTING, ("watch", "10"), ("watch", "50")]
    assert source.slept == []


async def test_client_timeout_exceeds_the_requested_one():
    source = Source(LIST, [])
    await source.events()

    assert 120 < source.ttl < 300


@pytest.mark.parametrize(
    "failure",
    [
        ERROR,
        {"type": "ADDED"},
        {"type": "ADDED", "object": {}},
        ["junk"],
        {"type": "ERROR", "object": "junk"},
        errors.Refused("410", status=410),
        errors.Broken("no JSON"),
    ],
)
async def test_list_is_repeated_after_a_gap(failure, caplog):
    source = Source(LIST, [event("ADDED", 11), failure], LIST, [event("ADDED", 12)])

    kinds = [kind for kind, _ in await source.events()]

    assert kinds == ["LISTED", "ADDED", "LISTED", "ADDED"]
    assert source.requests == [LISTING, ("watch", "10"), LISTING, ("watch", "10")]
    assert len(source.slept) == 1
    assert "watch of /x failed and is retried" in caplog.text


@pytest.mark.parametrize("failure", [errors.Unreachable("cut"), errors.TimedOut("silent")])
async def test_watch_resumes_after_a_broken_connection(failure):
    source = Source(LIST, [event("ADDED", 11), failure], [event("ADDED", 12)])

    assert [kind for kind, _ in await source.events()] == ["LISTED", "ADDED", "ADDED"]
    assert source.requests == [LISTING, ("watch", "10"), ("watch", "11")]


async def test_consecutive_failures_back_off_and_are_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    source = Source(*[errors.Unreachable("no connection")] * 9)

    assert await source.events() == []
    bounds = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]
    for slept, bound in zip(source.slept, bounds, strict=True):
        assert bound / 2 <= slept <= bound
    assert len(caplog.records) == 1


async def test_event_resets_the_backoff():
    failure = errors.Unreachable("cut")
    source = Source(*[failure] * 5, LIST, [event("ADDED", 11), failure], failure)

    await source.events()

    assert source.slept[-3] > 6
    assert source.slept[-2] < 1


async def test_watch_that_ends_at_once_is_repeated_with_backoff():
    source = Source(LIST, [], [], [], seconds=0.1)

    await source.events()

    assert [slept > 0.3 for slept in source.slept] == [True] * 3
    assert source.requests == [LISTING, *[("watch", "10")] * 3]


@pytest.mark.parametrize("document", [[], {}, {"metadata": {}}, {"metadata": LIST["metadata"]}])
async def test_malformed_list_is_requested_again(document):
    source = Source(document, LIST)

    assert await source.events() == [("LISTED", [])]
