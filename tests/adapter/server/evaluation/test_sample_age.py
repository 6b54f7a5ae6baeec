"""`maxSampleAge`: objects whose samples are too old are missing, on a real Prometheus."""

from __future__ import annotations

import pytest

from adapter.clients.prometheus import Prometheus
from adapter.server.evaluation.evaluation import Evaluation
from rules.kinds import PODS
from rules.query import catalog, plan
from rules.selectors.selectors import Selector
from tests import world
from tests.adapter.server.evaluation.support import Counting
from tools.real import prometheus as real
from tools.waiting import Clock

NOW = 2_000_000_000.0
"""Time of all queries; samples have their time before it."""
RULE = """
- seriesQuery: {series}
  name: {{as: load}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{query}'
  {more}
"""
SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
RATE = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[20m])) by (<<.GroupBy>>)"
FRESH, OLD = "fresh", "old"


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> real.Prometheus:
    for number, minute in enumerate(range(-15, -8)):
        empty_prometheus.put(
            f'total{{namespace="a",pod="old"}} {number * 60}', at=NOW + minute * 60
        )
    # In namespace b, the ages are swapped. The series of pod `half` have different ages.
    empty_prometheus.put(
        'used{namespace="a",pod="old"} 1',
        'used{namespace="b",pod="fresh"} 2',
        'used{namespace="a",pod="half",gpu="0"} 3',
        at=NOW - 100,
    )
    empty_prometheus.put(
        'used{namespace="a",pod="fresh"} 4',
        'used{namespace="b",pod="old"} 5',
        'used{namespace="a",pod="half",gpu="1"} 6',
        'later{namespace="a",pod="old"} 7',
        'later{namespace="a",pod="fresh"} 8',
        at=NOW - 20,
    )
    return empty_prometheus


@pytest.fixture
def client(running, session) -> Counting:
    return Counting(Prometheus(session, running.url, clock=lambda: NOW))


@pytest.fixture
def evaluation(client, evaluate) -> Evaluation:
    return evaluate(client, clock=lambda: NOW)


@pytest.fixture
def shared(client, evaluate) -> Evaluation:
    return evaluate(client, freshness=60.0, clock=lambda: NOW)


def entry_of(*rules: str) -> catalog.Entry:
    entry = world.generation("rules:" + "".join(rules)).catalog.entry(PODS, "load")
    assert entry is not None
    return entry


def rule(series: str = "used", query: str = SUM, more: str = "maxSampleAge: 1m") -> str:
    return RULE.format(series=series, query=query, more=more)


async def milli(
    evaluation: Evaluation, entry: catalog.Entry, *names: str, namespace: str = "a"
) -> dict[str, int]:
    planned = plan.custom(entry, namespace=namespace, names=names, selector=Selector())
    return {name: value.milli for name, value in (await evaluation.values(planned)).values.items()}


async def test_objects_with_old_samples_only_are_missing(evaluation):
    assert await milli(evaluation, entry_of(rule()), OLD, FRESH, "half") == {
        "fresh": 4000,
        "half": 9000,
    }
    assert await milli(evaluation, entry_of(rule(more="")), OLD, FRESH) == {
        "old": 1000,
        "fresh": 4000,
    }


@pytest.mark.parametrize(
    ("age", "names"), [("8m", []), ("10m", ["old"])], ids=["too old", "young enough"]
)
async def test_an_age_beyond_the_lookback_of_prometheus_is_exact(evaluation, age, names):
    entry = entry_of(rule("total", RATE, f"maxSampleAge: {age}"))

    assert list(await milli(evaluation, entry, OLD)) == names


async def test_one_more_query_serves_all_requests_that_share_an_evaluation(shared, client):
    entry = entry_of(rule())
    for name in (OLD, FRESH, "half"):
        await milli(shared, entry, name)
    del client.queries[:]

    for _ in range(5):
        assert await milli(shared, entry, FRESH) == {"fresh": 4000}
        assert await milli(shared, entry, OLD, "half") == {"half": 9000}
    assert client.queries == []


async def test_a_shared_evaluation_tells_namespaces_apart(shared, client):
    entry = entry_of(rule())
    for name, namespace in ((OLD, "a"), (FRESH, "b"), (FRESH, "a")):
        await milli(shared, entry, name, namespace=namespace)

    assert await milli(shared, entry, OLD, FRESH, namespace="a") == {"fresh": 4000}
    assert await milli(shared, entry, OLD, FRESH, namespace="b") == {"old": 5000}
    recent = [each for each in client.queries if "last_over_time" in each]
    assert any("group by (pod,namespace)" in each for each in recent)
    assert len(recent) == len(client.queries) / 2


async def test_the_next_merged_rule_answers_for_an_object_that_is_too_old(evaluation):
    first, second = rule(more="maxSampleAge: 1m\n  merge: true"), rule("later", more="merge: true")

    values = await milli(evaluation, entry_of(first, second), OLD, FRESH)

    assert values == {"old": 7000, "fresh": 4000}


async def test_a_constant_replaces_an_object_that_is_too_old(evaluation):
    entry = entry_of(rule(more="maxSampleAge: 1m\n  onMissing: {value: 9}"))

    assert await milli(evaluation, entry, OLD, FRESH) == {"old": 9000, "fresh": 4000}


async def test_the_last_value_replaces_an_object_that_became_too_old(running, session, evaluate):
    clock = Clock(NOW - 50)
    evaluation = evaluate(Prometheus(session, running.url, clock=clock), clock=clock)
    entry = entry_of(rule(more="maxSampleAge: 1m\n  onMissing: {lastKnown: 2m}"))
    assert await milli(evaluation, entry, OLD) == {"old": 1000}

    clock.now = NOW
    assert await milli(evaluation, entry, OLD) == {"old": 1000}
    clock.now = NOW + 75
    assert await milli(evaluation, entry, OLD) == {}
