"""What is kept of evaluations when rules are replaced."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from adapter import errors
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.evaluation.evaluation import Evaluation
from rules.query.aggregate import Sample
from rules.query.plan import Plan
from rules.ruleset import CompiledRule, RuleSet
from tests import world
from tests.adapter.server.evaluation.support import vector


def rule(series: str, more: str = "") -> str:
    return f"""
- seriesQuery: '{series}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: '<<.Series>>{{<<.LabelMatchers>>}}'
  {more}
"""


A, B = rule("a"), rule("b")


def rules(*some: str) -> RuleSet:
    return world.load("rules:\n" + "".join(some))


def planned(of: RuleSet, metric: str, *names: str) -> Plan:
    return world.pods_plan(of, metric, names, namespace="n")


class Client:
    """Prometheus in memory with one value for all pods; counts the queries."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.value: float | None = 1.0
        self.failure: errors.BackendError | None = None

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries.append(promql)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        labels = [{"namespace": "n", "pod": pod} for pod in ("p", "q")]
        value = self.value
        samples = [] if value is None else [Sample(each, value, time.time()) for each in labels]
        return vector(samples, reduce)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def evaluation(evaluate, client, registry) -> Evaluation:
    return evaluate(client, registry, freshness=1000.0)


async def milli(evaluation: Evaluation, request: Plan) -> dict[str, int]:
    return {name: each.milli for name, each in (await evaluation.values(request)).values.items()}


async def test_unchanged_rule_is_not_queried_again_at_another_place(evaluation, client):
    before = rules(A)
    assert await milli(evaluation, planned(before, "a", "p")) == {"p": 1000}
    after = rules(B, A)

    evaluation.adopt(after.all)

    client.value = 2.0
    assert await milli(evaluation, planned(after, "a", "p")) == {"p": 1000}
    assert len(client.queries) == 1


async def test_shared_evaluations_of_an_unchanged_rule_are_kept(evaluation, client):
    before, after = rules(A), rules(B, A)
    for name in "pqpq":
        await milli(evaluation, planned(before, "a", name))
    sent = len(client.queries)

    evaluation.adopt(after.all)
    for name in "pqpq":
        await milli(evaluation, planned(after, "a", name))

    assert len(client.queries) == sent


async def test_changed_rule_is_queried_anew(evaluation, client):
    await milli(evaluation, planned(rules(A), "a", "p"))
    after = rules(A.replace("<<.Series>>{", "2 * <<.Series>>{"))

    evaluation.adopt(after.all)

    client.value = 2.0
    assert await milli(evaluation, planned(after, "a", "p")) == {"p": 2000}


@pytest.mark.parametrize(("changed", "kept"), [("", True), ("aggregate: max", False)])
async def test_last_values_belong_to_the_rule(evaluate, client, changed, kept):
    evaluation = evaluate(client)
    text = rule("a", "onMissing: {lastKnown: 5m}")
    await milli(evaluation, planned(rules(text), "a", "p"))
    after = rules(B, text + (f"  {changed}\n" if changed else ""))

    evaluation.adopt(after.all)

    client.value = None
    assert await milli(evaluation, planned(after, "a", "p")) == ({"p": 1000} if kept else {})


async def test_old_request_does_not_leave_a_last_value_to_a_changed_rule(evaluate, client):
    evaluation = evaluate(client)
    before = rules(rule("a", "onMissing: {lastKnown: 5m}"))
    after = rules(rule("a", "onMissing: {lastKnown: 6m}"))
    evaluation.adopt(after.all)
    await milli(evaluation, planned(before, "a", "p"))  # resolved before the change

    client.value = None
    assert await milli(evaluation, planned(after, "a", "p")) == {}


async def test_demoted_rule_stays_demoted_at_its_new_place(evaluation, client):
    before, after = rules(A), rules(B, A)
    client.failure = errors.Refused("422", status=422)
    for _ in range(4):
        with pytest.raises(errors.Refused):
            await evaluation.values(planned(before, "a", "p"))
        await asyncio.sleep(0)
    assert "rules[0] (rules.yaml:3): queried separately" in evaluation.status().fact

    evaluation.adopt(after.all)

    assert "rules[1] (rules.yaml:8): queried separately" in evaluation.status().fact


@pytest.mark.slow
async def test_removed_rules_leave_nothing_behind(evaluation, client, registry):
    before = rules(A, B)
    for name in "pqpq":
        for metric in "ab":
            await milli(evaluation, planned(before, metric, name))
    removed = before.rules[1].content

    evaluation.adopt(before.rules[:1])

    del before
    gc.collect()
    assert removed not in {
        each.content for each in gc.get_objects() if isinstance(each, CompiledRule)
    }
    assert registry.get_sample_value(
        "gpu_metrics_adapter_evaluations_total", {"rule": "rules[0]", "result": "alone"}
    )
    labels = {"rule": "rules[1]", "result": "alone"}
    assert registry.get_sample_value("gpu_metrics_adapter_evaluations_total", labels) is None
