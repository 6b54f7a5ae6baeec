"""Usage of CPU and memory, on a real Prometheus whose queries are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import aiohttp
import pytest

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.evaluation.evaluation import Evaluation
from rules.errors import PlanError
from rules.findings import State
from rules.kinds import PODS
from rules.query import resource
from rules.query.plan import Plan
from tests.adapter.server.evaluation.support import Counting, vector
from tests.rules.query.test_resource import QUERY, queries
from tools.real import prometheus as real

NAMESPACES = [f"n{number}" for number in range(40)]
ALONE = "topk(9,m{<<.LabelMatchers>>})"


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> str:
    empty_prometheus.put(
        *(
            f'm{{ns="{namespace}",pod="{pod}",container="{container}"}} {number}'
            for number, namespace in enumerate(NAMESPACES)
            for pod in ("a", "b")
            for container in ("main", "side")
        )
    )
    return empty_prometheus.url


@pytest.fixture
def counting(running: str, session: aiohttp.ClientSession) -> Counting:
    return Counting(Prometheus(session, running))


@pytest.fixture
def evaluation(counting: Counting, evaluate: Callable[..., Evaluation]) -> Evaluation:
    return evaluate(counting, freshness=100.0)


def plans(
    namespaces: Sequence[str], query: str = QUERY, names: Sequence[str] = ("a", "b")
) -> list[Plan]:
    compiled = queries(query)
    return [
        plan
        for namespace in namespaces
        for plan in resource.plans(compiled, PODS, namespace=namespace, names=names)
    ]


async def test_pods_of_one_namespace_cost_a_query_for_cpu_and_one_for_memory(
    evaluation: Evaluation, counting: Counting
) -> None:
    cpu, memory = await evaluation.usages(plans(["n3"]))

    assert {name: each.milli for name, each in cpu.items()} == {
        name: {"main": 3000, "side": 3000} for name in ("a", "b")
    }
    assert list(memory) == ["a", "b"]
    assert counting.queries == ['sum(m{ns="n3",pod=~"a|b"}) by (pod,container)'] * 2


async def test_the_same_mapping_is_returned_until_the_evaluation_expires(
    evaluation: Evaluation, counting: Counting
) -> None:
    request = plans(["n3"])

    first = await evaluation.usages(request)
    second = await evaluation.usages(request)

    assert [a is b for a, b in zip(first, second, strict=True)] == [True, True]
    assert len(counting.queries) == 2


async def test_pods_of_all_namespaces_cost_no_more_queries_than_those_of_one(
    evaluation: Evaluation, counting: Counting
) -> None:
    found = await evaluation.usages(plans(NAMESPACES))

    assert [usages["b"].milli["side"] for usages in found[::2]] == [
        1000 * number for number in range(len(NAMESPACES))
    ]
    assert counting.queries == ['sum(m{ns!="",pod!=""}) by (pod,container,ns)'] * 2


async def test_a_rule_that_cannot_be_shared_is_queried_for_each_namespace(
    evaluation: Evaluation, counting: Counting
) -> None:
    found = await evaluation.usages(plans(NAMESPACES[:5], ALONE))

    assert all(len(usages) == 2 for usages in found)
    assert len(counting.queries) == 10


async def test_the_failure_of_one_namespace_leaves_the_others(
    evaluation: Evaluation, counting: Counting
) -> None:
    counting.failure = lambda promql: errors.Broken("500") if 'ns="n1"' in promql else None

    first, _, second, _ = await evaluation.usages(plans(["n0", "n1"], ALONE))

    assert list(first) == ["a", "b"]
    assert isinstance(second, errors.Broken)


async def test_a_query_that_cannot_be_rendered_is_a_result(evaluation: Evaluation) -> None:
    found = await evaluation.usages(plans(["n0"], "<<if false>>x<<end>>"))

    assert all(isinstance(each, PlanError) for each in found)


async def test_the_status_names_queries_that_fail_or_find_no_usage_for_a_minute(
    counting: Counting, evaluate: Callable[..., Evaluation]
) -> None:
    now = 0.0
    evaluation = evaluate(counting, clock=lambda: now)
    status = evaluation.usage_status
    assert status.check().fact == "not requested lately"

    await evaluation.usages(plans(["n0"]))
    assert status.check().fact == "no query fails"

    counting.failure = lambda promql: errors.Broken("500 secret")
    await evaluation.usages(plans(["n0"])[:1])
    assert status.check().state is State.WARNING
    assert status.check().fact == (
        "resourceRules.cpu.containerQuery: fails since 1970-01-01T00:00:00+00:00; see the log"
    )

    counting.failure = lambda _: None
    for _ in range(2):
        await evaluation.usages(plans(["n0"], names=("new",)))
        assert status.check().state is State.OK
        now += 30.0
    assert "resourceRules.memory.containerQuery: no usage since" in status.check().fact
    assert status.check().state is State.WARNING

    await evaluation.usages(plans(["n0"]))
    assert status.check().fact == "no query fails"


class Empty:
    """Prometheus without series, that counts the queries."""

    queries = 0

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries += 1
        return vector([], reduce)


async def test_the_status_is_forgotten_five_minutes_after_the_last_request(
    evaluate: Callable[..., Evaluation],
) -> None:
    now = 0.0
    evaluation = evaluate(client := Empty(), freshness=100.0, clock=lambda: now)
    for name in "abc":  # now, one query covers all of them
        await evaluation.usages(plans(["n0"], names=(name,)))
    now = 200.0
    sent = client.queries
    await evaluation.usages(plans(["n0"], names=("a", "b")))
    assert client.queries == sent

    now = 500.0
    assert "no usage since 1970-01-01T00:00:00+00:00" in evaluation.usage_status.check().fact
    now = 501.0
    assert evaluation.usage_status.check().fact == "not requested lately"
    await evaluation.usages(plans(["n0"], names=("d",)))
    assert evaluation.usage_status.check().fact == "no query fails"
