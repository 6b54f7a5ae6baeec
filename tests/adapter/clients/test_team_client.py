"""Clients of teams: what they send, how many at a time, and how much they read.

Times pass in virtual time, with a client that sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult
from adapter.server.evaluation.queries import QueriesBySource
from rules import limits
from rules.document.sources import DEFAULT
from rules.ruleset import Team
from tests import virtual_time
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real

NAMESPACES = [f"namespace-{number}" for number in range(20)]


def team(namespace: str, **values: int) -> Team:
    return Team(namespace=namespace, label="namespace", limits=limits.DEFAULT.with_values(values))


class Simulated(Prometheus):
    """Takes the seconds that `seconds` says for a text, and then raises the error, if any."""

    seconds: Callable[[str], float]
    error: list[errors.BackendError]
    fails: str
    """Part of the texts for which `error` is raised."""
    sent: list[str]

    async def _exchange(self, verb: str, path: str, params: Any, *_: object) -> QueryResult:
        self.sent.append(params["query"])
        seconds = self.seconds(params["query"])
        await asyncio.sleep(min(seconds, 6.0))
        if seconds > 6.0:
            raise errors.TimedOut("no response in 6 s")
        if self.error and self.fails in params["query"]:
            raise self.error[0]
        return QueryResult(kind="vector", samples=())


async def simulated(seconds: Callable[[str], float]) -> Simulated:
    client = Simulated(
        Mock(spec=aiohttp.ClientSession),
        "http://127.0.0.1:9",
        monotonic=asyncio.get_running_loop().time,
    )
    client.seconds, client.sent, client.error, client.fails = seconds, [], [], ""
    return client


async def outcome(client: Prometheus, namespace: str, **values: int) -> tuple[str, float]:
    """Return the error's name, if there is one, and the seconds until the answer."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await client.for_team(team(namespace, **values)).query("up")
    except errors.BackendError as error:
        return type(error).__name__, loop.time() - began
    return "", loop.time() - began


# Delays


def test_slow_queries_of_one_namespace_delay_none_of_nineteen_others():
    async def run():
        client = await simulated(lambda text: 100.0 if 'namespace="namespace-0"' in text else 0.1)
        slow = [asyncio.create_task(outcome(client, "namespace-0")) for _ in range(50)]
        found = []
        for _ in range(20):
            others = (outcome(client, each) for each in NAMESPACES[1:])
            found += await asyncio.gather(*others)
            await asyncio.sleep(1.0)
        for each in slow:
            each.cancel()
        return found

    found = virtual_time.run(run())

    assert len(found) == 19 * 20
    assert {error for error, _ in found} == {""}
    # Twelve at a time: the last eight wait for one query of others.
    assert max(seconds for _, seconds in found) == pytest.approx(0.2)


def test_after_five_timeouts_a_namespace_fails_at_once_and_one_query_at_a_time_is_tried():
    async def run():
        slow = True
        client = await simulated(lambda _: 100.0 if slow else 0.1)
        first = [await outcome(client, "a") for _ in range(5)]
        at_once = [await outcome(client, "a") for _ in range(3)]
        of_others = await outcome(client, "b")
        await asyncio.sleep(1.0)
        tried = await asyncio.gather(*(outcome(client, "a") for _ in range(3)))
        slow = False
        await asyncio.sleep(1.0)
        again = [await outcome(client, "a") for _ in range(3)]
        return first, at_once, of_others, sorted(tried), again

    first, at_once, of_others, tried, again = virtual_time.run(run())

    assert first == [("TimedOut", 6.0)] * 5
    assert at_once == [("TimedOut", 0.0)] * 3
    assert of_others == ("TimedOut", 6.0)
    assert tried == [("TimedOut", 0.0)] * 2 + [("TimedOut", 6.0)]
    assert [error for error, _ in again] == [""] * 3


def test_four_timeouts_in_a_row_close_nothing():
    async def run():
        slow = True
        client = await simulated(lambda _: 100.0 if slow else 0.1)
        for _ in range(4):
            await outcome(client, "a")
        slow = False
        return await outcome(client, "a")

    assert virtual_time.run(run()) == ("", pytest.approx(0.1))


