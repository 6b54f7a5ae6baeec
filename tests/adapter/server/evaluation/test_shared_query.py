"""Requests that share evaluations, on a real Prometheus whose queries are counted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from adapter import bounds, errors
from adapter.clients import prometheus as prometheus_module
from adapter.clients.prometheus import Prometheus
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.evaluation.shared_query import SharedQuery
from adapter.server.evaluation.snapshot import Snapshot
from rules.errors import AmbiguousSampleError
from rules.kinds import NODES
from rules.query.aggregate import Reduction
from rules.query.plan import Plan
from rules.query.scope import Scope, Sharing
from tests import world
from tests.adapter.server.evaluation.support import Counting, entry_of, pods
from tools.real import prometheus as real
from tools.waiting import until

LONG = 1000.0
"""Freshness in seconds that ends after every test."""


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> real.Prometheus:
    empty_prometheus.put(
        *(
            f'used{{namespace="{namespace}",pod="{pod}",gpu="{gpu}",node="n"}} {value}'
            for value, (namespace, pod, gpu) in enumerate(
                (namespace, f"p{number}", gpu)
                for namespace in ("a", "b")
                for number in range(30)
                for gpu in (0, 1)
            )
        ),
        'twice{namespace="a",pod="p0",gpu="0"} 1',
        'twice{namespace="a",pod="p1",gpu="0"} 1',
        'twice{namespace="a",pod="p1",gpu="1"} 1',
        'info{node="n",owner="x"} 1',
        'hot{node="n0"} 1',
        'hot{node="n1"} 2',
        'hot{node="n2"} 3',
        'left{namespace="a",exported_pod="p0",pod="exporter"} 7',
        'left{namespace="a",pod="p1"} 8',
    )
    return empty_prometheus


@dataclass(kw_only=True)
class Shared:
    """An evaluation with the client and the registry that it uses."""

    evaluation: Evaluation
    client: Counting
    registry: CollectorRegistry

    async def milli(self, request: Plan) -> dict[str, int]:
        values = (await self.evaluation.values(request)).values
        return {name: value.milli for name, value in values.items()}

    def counted(self, result: str) -> float:
        labels = {"rule": "rules[0]", "result": result}
        return self.registry.get_sample_value("gpu_metrics_adapter_evaluations_total", labels) or 0


@pytest.fixture
def shared(running, session, evaluate) -> Callable[..., Shared]:
    """Return a function that creates an evaluation, with a long freshness by default."""

    def create(**options) -> Shared:
        client, registry = Counting(Prometheus(session, running.url)), CollectorRegistry()
        evaluation = evaluate(client, registry, **{"freshness": LONG, **options})
        return Shared(evaluation=evaluation, client=client, registry=registry)

    return create


def of_scope(wanted: Scope) -> Callable[..., Sharing]:
    return lambda step: Sharing(scope=wanted)


async def make_busy(shared: Shared, first: Plan, second: Plan, third: Plan) -> None:
    """Request three plans; the last request starts an evaluation for all of them."""
    merged = shared.counted("merged")
    for request in (first, second, third):
        await shared.evaluation.values(request)
    assert shared.counted("merged") == merged + 1


async def test_equal_questions_get_the_same_mapping_of_one_evaluation(shared):
    shared, began = shared(), time.time()

    first = (await shared.evaluation.values(pods("p0", "p1"))).values
    again = (await shared.evaluation.values(pods("p0", "p1"))).values

    assert again is first
    assert {name: value.milli for name, value in first.items()} == {"p0": 1000, "p1": 5000}
    assert began - 0.001 <= first["p0"].time <= time.time()
    assert len(shared.client.queries) == 1
    assert (shared.counted("alone"), shared.counted("shared")) == (1, 1)
    with pytest.raises(TypeError):
        first["p0"] = first["p1"]


async def test_questions_that_are_not_the_same_do_not_share_a_narrow_evaluation(shared):
    shared = shared(sharing=of_scope(Scope.ALONE))

    for _ in range(4):
        assert await shared.milli(pods("p0")) == {"p0": 1000}
        assert await shared.milli(pods("p0", "p1")) == {"p0": 1000, "p1": 5000}
        assert await shared.milli(pods("p0", namespace="b")) == {"p0": 121000}
        assert await shared.milli(pods("p0", selector="gpu=0")) == {"p0": 0}

    assert len(shared.client.queries) == 4


async def test_frequent_requests_are_answered_from_the_union_of_their_objects(shared):
    shared = shared()
    await make_busy(shared, pods("p0", "p1"), pods("p2"), pods("p1", namespace="b"))
    assert shared.client.queries[-1] == (
        'sum(used{namespace=~"a|b",pod=~"p0|p1|p2"}) by (pod,namespace)'
    )

    assert await shared.milli(pods("p0")) == {"p0": 1000}
    assert await shared.milli(pods("p2", "p0")) == {"p2": 9000, "p0": 1000}
    assert await shared.milli(pods("p0", namespace="b")) == {"p0": 121000}

    assert len(shared.client.queries) == 3
    assert shared.counted("merged") == 1


async def test_question_that_nothing_covers_is_queried_alone_at_once(shared):
    shared = shared()
    await make_busy(shared, pods("p0"), pods("p1"), pods("p2"))
    before = len(shared.client.queries)

    assert await shared.milli(pods("p0", "p5")) == {"p0": 1000, "p5": 21000}

    assert shared.client.queries[before:] == ['sum(used{namespace="a",pod=~"p0|p5"}) by (pod)']


async def test_many_new_questions_are_answered_from_one_query_without_names(shared):
    shared = shared()

    for namespace in ("a", "b"):
        for number in range(30):
            values = await shared.milli(pods(f"p{number}", namespace=namespace))
            assert list(values) == [f"p{number}"]

    assert 'sum(used{namespace!="",pod!=""}) by (pod,namespace)' in shared.client.queries
    assert len(shared.client.queries) <= 25


async def test_shared_answers_are_those_of_separate_queries(shared):
    together, apart = shared(), shared(freshness=0.0)
    questions = [
        pods(*(f"p{number}" for number in range(start, 33, step)), namespace=namespace, selector=s)
        for start in range(6)
        for step in (1, 3, 7)
        for namespace in ("a", "b", "none")
        for s in ("", "gpu=1", "gpu!=1")
    ]

    for question in questions:
        assert await together.milli(question) == await apart.milli(question)

    assert len(apart.client.queries) == len(questions)
    assert len(together.client.queries) < len(questions) / 3


async def test_namespace_scope_is_queried_for_each_namespace(shared):
    shared = shared(sharing=of_scope(Scope.NAMESPACE))
    for namespace in ("a", "b"):
        requests = (pods(f"p{number}", namespace=namespace) for number in range(3))
        await make_busy(shared, *requests)
    before = len(shared.client.queries)

    assert await shared.milli(pods("p0", "p1")) == {"p0": 1000, "p1": 5000}
    assert await shared.milli(pods("p0", "p1", namespace="b")) == {"p0": 121000, "p1": 125000}

    assert len(shared.client.queries) == before
    assert 'sum(used{namespace="b",pod=~"p0|p1|p2"}) by (pod)' in shared.client.queries


async def test_objects_without_a_namespace_are_shared(shared):
    shared = shared()
    entry = entry_of("hot", resource=NODES)
    nodes = [pods(f"n{i}", namespace="", entry=entry) for i in range(3)]
    await make_busy(shared, *nodes)

    assert await shared.milli(pods("n2", "n0", namespace="", entry=entry)) == {
        "n2": 3000,
        "n0": 1000,
    }
    assert shared.client.queries[-1] == 'sum(hot{node=~"n0|n1|n2"}) by (node)'


async def test_steps_of_one_metric_are_evaluated_together(shared):
    shared = shared()
    entry = entry_of("left", labels=("exported_pod", "pod"))
    assert await shared.milli(pods("p0", "p1", entry=entry)) == {"p0": 7000, "p1": 8000}
    await make_busy(shared, *(pods(name, entry=entry) for name in ("p1", "p0", "p2")))
    before = len(shared.client.queries)

    assert await shared.milli(pods("p1", "p0", entry=entry)) == {"p1": 8000, "p0": 7000}
    assert len(shared.client.queries) == before


async def test_several_samples_concern_only_the_object_that_has_them(shared):
    shared = shared()
    entry = entry_of("twice", "<<.Series>>{<<.LabelMatchers>>}", "aggregate: error")
    for name in ("p0", "p2"):
        await shared.milli(pods(name, entry=entry))
    with pytest.raises(AmbiguousSampleError):
        await shared.milli(pods("p0", "p1", entry=entry))
    assert shared.counted("merged") == 1

    assert await shared.milli(pods("p0", "p2", entry=entry)) == {"p0": 1000}


async def test_constants_are_per_object(shared):
    shared, began = shared(), time.time()
    entry = entry_of("used", more="onMissing: {value: 0.5}")
    await make_busy(shared, *(pods(name, entry=entry) for name in ("p0", "p1", "gone")))

    values = (await shared.evaluation.values(pods("gone", "p0", entry=entry))).values

    assert [(name, value.milli) for name, value in values.items()] == [("gone", 500), ("p0", 1000)]
    assert began - 0.001 <= values["gone"].time <= time.time()


# Freshness


async def test_identical_concurrent_requests_are_one_query_also_with_freshness_zero(shared):
    shared = shared(freshness=0.0)
    shared.client.gate.clear()
    callers = [asyncio.create_task(shared.milli(pods("p0"))) for _ in range(10)]
    await until(lambda: shared.client.queries)
    shared.client.gate.set()

    assert await asyncio.gather(*callers) == [{"p0": 1000}] * 10
    assert len(shared.client.queries) == 1


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def test_without_requests_nothing_is_queried_and_nothing_is_kept(shared, skip):
    before = alive(Snapshot)
    shared = shared()
    await make_busy(shared, *(pods(f"p{number}") for number in range(3)))
    alone = shared.counted("alone")

    skip(LONG)
    await until(lambda: alive(Snapshot) <= before + alone)

    assert len(shared.client.queries) == shared.counted("merged") + alone


async def test_every_query_serves_a_request(shared, skip):
    shared = shared(freshness=LONG)
    requests = 0
    for number in range(300):
        await shared.evaluation.values(pods(f"p{number % 7}"))
        requests += 1
        skip(LONG / 25)
        await asyncio.sleep(0)

    assert len(shared.client.queries) < requests / 2


# Failures


async def failure_of(shared: Shared, request: Plan) -> errors.BackendError:
    """Request until that fails, and return the error."""
    while True:
        try:
            await shared.evaluation.values(request)
        except errors.BackendError as error:
            return error
        await asyncio.sleep(0)


async def test_caller_that_gives_up_does_not_cancel_the_query_of_the_others(shared):
    shared = shared()
    for number in range(2):
        await shared.evaluation.values(pods(f"p{number}"))
    shared.client.gate.clear()
    patient, cancelled = (asyncio.create_task(shared.milli(pods(f"p{i}"))) for i in (2, 3))
    await until(lambda: len(shared.client.queries) == 4)
    impatient = asyncio.get_running_loop().time() + 0.05

    with pytest.raises(errors.TimedOut, match="deadline exceeded"):
        await shared.evaluation.values(pods("p2"), deadline=impatient)
    cancelled.cancel()
    shared.client.gate.set()

    assert await patient == {"p2": 9000}
    assert len(shared.client.queries) == 4


async def test_failure_is_shared_and_a_present_evaluation_is_not_used_after_it_expires(
    shared, skip
):
    shared = shared()
    await make_busy(shared, *(pods(f"p{number}") for number in range(3)))
    shared.client.failure = lambda _: errors.Unreachable("no route to Prometheus")
    skip(LONG - 90)
    for number in range(3):
        await shared.evaluation.values(pods(f"p{number}"))

    skip(90)
    assert "no route" in str(await failure_of(shared, pods("p0")))
    failed = len(shared.client.queries)
    for number in range(100):
        with pytest.raises(errors.Unreachable):
            await shared.evaluation.values(pods(f"p{number}"))

    assert len(shared.client.queries) - failed <= 2
    assert shared.evaluation.status().fact == "requests share their queries"


REFUSED_FOR_SEVERAL = entry_of(
    query="sum by (node) (<<.Series>>{<<.LabelMatchers>>}) * on (node) group_left(pod,namespace) "
    "sum by (node,pod,namespace) (<<.Series>>{<<.LabelMatchers>>})"
)
"""Rule whose query Prometheus refuses for several pods of one node."""


async def test_refused_metric_selector_does_not_concern_other_requests(shared):
    shared, entry = shared(sharing=of_scope(Scope.CLUSTER)), REFUSED_FOR_SEVERAL
    for number in range(3):
        await shared.milli(pods(f"p{number}", selector="gpu=0", entry=entry))
    assert shared.counted("refused") == 1

    for number in range(3, 6):
        await shared.milli(pods(f"p{number}", selector="gpu=0", entry=entry))
    assert shared.counted("refused") == 1
    assert shared.evaluation.status().fact == "requests share their queries"

    for number in range(3):
        await shared.milli(pods(f"p{number}", entry=entry))
    assert shared.counted("refused") == 2


async def test_refused_shared_query_is_replaced_by_separate_ones(shared, caplog):
    shared, entry = shared(sharing=of_scope(Scope.CLUSTER)), REFUSED_FOR_SEVERAL
    for number in range(3):
        assert list(await shared.milli(pods(f"p{number}", entry=entry))) == [f"p{number}"]

    assert len(shared.client.queries) == 4  # the third one is the shared one
    assert shared.counted("refused") == 1
    (line,) = [each for each in caplog.messages if "queried separately" in each]
    assert line.startswith("rules[0] (rules.yaml:3): the query for several requests failed")
    assert "separately for 10 min: GET" in line
    assert shared.evaluation.status().fact == (
        "rules[0] (rules.yaml:3): queried separately for each request, see the log"
    )
    await shared.milli(pods("p7", entry=entry))
    assert len(shared.client.queries) == 5


async def test_too_large_result_without_names_is_replaced_by_one_with_names(
    shared, monkeypatch, caplog
):
    shared = shared()
    monkeypatch.setattr(prometheus_module, "MAX_RESULT", 4000)
    for number in range(20):
        assert await shared.milli(pods(f"p{number}")) == {f"p{number}": 1000 + 4000 * number}
    assert 'sum(used{namespace!="",pod!=""}) by (pod,namespace)' in shared.client.queries
    assert "names are matched for" in caplog.text
    assert shared.counted("refused") == 1
    assert shared.evaluation.status().fact == "requests share their queries"
    before = len(shared.client.queries)

    assert list(await shared.milli(pods("p0", "p7"))) == ["p0", "p7"]

    assert len(shared.client.queries) == before + 1


async def test_bug_in_a_merged_evaluation_is_logged_and_requests_are_queried_separately(
    shared, caplog, monkeypatch, skip
):
    shared = shared()
    by_object = Reduction.by_object

    def broken(self, recent):
        found = by_object(self, recent)
        if "" not in found:  # it tells namespaces apart
            raise ZeroDivisionError("a bug")
        return found

    await make_busy(shared, *(pods(f"p{number}") for number in range(3)))
    monkeypatch.setattr(Reduction, "by_object", broken)
    while not shared.counted("refused"):
        await shared.milli(pods("p0"))  # the next evaluation begins ahead of its requests
        skip(LONG / 25)
        await asyncio.sleep(0)

    assert await shared.milli(pods("p3")) == {"p3": 13000}
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.exc_info[0] is ZeroDivisionError
    assert record.getMessage().startswith("rules[0] (rules.yaml:3): ")
    assert "queried separately for 10 min: ZeroDivisionError: a bug" in caplog.text
    assert shared.evaluation.status().fact.startswith("rules[0] (rules.yaml:3): queried separately")


async def test_values_return_when_prometheus_does(real_servers, shared, tmp_path):
    with real.run(tmp_path) as prometheus:
        async with aiohttp.ClientSession() as session:
            shared = shared(freshness=0.1)
            shared.client.client = Prometheus(session, prometheus.url)
            prometheus.put('used{namespace="a",pod="p0"} 1')
            for _ in range(20):
                assert await shared.milli(pods("p0")) == {"p0": 1000}

            await asyncio.to_thread(prometheus.kill)
            assert isinstance(await failure_of(shared, pods("p0")), errors.Unreachable)
            await asyncio.to_thread(prometheus.start)
            prometheus.put('used{namespace="a",pod="p0"} 2')

            async def has_new() -> bool:
                with contextlib.suppress(errors.Unreachable):
                    assert await shared.milli(pods("p0")) == {"p0": 2000}
                    return True
                return False

            await until(has_new)


async def test_object_that_moves_between_exporters_is_queried_again(running, shared):
    shared = shared()
    entry = entry_of("moving", labels=("exported_pod", "pod"))
    running.put('moving{namespace="a",exported_pod="p0",pod="exporter"} 7')
    assert await shared.milli(pods("p0", entry=entry)) == {"p0": 7000}
    running.end('moving{namespace="a",exported_pod="p0",pod="exporter"} 7')
    both_steps = len(shared.client.queries) + 2

    def move(_: str) -> None:
        if len(shared.client.queries) == both_steps + 1:
            running.put('moving{namespace="a",pod="p0"} 8')

    shared.client.failure = move

    assert await shared.milli(pods("p0", "p1", entry=entry)) == {"p0": 8000}
    assert len(shared.client.queries) == both_steps + 2
    assert await shared.milli(pods("p0", "p1", entry=entry)) == {"p0": 8000}
    assert len(shared.client.queries) == both_steps + 2


async def test_external_metric_is_shared_by_equal_requests(shared):
    shared = shared()
    text = """
