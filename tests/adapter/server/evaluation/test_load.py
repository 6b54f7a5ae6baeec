"""Autoscalers in virtual time: how often Prometheus is queried, and how old values are."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.evaluation import shared_query
from adapter.server.evaluation.evaluation import Evaluation
from rules.document.sources import DEFAULT
from rules.query.aggregate import Sample
from rules.query.plan import Plan
from tests import virtual_time
from tests.adapter.server.evaluation.support import pods, vector

pytestmark = pytest.mark.slow

PERIOD = 15.0
"""Seconds between two requests of an autoscaler."""


class Client:
    """Returns a sample of every pod after `took()` seconds, or fails then if `down()` is true."""

    def __init__(
        self, pods: int, took: Callable[[], float], down: Callable[[], bool] = lambda: False
    ) -> None:
        self._labels = [{"namespace": f"n{i % 5}", "pod": f"p{i}"} for i in range(pods)]
        self._took = took
        self._down = down
        self.sent: list[float] = []
        self.texts: list[str] = []
        self.longest = 0.0

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        began = now()
        self.sent.append(began)
        self.texts.append(promql)
        await asyncio.sleep(self._took())
        if self._down():
            raise errors.Unreachable("no route to Prometheus")
        self.longest = max(self.longest, now() - began)
        return vector((Sample(labels=each, value=1.0, time=began) for each in self._labels), reduce)


class Load:
    """Autoscalers that request the metric of four pods each, at random phases."""

    def __init__(self, autoscalers: int, client: Client, freshness: float | None = None) -> None:
        self._autoscalers = autoscalers
        self.registry = CollectorRegistry()
        metrics = telemetry.EvaluationMetrics(self.registry)
        self.evaluation = Evaluation({DEFAULT: client}, metrics=metrics, freshness=freshness)
        self.requests: list[float] = []
        self.waited: list[float] = []
        """When a request was made that was not answered at once."""
        self.answered: list[float] = []
        self.ages: list[float] = []
        self.failed: list[float] = []

    async def run(self, seconds: float) -> None:
        phases = random.Random(1)
        tasks = [
            asyncio.create_task(self._autoscaler(number, phases.random() * PERIOD))
            for number in range(self._autoscalers)
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.evaluation.close()

    async def _autoscaler(self, number: int, phase: float) -> None:
        names = tuple(f"p{number + self._autoscalers * i}" for i in range(4))
        request = pods(*names, namespace=f"n{number % 5}")
        await asyncio.sleep(phase)
        while True:
            await self._request(request)
            await asyncio.sleep(PERIOD)

    async def _request(self, request: Plan) -> None:
        began = now()
        self.requests.append(began)
        try:
            values = (await self.evaluation.values(request)).values
        except errors.BackendError:
            self.failed.append(now())
            return
        assert list(values) == list(request.names)
        self.answered.append(now())
        self.ages += (now() - value.time for value in values.values())
        if now() > began:
            self.waited.append(began)


def now() -> float:
    return asyncio.get_running_loop().time()


async def loaded(autoscalers: int, took: float, freshness: float | None = None):
    client = Client(4 * autoscalers, lambda: took)
    load = Load(autoscalers, client, freshness)
    await load.run(120)
    return client, load


def per_minute(times: list[float]) -> float:
    """Return the rate after the first minute."""
    return sum(60 <= time < 120 for time in times)


@pytest.mark.parametrize(
    ("autoscalers", "took", "freshness", "most"),
    [
        (100, 0.01, None, 60),
        (100, 0.05, None, 24),
        (400, 0.15, None, 12),
        (400, 0.01, 2.0, 30),
    ],
)
def test_queries_do_not_grow_with_the_autoscalers_and_few_requests_wait(
    autoscalers, took, freshness, most
):
    client, load = virtual_time.run(loaded(autoscalers, took, freshness))

    assert most * 0.9 <= per_minute(client.sent) <= most
    assert per_minute(load.requests) == autoscalers * 4
    assert per_minute(load.waited) <= 0.02 * per_minute(load.requests)
    assert max(load.ages) <= (freshness or 60 / most) + took + 1e-6


@pytest.mark.parametrize("autoscalers", [1, 3, 10, 20])
def test_few_autoscalers_never_cost_more_queries_than_requests(autoscalers):
    client, load = virtual_time.run(loaded(autoscalers, 0.01))

    assert len(client.sent) <= len(load.requests)


def test_none_waits_for_an_evaluation_that_takes_longer_than_the_last_one():
    async def varying() -> Load:
        chance = random.Random(3)
        load = Load(400, Client(1600, lambda: chance.choice((0.02, 0.1, 0.4))))
        await load.run(120)
        return load

    assert per_minute(virtual_time.run(varying()).waited) == 0


def test_while_the_next_evaluation_is_slow_the_present_one_is_used_as_long_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_query, "_SHORTEST_PATIENCE", 0.0)
    seconds = [1000.0, 0.4, 0.0, 0.0]

    async def follow() -> None:
        evaluation = Load(0, Client(20, seconds.pop), freshness=0.2).evaluation
        requests = [pods(f"p{number}", namespace=f"n{number}") for number in range(3)]
        for each in requests[:2]:
            await evaluation.values(each)

        async def request() -> None:
            assert list((await evaluation.values(requests[2])).values) == ["p2"]

        waiting = [asyncio.create_task(request())]
        await asyncio.sleep(0.3)
        waiting += [asyncio.create_task(request()) for _ in range(3)]
        await asyncio.gather(*waiting)

        await asyncio.sleep(0.4)  # 0.2 s after it should have been replaced
        async with asyncio.timeout(0.1):
            await request()
        await asyncio.sleep(0.3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await request()
        await evaluation.close()

    virtual_time.run(follow())
    assert not seconds


def test_while_one_evaluation_is_slow_the_present_one_is_used_for_half_its_freshness():
    seconds = [10.0, 0.01, 0.01, 0.01]

    async def follow() -> None:
        evaluation = Load(0, Client(20, seconds.pop), freshness=2.0).evaluation
        requests = [pods(f"p{number}", namespace=f"n{number}") for number in range(3)]
        for pause in (0.0, 1.0):
            await asyncio.sleep(pause)
            for each in requests:
                await evaluation.values(each)

        for pause, answered in ((1.9, True), (0.2, False)):
            await asyncio.sleep(pause)
            with contextlib.nullcontext() if answered else pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await evaluation.values(requests[2])
        await evaluation.close()

    virtual_time.run(follow())


def test_start_of_many_autoscalers_costs_few_queries():
    async def start() -> tuple[Client, Load]:
        client = Client(4000, lambda: 0.05)
        load = Load(1000, client)
        await load.run(PERIOD)
        return client, load

    client, load = virtual_time.run(start())

    assert len(load.requests) == 1000
    assert len(client.sent) <= 30


def test_requests_of_a_busy_rule_do_not_wait_for_slow_queries_of_others():
    async def flooded() -> tuple[Load, float]:
        client = Client(400, lambda: 30.0 if "gpu=" in client.texts[-1] else 0.01)
        load = Load(100, client)
        running = asyncio.create_task(load.run(120))
        await asyncio.sleep(60)
        others = [
            asyncio.create_task(
                load.evaluation.values(pods("p0", namespace="n0", selector=f"gpu={number}"))
            )
            for number in range(400)
        ]
        await running
        await asyncio.gather(*others, return_exceptions=True)
        name = "gpu_metrics_adapter_evaluation_duration_seconds"
        count, within = (
            load.registry.get_sample_value(f"{name}_{suffix}", {"rule": "rules[0]", **bucket})
            for suffix, bucket in (("count", {}), ("bucket", {"le": "30.0"}))
        )
        assert count
        return load, count == within

    load, in_time = virtual_time.run(flooded())

    assert per_minute(load.waited) <= 0.02 * per_minute(load.requests)
    assert in_time
    assert max(load.ages) <= 1.01 + 1e-6


def test_after_a_start_names_are_matched_again_if_most_samples_are_not_wanted():
    async def few_of_many() -> tuple[Client, Load]:
        client = Client(4000, lambda: 0.01)
        load = Load(100, client)
        await load.run(60)
        return client, load

    client, _ = virtual_time.run(few_of_many())

    wide = 'sum(used{namespace!="",pod!=""}) by (pod,namespace)'
    widths = [text.count("|") for text in client.texts]
    assert client.texts.index(wide) < 25
    assert widths[client.texts.index(wide) :].count(4 + 399) > 20
    assert wide not in client.texts[-20:]


@pytest.mark.parametrize("autoscalers", [10, 200])
def test_values_are_not_older_than_freshness_and_one_evaluation_under_faults(autoscalers):
    async def faults() -> tuple[Client, Load]:
        chance = random.Random(2)
        client = Client(
            4 * autoscalers,
            lambda: chance.choice((0.01, 0.05, 0.3, 3.0)),
            lambda: now() % 120 >= 60,
        )
        load = Load(autoscalers, client)
        await load.run(480)
        return client, load

    client, load = virtual_time.run(faults())

    assert max(load.ages) <= 5 + client.longest
    assert not any(time % 120 >= 70 for time in load.answered)
    assert not any(10 <= time % 120 < 60 for time in load.failed)


def test_queries_of_a_prometheus_that_does_not_respond_are_few():
    async def down() -> tuple[Client, Load]:
        client = Client(1600, lambda: 0.01, lambda: True)
        load = Load(400, client)
        await load.run(120)
        return client, load

    client, load = virtual_time.run(down())

    assert len(load.failed) == len(load.requests)
    assert per_minute(client.sent) <= 60
