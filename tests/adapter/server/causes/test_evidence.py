"""Bounds of the queries for causes: few, shared, remembered and limited in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from adapter import errors
from adapter.clients.prometheus_result import QueryResult
from adapter.server.causes import evidence
from adapter.server.causes.evidence import Probes
from rules.causes import questions
from rules.causes.reasons import Reason
from rules.exporters import detect
from rules.ruleset import Team
from tests import virtual_time, world

RULES = """
rules:
- seriesQuery: gpu_util
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""


class Backend:
    """Prometheus without series, that counts queries and can hang."""

    def __init__(self):
        self.queries: list[str] = []
        self.answering = asyncio.Event()
        self.answering.set()

    async def query(self, text):
        self.queries.append(text)
        await self.answering.wait()
        return QueryResult(kind="vector", samples=())

    async def detection(self):
        raise errors.Unreachable("down")


@pytest.fixture
def backend():
    return Backend()


def planned(*names, team=None):
    rules = world.load(RULES)
    if team:
        own = Team(namespace=team, label="ns")
        of_team = (replace(rule, team=own, content=team) for rule in rules.rules)
        rules = replace(rules, rules=tuple(of_team))
    return world.pods_plan(rules, "gpu_util", names)


async def test_equal_requests_share_a_few_queries_for_thirty_seconds(backend):
    now = 0.0
    found = Probes(lambda _: backend.query, backend.detection, clock=lambda: now)
    asked = planned("a", "b")

    await asyncio.gather(*(found.of_plan(asked) for _ in range(5)))
    once = len(backend.queries)
    now = 29.0
    await found.of_plan(asked)
    assert len(backend.queries) == once <= 15

    now = 31.0
    await found.of_plan(asked)
    assert len(backend.queries) == 2 * once


def test_the_queries_that_follow_others_share_their_two_seconds(backend):
    async def slow(text):
        backend.queries.append(text)
        await asyncio.sleep(1.5)
        return QueryResult(kind="vector", samples=())

    async def ended():
        await Probes(lambda _: slow, backend.detection).of_plan(planned("a"))
        return asyncio.get_running_loop().time()

    assert virtual_time.run(ended()) == 2.0
    assert len(backend.queries) > len(questions.queries(questions.questions(planned("a"))[0]))


@pytest.mark.usefixtures("patience")
async def test_at_most_two_diagnoses_run_at_a_time(backend):
    found = Probes(lambda _: backend.query, backend.detection)
    backend.answering.clear()
    running = [asyncio.create_task(found.of_plan(planned(name))) for name in "ab"]
    while len(backend.queries) < 2 * 8:  # noqa: ASYNC110 - has no event
        await asyncio.sleep(0)
    sent = len(backend.queries)

    assert await found.of_plan(planned("c")) == ()
    assert len(backend.queries) == sent

    backend.answering.set()
    assert [cause.reason for causes in await asyncio.gather(*running) for cause in causes] == [
        Reason.NO_SERIES
    ] * 2


@pytest.mark.usefixtures("patience")
async def test_diagnoses_of_one_team_leave_those_of_others_to_them(backend):
    found = Probes(lambda _: backend.query, backend.detection)
    backend.answering.clear()
    slow = [asyncio.create_task(found.of_plan(planned(each, team="a"))) for each in "abc"]
    while len(backend.queries) < 2 * 8:  # noqa: ASYNC110 - has no event
        await asyncio.sleep(0)
    of_others = [
        asyncio.create_task(found.of_plan(planned("a", team=team))) for team in ("b", "c", None)
    ]
    while len(backend.queries) < 5 * 8:  # noqa: ASYNC110 - has no event
        await asyncio.sleep(0)
    backend.answering.set()

    assert [len(each) for each in await asyncio.gather(*slow)] == [1, 1, 0]
    assert [len(each) for each in await asyncio.gather(*of_others)] == [1, 1, 1]


async def test_the_rate_of_diagnoses_is_that_of_each_team(backend):
    found = Probes(lambda _: backend.query, backend.detection, clock=lambda: 0.0)

    of_one = [await found.of_plan(planned(str(number), team="a")) for number in range(21)]
    of_other = await found.of_plan(planned("0", team="b"))

    assert [len(causes) for causes in of_one] == [1] * 20 + [0]
    assert len(of_other) == 1


async def test_callers_that_wake_together_start_at_most_two_diagnoses(backend):
    found = Probes(lambda _: backend.query, backend.detection)

    causes = await asyncio.gather(*(found.of_plan(planned(str(each))) for each in range(20)))

    assert [len(each) for each in causes] == [1] * 2 + [0] * 18
    assert len(backend.queries) <= 2 * 15


async def test_diagnoses_are_limited_in_rate_and_the_last_ones_stay_in_use(backend):
    now = 0.0
    found = Probes(lambda _: backend.query, backend.detection, clock=lambda: now)
    plans = [planned(str(number)) for number in range(21)]

    first = [await found.of_plan(each) for each in plans]
    now = 100.0
    for each in plans[1:20]:
        await found.of_plan(each)
    sent = len(backend.queries)
    again = [await found.of_plan(each) for each in plans[:1]]
    last = [await found.of_plan(each) for each in plans[19:]]

    assert [len(causes) for causes in first] == [1] * 20 + [0]
    assert again == first[:1]
    assert last == [*first[19:20], ()]
    assert len(backend.queries) - sent <= 15  # one token was left


def test_a_detection_that_hangs_is_repeated_after_thirty_seconds(backend):
    hangs = True

    async def detection():
        await asyncio.sleep(60.0 * hangs)
        live = {"DCGM_FI_DEV_GPU_UTIL": frozenset({"namespace", "pod"})}
        return detect.analyze(detect.Observations(live=live, indexed=live, anything=True))

    async def first_reasons():
        nonlocal hangs
        (rule,) = world.load(RULES.replace("gpu_util", "DCGM_FI_DEV_GPU_UTIL")).rules
        clock = asyncio.get_running_loop().time
        found = Probes(lambda _: backend.query, detection, clock=clock)
        before = await found.of_rule(rule)
        await asyncio.sleep(30.0)
        hangs = False
        after = await found.of_rule(rule)
        return before[0].reason, after[0].reason

    assert virtual_time.run(first_reasons()) == (Reason.NO_SERIES, Reason.OTHER_EXPORTER)


@pytest.mark.slow
async def test_queries_that_hang_are_given_up(backend, monkeypatch):
    monkeypatch.setattr(evidence, "_TIMEOUT", 0.01)
    backend.answering.clear()

    (cause,) = await Probes(lambda _: backend.query, backend.detection).of_plan(planned("a"))

    assert cause.reason == Reason.NO_SAMPLE
    assert "Prometheus did not answer the queries for the cause" in cause.sentence


async def test_names_are_escaped_and_limited_in_number(backend):
    found = Probes(lambda _: backend.query, backend.detection)

    await found.of_plan(planned("a.b", *(f"pod-{number}" for number in range(10_000))))

    assert any(r'pod=~"a\\.b|pod-0|' in text for text in backend.queries)
    assert max(map(len, backend.queries)) < 2000
