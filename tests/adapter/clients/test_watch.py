from __future__ import annotations

import contextlib
import itertools
import logging

import pytest

from adapter import errors
from adapter.clients import watch

LIST = ("10", [])


def event(kind, version, name="one"):
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


ERROR = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


class Source:
    """Returns one of its responses per request; raises ExhaustedError after the last one."""

    def __init__(self, *responses, seconds=60.0):
        self.responses = list(responses)
        self.requests = []
        self.slept = []
        self.reports = []
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

    async def snapshot(self, path, params, extract, *, metadata_only, max_items, unreadable):
        return self._next(("list", dict(params)))

    async def stream(self, path, params, *, ttl, metadata_only, on_open):
        self.ttl = ttl
        lines = self._next(("watch", params["resourceVersion"]))
        on_open()
        for line in lines:
            if isinstance(line, Exception):
                raise line
            yield line
        self.now += self.seconds

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    async def events(self):
        """Return the events until the responses are exhausted."""
        events = []
        watched = watch.follow(
            self,
            "/x",
            {"fieldSelector": "a=b"},
            report=self.reports.append,
            clock=lambda: self.now,
            sleep=self.sleep,
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


async def test_a_watch_whose_connection_fails_is_resumed_within_a_second(caplog):
    source = Source(LIST, *[errors.Unreachable("refused")] * 9, [event("ADDED", 11)])

    assert [kind for kind, _ in await source.events()] == ["LISTED", "ADDED"]
    assert source.requests == [LISTING, *[("watch", "10")] * 10]
    assert all(0.4 <= slept <= 0.8 for slept in source.slept)
    assert len(set(source.slept)) == 9, "clients would come at the same time"
    assert len(caplog.records) == 1


async def test_a_watch_that_has_not_worked_for_a_minute_is_resumed_with_backoff():
    lost = [errors.Unreachable("refused")] * 160
    source = Source(LIST, [event("ADDED", 11)], *lost, [event("ADDED", 12)], lost[0])

    await source.events()

    ages = itertools.accumulate(source.slept, initial=0.0)
    late = [pause for age, pause in zip(ages, source.slept, strict=False) if age >= 60]
    bounds = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, *[30] * len(late)]
    assert len(late) > 8
    assert all(0.4 <= pause <= 0.8 for pause in source.slept[: -len(late)])
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(late[:-1], bounds, strict=False))
    assert late[-1] <= 0.8


@pytest.mark.parametrize("failure", [errors.TimedOut("slow"), errors.Refused("429", status=429)])
async def test_a_lost_connection_does_not_shorten_the_backoff_after_answers(failure):
    lost = errors.Unreachable("refused")
    source = Source(LIST, *[failure] * 3, lost, *[failure] * 3)

    await source.events()

    bounds = [0.8, 1.6, 3.2, 0.8, 6.4, 12.8, 25.6]
    for slept, bound in zip(source.slept, bounds, strict=True):
        assert bound / 2 <= slept <= bound


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


async def test_list_without_a_version_is_requested_again():
    source = Source(("", []), LIST)

    assert await source.events() == [("LISTED", [])]


@pytest.mark.parametrize("status", [401, 403, 405, 429])
async def test_refused_watch_is_retried_without_a_list(status):
    source = Source(LIST, errors.Refused("no", status=status), [event("ADDED", 11)])

    assert [kind for kind, _ in await source.events()] == ["LISTED", "ADDED"]
    assert source.requests == [LISTING, ("watch", "10"), ("watch", "10")]


async def test_progress_and_failures_are_reported():
    failure = errors.Unreachable("cut")
    source = Source(failure, LIST, [event("BOOKMARK", 11)], [failure])

    await source.events()

    opened = line = end = None
    assert source.reports == [failure, opened, line, end, opened, failure]


async def test_report_may_end_the_iteration():
    def report(error):
        raise ExhaustedError from error

    source = Source(errors.Unreachable("cut"), LIST)
    with pytest.raises(ExhaustedError):
        await anext(watch.follow(source, "/x", {}, report=report))
