"""Limits of the queries at a time, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.evaluation.queries import Queries, QueriesBySource
from adapter.telemetry import EvaluationMetrics
from rules.document.sources import DEFAULT
from rules.query.aggregate import Sample
from rules.ruleset import Team
from rules.selectors import selectors
from rules.selectors.selectors import Selector
from tests import virtual_time, world
from tests.adapter.server.evaluation.support import pods, vector

SECONDS = {"slow": 30.0, "fast": 1.0}


QUEUE = world.external_plan(
    """
externalRules:
- seriesQuery: queue
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
""",
    "queue",
)


class Client:
    """Takes the seconds that `SECONDS` says; counts the queries that run at a time."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.running = self.most = 0

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(SECONDS[promql])
        self.running -= 1
        sample = Sample(labels={"query": f"{self.name} {promql}".strip()}, value=1.0, time=now())
        return vector([sample], reduce)

    def for_team(self, team: Team | None) -> Client:
        return self


class Hanging(Client):
    """Raises after eleven seconds, as the client of a Prometheus that does not respond."""

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        await asyncio.sleep(11.0)
        raise errors.TimedOut("no complete response")


class Slow(Client):
    """Has slow series in the namespace `slow`."""

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        await asyncio.sleep(SECONDS["slow" if '"slow"' in promql else "fast"])
        return vector([], reduce)


def queue(number: int) -> Selector:
    return selectors.parse(f"queue=q{number}")


def now() -> float:
    return asyncio.get_running_loop().time()


def queries_of(client: Client) -> QueriesBySource:
    return QueriesBySource({DEFAULT: client}, clock=lambda: 1e9 + now())


def of_default(queries: QueriesBySource, *texts: str) -> list[tuple[Queries, str, None]]:
    return [(queries.of("default"), text, None) for text in texts]


async def behind(number: int, queries: QueriesBySource, work: Coroutine):
    """Return the result of `work`, which begins after `number` slow queries for one request."""
    others = [asyncio.create_task(queries.of("default").run("slow")) for _ in range(number)]
    await asyncio.sleep(0)
    result = await work
    for each in others:
        each.cancel()
    return result


def test_queries_at_a_time_are_limited_and_some_slots_are_reserved_for_merged_evaluations():
    async def most(merged: bool) -> int:
        client = Client()
        queries = queries_of(client)
        await asyncio.gather(
            *(queries.vectors(of_default(queries, "fast"), merged=merged) for _ in range(100))
        )
        return client.most

    assert virtual_time.run(most(False)) == 12
    assert virtual_time.run(most(True)) == 16


def test_queries_of_a_team_are_not_limited_here_because_its_client_limits_them():
    async def most() -> int:
        client = Client()
        own = queries_of(client).of("default", Team(namespace="a", label="ns"))
        await asyncio.gather(*(own.run("fast") for _ in range(100)))
        return client.most

    assert virtual_time.run(most()) == 100


def test_requests_that_wait_for_a_slot_end_no_later_than_those_that_have_one():
    async def ended() -> list[float]:
        evaluation = Evaluation(
            {DEFAULT: Hanging()},
            metrics=EvaluationMetrics(CollectorRegistry()),
            freshness=0.0,
            timeout=12.0,
        )

        async def request(number: int) -> float:
            with pytest.raises(errors.TimedOut):
                await evaluation.values(pods(f"p{number}"), deadline=60.0)
            return now()

        return await asyncio.gather(*map(request, range(100)))

    assert virtual_time.run(ended()) == [11.0] * 12 + [12.0] * 88


def test_each_source_has_slots_of_its_own():
    async def run():
        slow, fast = Client(), Client()
        queries = QueriesBySource({DEFAULT: slow, "fast": fast})
        waiting = [asyncio.create_task(queries.of("default").run("slow")) for _ in range(100)]
        await asyncio.sleep(0)
        answer = await queries.vectors([(queries.of("fast"), "fast", None)], merged=False)
        for each in waiting:
            each.cancel()
        return answer.took, slow.most, fast.most

    assert virtual_time.run(run()) == (1.0, 12, 1)


def test_results_of_several_sources_are_in_the_order_of_the_queries():
    async def run():
        queries = QueriesBySource({DEFAULT: Client(), "other": Client("other")})
        asked = ("other", "slow"), ("default", "fast"), ("other", "fast")
        return await queries.vectors(
            [(queries.of(source), text, None) for source, text in asked], merged=False
        )

    answer = virtual_time.run(run())

    assert [each.samples[0].labels["query"] for each in answer.result] == [
        "other slow",
        "fast",
        "other fast",
    ]
    assert (answer.began, answer.took) == (0.0, 30.0)


def test_merged_evaluation_does_not_wait_for_queries_of_single_requests():
    async def ended() -> float:
        queries = queries_of(Client())
        await behind(400, queries, queries.vectors(of_default(queries, *["fast"] * 4), merged=True))
        return now()

    assert virtual_time.run(ended()) == 1.0


@pytest.mark.parametrize("external", [False, True])
def test_slow_queries_of_one_namespace_do_not_delay_single_requests_of_others(external):
    async def ended() -> float:
        evaluation = Evaluation(
            {DEFAULT: Slow()}, metrics=EvaluationMetrics(CollectorRegistry()), freshness=0.0
        )

        async def request(namespace: str, number: int) -> None:
            if external:
                await evaluation.rows(replace(QUEUE, namespace=namespace, selector=queue(number)))
            else:
                await evaluation.values(pods(f"p{number}", namespace=namespace))

        others = [asyncio.create_task(request("slow", number)) for number in range(400)]
        await asyncio.sleep(0.5)
        await request("quick", 0)
        for each in others:
            each.cancel()
        return now()

    assert virtual_time.run(ended()) == 31.0


@pytest.mark.parametrize("merged", [False, True])
def test_duration_does_not_contain_the_wait_for_a_slot(merged):
    async def timed():
        queries = queries_of(Client())
        slow = [queries.vectors(of_default(queries, "slow"), merged=True) for _ in range(16)]
        *_, last = await asyncio.gather(
            *slow, queries.vectors(of_default(queries, "fast"), merged=merged)
        )
        return last

    answer = virtual_time.run(timed())

    assert (answer.began, answer.took, answer.at) == (30.0, 1.0, 1e9 + 30)


def test_several_queries_begin_with_the_first_and_take_as_long_as_the_longest():
    async def timed():
        queries = queries_of(Client())
        return await behind(
            11, queries, queries.vectors(of_default(queries, "fast", "slow"), merged=False)
        )

    answer = virtual_time.run(timed())

    assert [each.samples[0].labels["query"] for each in answer.result] == ["fast", "slow"]
    assert (answer.began, answer.took, answer.at) == (0.0, 30.0, 1e9)