def test_a_query_that_prometheus_stopped_counts_for_its_namespace_alone():
    async def run():
        client = await simulated(lambda _: 5.0)
        client.error.append(errors.QueryTimedOut("query timed out in expression evaluation"))
        stopped = [await outcome(client, "a") for _ in range(6)]
        return stopped[4:], await outcome(client, "b")

    stopped, of_others = virtual_time.run(run())

    assert stopped == [("QueryTimedOut", 5.0), ("TimedOut", 0.0)]
    assert of_others == ("QueryTimedOut", 5.0)


def test_connections_that_break_under_the_queries_of_a_namespace_stop_these_alone():
    async def run():
        client = await simulated(lambda _: 0.1)
        client.error.append(errors.Unreachable("connection reset by peer"))
        client.fails = 'namespace="a"'
        broken = [await outcome(client, "a") for _ in range(7)]
        of_others = await outcome(client, "b")
        await asyncio.sleep(1.0)
        tried = await outcome(client, "a")
        client.error.clear()
        await asyncio.sleep(1.0)
        return broken, of_others, tried, await outcome(client, "a")

    broken, of_others, tried, again = virtual_time.run(run())

    failed = ("Unreachable", pytest.approx(0.1))
    assert broken == [failed] * 5 + [("Unreachable", 0.0)] * 2
    assert (of_others, tried) == (("", pytest.approx(0.1)), failed)
    assert again == ("", pytest.approx(0.1))


@pytest.mark.slow
def test_a_prometheus_that_is_down_gets_one_request_a_second_from_all_namespaces():
    async def run():
        client = await simulated(lambda _: 0.0)
        client.error.append(errors.Unreachable("connection refused"))
        for _ in range(100):  # ten seconds
            await asyncio.gather(*(outcome(client, f"n-{number}") for number in range(100)))
            await asyncio.sleep(0.1)
        down = len(client.sent)
        client.error.clear()
        await asyncio.sleep(1.1)
        first = await outcome(client, "n-0")
        others = await asyncio.gather(*(outcome(client, each) for each in NAMESPACES))
        return down, [first, *others]

    down, up = virtual_time.run(run())

    # Those that were in flight when it failed, and ten probes.
    assert down <= 12 + 5 + 10
    assert {error for error, _ in up} == {""}


def test_a_prometheus_that_hangs_gets_at_most_twelve_requests_at_a_time():
    async def run():
        client = await simulated(lambda _: 100.0)
        waiting = [asyncio.create_task(outcome(client, f"n-{number}")) for number in range(1000)]
        await asyncio.sleep(5.9)
        sent = len(client.sent)
        for each in waiting:
            each.cancel()
        return sent

    assert virtual_time.run(run()) == 12


@pytest.mark.parametrize("own", [1, 2])
def test_a_namespace_has_as_many_requests_at_a_time_as_its_limit(own):
    async def run():
        client, values = await simulated(lambda _: 5.0), {"team-requests": own}
        waiting = [asyncio.create_task(outcome(client, "a", **values)) for _ in range(10)]
        await asyncio.sleep(4.0)
        sent = len(client.sent)
        await asyncio.gather(*waiting)
        return sent

    assert virtual_time.run(run()) == own


def test_the_wait_for_a_turn_is_no_part_of_a_query():
    async def run():
        client = await simulated(lambda _: 5.0)
        queries = QueriesBySource(
            {DEFAULT: client}, clock=lambda: 1e9 + asyncio.get_running_loop().time()
        )
        of_team = (queries.of("default", team("a")).run("up") for _ in range(3))
        return await asyncio.gather(*of_team)

    answers = virtual_time.run(run())

    assert [(each.began, each.at - 1e9, each.took) for each in answers] == [
        (0.0, 0.0, 5.0),
        (5.0, 5.0, 5.0),
        (10.0, 10.0, 5.0),
    ]


# Confinement


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> real.Prometheus:
    empty_prometheus.put(
        'queue{namespace="a",pod="p"} 1',
        'queue{namespace="b",pod="p"} 2',
        'only_b{namespace="b",secret="x"} 2',
    )
    return empty_prometheus


