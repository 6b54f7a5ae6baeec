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
    """Answers each question with the next of its answers, then says that it is exhausted."""

    def __init__(self, *answers, seconds=60.0):
        self.answers = list(answers)
        self.asked = []
        self.slept = []
        self.now = 0.0
        self.seconds = seconds

    def _next(self, question):
        if not self.answers:
            raise ExhaustedError
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

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
        """What is seen until there are no more answers."""
        seen = []
        following = watch.follow(
            self, "/x", {"fieldSelector": "a=b"}, clock=lambda: self.now, sleep=self.sleep
        )
        with contextlib.suppress(ExhaustedError):
            async for kind, item in following:
                seen.append((kind, item if kind == "LISTED" else item["metadata"]["name"]))
        return seen


class ExhaustedError(Exception):
    """The test is over."""


LISTING = ("list", {"fieldSelector": "a=b"})


async def test_a_watch_goes_on_from_the_last_bookmark():
    source = Source(LIST, [event("ADDED", 11), event("BOOKMARK", 50)], [event("DELETED", 51)])

    assert await source.events() == [("LISTED", []), ("ADDED", "one"), ("DELETED", "one")]
    assert source.asked == [LISTING, ("watch", "10"), ("watch", "50")]
    assert source.slept == []


async def test_a_watch_is_given_more_time_than_it_asks_for():
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
async def test_after_a_gap_everything_is_listed_anew(failure, caplog):
    source = Source(LIST, [event("ADDED", 11), failure], LIST, [event("ADDED", 12)])

    kinds = [kind for kind, _ in await source.events()]

    assert kinds == ["LISTED", "ADDED", "LISTED", "ADDED"]
    assert source.asked == [LISTING, ("watch", "10"), LISTING, ("watch", "10")]
    assert len(source.slept) == 1
    assert "following /x, which is tried again" in caplog.text


@pytest.mark.parametrize("failure", [errors.Unreachable("cut"), errors.TimedOut("silent")])
async def test_a_connection_that_breaks_is_resumed(failure):
    source = Source(LIST, [event("ADDED", 11), failure], [event("ADDED", 12)])

    assert [kind for kind, _ in await source.events()] == ["LISTED", "ADDED", "ADDED"]
    assert source.asked == [LISTING, ("watch", "10"), ("watch", "11")]


async def test_failures_come_slower_and_slower_and_are_told_once(caplog):
    caplog.set_level(logging.WARNING)
    source = Source(*[errors.Unreachable("no connection")] * 9)

    assert await source.events() == []
    bounds = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]
    for slept, bound in zip(source.slept, bounds, strict=True):
        assert bound / 2 <= slept <= bound
    assert len(caplog.records) == 1


async def test_what_happens_makes_the_pauses_short_again():
    failure = errors.Unreachable("cut")
    source = Source(*[failure] * 5, LIST, [event("ADDED", 11), failure], failure)

    await source.events()

    assert source.slept[-3] > 6
    assert source.slept[-2] < 1


async def test_watches_that_end_at_once_are_not_asked_for_in_a_hurry():
    source = Source(LIST, [], [], [], seconds=0.1)

    await source.events()

    assert [slept > 0.3 for slept in source.slept] == [True] * 3
    assert source.asked == [LISTING, *[("watch", "10")] * 3]


@pytest.mark.parametrize("document", [[], {}, {"metadata": {}}, {"metadata": LIST["metadata"]}])
async def test_what_is_no_list_is_asked_for_again(document):
    source = Source(document, LIST)

    assert await source.events() == [("LISTED", [])]