externalRules:
- seriesQuery: used
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: count(<<.Series>>{<<.LabelMatchers>>})
"""
    rules = world.load(text)

    rows = [
        await shared.evaluation.rows(
            world.external_plan(rules, "used", namespace="a", selector=selector)
        )
        for selector in ("", "", "gpu=0")
    ]

    assert rows[0] is rows[1]
    counts = [row.value.milli for each in rows for row in each.values]
    assert counts == [60_000, 60_000, 30_000]
    assert len(shared.client.queries) == 2


# Bounds


async def refused(shared: Shared, request: Plan) -> None:
    with pytest.raises(errors.Refused):
        await shared.evaluation.values(request)


async def test_shared_queries_are_bounded(shared, monkeypatch):
    monkeypatch.setattr(bounds, "SHARED", 10_000)
    shared, before = shared(), alive(SharedQuery)
    shared.client.failure = lambda _: errors.Refused("no", status=401)

    for number in range(200):
        await refused(shared, pods("p0", selector=f"gpu={number}"))

    assert alive(SharedQuery) - before <= 100


async def test_requested_names_are_bounded_also_without_a_successful_evaluation(
    shared, monkeypatch
):
    monkeypatch.setattr(bounds, "SHARED", 50_000)
    shared, before = shared(), alive(SharedQuery)
    shared.client.failure = lambda _: errors.Refused("no", status=401)

    for number in range(10):
        for start in range(6):
            names = (f"p{start}-{i}" for i in range(1000))
            await refused(shared, pods(*names, selector=f"gpu={number}"))

    assert alive(SharedQuery) - before == 8


async def test_evicted_shared_query_is_released(shared, monkeypatch):
    monkeypatch.setattr(bounds, "SHARED", 199)  # one of them
    shared, before = shared(), alive(SharedQuery)
    await shared.milli(pods("p0"))
    shared.client.failure = lambda _: errors.Broken("500")
    for number in range(2):  # a failure that is kept must not keep what failed
        for _ in range(2):
            await failure_of(shared, pods("p0", selector=f"gpu={number}"))

    assert alive(SharedQuery) - before == 1


async def test_close_cancels_evaluations_in_flight(shared):
    shared = shared()
    for number in range(2):
        await shared.evaluation.values(pods(f"p{number}"))
    shared.client.gate.clear()
    waiting = asyncio.create_task(shared.evaluation.values(pods("p2")))
    await until(lambda: len(shared.client.queries) == 3)

    await shared.evaluation.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