async def test_whatever_is_sent_for_a_team_reads_its_namespace_only(running, session):
    of_team = Prometheus(session, running.url, timeout=10).for_team(team("a"))
    now = time.time()
    window = now - 600, now + 600

    everything = await of_team.query('{__name__=~".+"}')
    joined = await of_team.query("queue or only_b or absent(only_b)")
    names = await of_team.names('{__name__=~".+"}', *window)
    labels = await of_team.label_names('{__name__=~".+"}', *window)
    series = await of_team.series('{__name__=~".+"}', *window)

    assert {each.labels["namespace"] for each in everything.samples} == {"a"}
    assert [each.labels.get("namespace") for each in joined.samples] == ["a", "a"]
    assert names.content == ("queue",)
    assert set(labels.content) == {"namespace", "pod"}
    assert series.content == {"queue": {"namespace", "pod"}}


async def test_a_text_that_cannot_be_confined_is_not_sent(running, session):
    of_team = Prometheus(session, running.url, timeout=10).for_team(team("a"))

    with pytest.raises(errors.Refused, match=r"cannot use info\(\)"):
        await of_team.query("info(queue)")


# Sizes


@pytest.fixture(scope="module")
def large(running) -> real.Prometheus:
    """Return a Prometheus with 10 000 and 10 001 samples, and 1 000 and 1 001 names."""
    of_a = {"namespace": "a"}
    for name, count in (("fits", 10_000), ("exceeds", 10_001)):
        running.write(({"__name__": name, "pod": f"p{n}", **of_a}, 1.0) for n in range(count))
    for kind, count in (("few", 1_000), ("many", 1_001)):
        running.write(({"__name__": f"{kind}_{n}", **of_a}, 1.0) for n in range(count))
    return running


async def test_a_query_of_a_team_returns_as_many_samples_as_its_limit(large, session):
    client = Prometheus(session, large.url, timeout=10)
    of_team = client.for_team(team("a"))

    assert len((await client.query("exceeds")).samples) == 10_001
    assert len((await of_team.query("fits")).samples) == 10_000
    with pytest.raises(errors.TooLarge, match="more samples than --limit=team-samples=10000") as e:
        await of_team.query("exceeds")
    assert "--limit=team-samples=10000" in e.value.refusal
    more = team("a", **{"team-samples": 10_001})
    raised = Prometheus(session, large.url, timeout=10).for_team(more)
    assert len((await raised.query("exceeds")).samples) == 10_001


@pytest.mark.parametrize("kind", ["names", "series"])
async def test_a_listing_of_a_team_returns_a_thousand_names_at_most(large, session, kind):
    client = Prometheus(session, large.url, timeout=10)
    now = time.time()

    async def count(those: Prometheus, pattern: str) -> int:
        listed = await getattr(those, kind)(f'{{__name__=~"{pattern}_.+"}}', now - 600, now + 600)
        return len(listed.content)

    assert await count(client, "many") == 1_001
    assert await count(client.for_team(team("a")), "few") == 1_000
    assert await count(client.for_team(team("a")), "many") == 1_000


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, 1])
async def test_a_response_to_a_team_has_four_mebibytes_at_most(serve, session, more):
    body = vector(4 << 20, more)
    client = Prometheus(session, (await serve(fakes.says(body))).url, timeout=10)
    of_team = client.for_team(team("a"))

    assert len((await client.query("up")).samples) == 8
    if not more:
        assert len((await of_team.query("up")).samples) == 8
        return
    with pytest.raises(errors.TooLarge, match="longer than --limit=team-response=4194304"):
        await of_team.query("up")


async def test_what_exceeds_the_limit_is_not_read(serve, session):
    body = vector(14 << 20, 0, samples=140_000)
    fake = await serve(fakes.says(body))
    received: list[int] = []
    requests = SimpleNamespace(ended=lambda *_, **each: received.append(each["received"]))
    client = Prometheus(session, fake.url, timeout=10, requests=requests)

    with pytest.raises(errors.TooLarge, match="team-samples"):
        await client.for_team(team("a")).query("up")

    assert received[0] < 3 << 20


def vector(size: int, more: int, samples: int = 8) -> bytes:
    """Return a response of `size` bytes and `more`."""
    around = '{"status":"success","data":{"resultType":"vector","result":[%s]}}'
    element = '{"metric":{"x":"%s"},"value":[1700000000.123,"97.5"]}'
    empty = len(around % ",".join([element % ""] * samples))
    each, rest = divmod(size + more - empty, samples)
    labels = ["x" * each] * (samples - 1) + ["x" * (each + rest)]
    body = (around % ",".join(element % label for label in labels)).encode()
    assert len(body) == size + more
    return body
