"""Values of plans, from a real Prometheus; each request is queried unless a test says otherwise."""

from __future__ import annotations

import time

import pytest

from adapter import bounds, errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.evaluation.evaluation import Evaluation
from rules.query import plan
from rules.query.aggregate import Sample
from tests import world
from tests.adapter.server.evaluation.support import entry_of, pods, vector
from tools.real import prometheus as real
from tools.waiting import Clock


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> real.Prometheus:
    empty_prometheus.put(
        'used{namespace="n",exported_pod="a",gpu="0"} 10',
        'used{namespace="n",exported_pod="a",gpu="1"} 20',
        'used{namespace="n",pod="a"} 99',
        'used{namespace="n",pod="b"} 7.5',
        'broken{namespace="n",pod="a"} NaN',
        'queue{namespace="n",name="x"} 3',
    )
    return empty_prometheus


@pytest.fixture
def evaluation(evaluate, running, session) -> Evaluation:
    return evaluate(Prometheus(session, running.url))


def plan_for(
    *names: str,
    series: str = "used",
    more: str = "",
    query: str = "",
    labels: tuple[str, ...] = ("exported_pod", "pod"),
) -> plan.Plan:
    """Plan for pods in namespace `n`, by label `exported_pod` first, then by `pod`."""
    entry = entry_of(series, query or "<<.Series>>{<<.LabelMatchers>>}", more, labels=labels)
    return pods(*names, namespace="n", entry=entry)


async def test_sample_with_the_earlier_label_wins(evaluation):
    began = time.time()
    values = (await evaluation.values(plan_for("b", "a", "c"))).values

    assert {name: value.milli for name, value in values.items()} == {"b": 7500, "a": 15000}
    assert list(values) == ["b", "a"]
    assert began - 0.001 <= values["b"].time <= time.time()


async def test_failed_step_fails_the_plan(evaluation):
    with pytest.raises(errors.Refused):
        await evaluation.values(plan_for("a", query="<<.Series>>{<<.LabelMatchers>>"))


@pytest.mark.parametrize("query", ['"text"', "<<.Series>>{<<.LabelMatchers>>}[5m]"])
async def test_result_other_than_a_vector_is_broken(evaluation, query):
    with pytest.raises(errors.Broken, match="needs an instant vector"):
        await evaluation.values(plan_for("a", query=query))


def external_plan(query, more="", selector=""):
    text = f"""
externalRules:
- seriesQuery: 'queue'
  resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
  metricsQuery: '{query}'
  {more}
"""
    return world.external_plan(text, "queue", namespace="n", selector=selector)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("<<.Series>>{<<.LabelMatchers>>}", [({"namespace": "n", "name": "x"}, 3000)]),
        ("scalar(<<.Series>>{<<.LabelMatchers>>})", [(None, 3000)]),
    ],
    ids=["vector", "scalar"],
)
async def test_external_metric_has_one_row_per_sample(evaluation, query, rows):
    values = (await evaluation.rows(external_plan(query))).values

    assert [
        (row.labels and {k: v for k, v in row.labels.items() if k != "__name__"}, row.value.milli)
        for row in values
    ] == rows


class Long:
    """Prometheus whose responses have `size` bytes; counts the queries."""

    def __init__(self, size: int) -> None:
        self.size, self.queries = size, 0

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries += 1
        sample = Sample(labels={"pod": "a", "namespace": "n"}, value=1.0, time=0.0)
        return vector([sample], reduce, size=self.size)


@pytest.mark.parametrize(("size", "queries"), [(100, 10), (4 << 20, 11)])
async def test_few_long_samples_fill_the_memory_for_results_as_many_short_ones_do(
    evaluate, size, queries
):
    of_external, of_pods = Long(size), Long(size)
    evaluation = evaluate(of_external, freshness=1000.0)
    for number in (*range(10), 0):
        await evaluation.rows(
            external_plan("<<.Series>>{<<.LabelMatchers>>}", selector=f"x={number}")
        )
    evaluation = evaluate(of_pods, freshness=1000.0)
    for number in (*range(10), 0):
        await evaluation.values(pods("a", namespace="n", selector=f"x={number}"))

    assert of_external.queries == of_pods.queries == queries


@pytest.mark.parametrize(("namespaced", "queries"), [("true", 3), ("false", 1)])
async def test_namespaces_share_an_external_query_that_does_not_select_by_them(
    evaluate, namespaced, queries
):
    client = Long(100)
    evaluation = evaluate(client, freshness=1000.0)
    text = f"""
externalRules:
- seriesQuery: queue
  resources:
    namespaced: {namespaced}
    overrides: {{namespace: {{resource: namespace}}}}
  metricsQuery: <<.Series>>{{<<.LabelMatchers>>}}
"""
    for namespace in ("a", "b", "c"):
        await evaluation.rows(world.external_plan(text, "queue", namespace=namespace))

    assert client.queries == queries


async def test_external_query_must_return_a_vector_or_a_scalar(evaluation):
    with pytest.raises(errors.NotInstantError, match="needs an instant vector or a scalar"):
        await evaluation.rows(external_plan("<<.Series>>{<<.LabelMatchers>>}[5m]"))
    with pytest.raises(errors.Broken, match="needs an instant vector"):
        await evaluation.rows(external_plan('"text"'))


# Last values (onMissing: {lastKnown: …})


async def test_last_value_is_used_until_its_max_age(evaluate, running, session):
    clock = Clock(time.time())
    evaluation = evaluate(Prometheus(session, running.url), clock=clock)
    kept = "onMissing: {lastKnown: 5m}"
    running.put('fleeting{namespace="n",pod="a"} 4')
    plan = plan_for("a", "b", series="fleeting", more=kept)
    before = (await evaluation.values(plan)).values

    running.end('fleeting{namespace="n",pod="a"} 4')
    clock.now += 200
    assert (await evaluation.values(plan)).values == before  # with the time of the last sample

    clock.now += 200
    assert (await evaluation.values(plan)).values == {}


async def test_without_last_known_an_ended_series_has_no_value(evaluate, running, session):
    evaluation = evaluate(Prometheus(session, running.url))
    running.put('forgotten{namespace="n",pod="a"} 4')
    plan = plan_for("a", series="forgotten")
    assert set((await evaluation.values(plan)).values) == {"a"}

    running.end('forgotten{namespace="n",pod="a"} 4')

    assert (await evaluation.values(plan)).values == {}


async def test_least_recently_used_last_values_are_evicted(evaluate, running, session, monkeypatch):
    monkeypatch.setattr(bounds, "LAST_VALUES", 2)
    evaluation = evaluate(Prometheus(session, running.url))
    kept = "onMissing: {lastKnown: 5m}"
    running.put(*(f'many{{namespace="n",pod="{pod}"}} 1' for pod in "abc"))
    await evaluation.values(plan_for("a", "b", series="many", more=kept))
    await evaluation.values(plan_for("a", series="many", more=kept))
    await evaluation.values(plan_for("c", series="many", more=kept))

    running.end(*(f'many{{namespace="n",pod="{pod}"}} 1' for pod in "abc"))

    values = (await evaluation.values(plan_for("a", "b", "c", series="many", more=kept))).values
    assert list(values) == ["a", "c"]


async def test_last_values_of_one_namespace_evict_none_of_another(
    evaluate, running, session, monkeypatch
):
    monkeypatch.setattr(bounds, "LAST_VALUES", 10)
    evaluation = evaluate(Prometheus(session, running.url))
    entry = entry_of("crowded", "<<.Series>>{<<.LabelMatchers>>}", "onMissing: {lastKnown: 5m}")
    few = pods("a", "b", namespace="n", entry=entry)
    many = pods(*map(str, range(20)), namespace="other", entry=entry)
    samples = [
        f'crowded{{namespace="{each.namespace}",pod="{pod}"}} 1'
        for each in (few, many)
        for pod in each.names
    ]
    running.put(*samples)
    for each in (few, many):
        assert set((await evaluation.values(each)).values) == set(each.names)

    running.end(*samples)

    kept = [set((await evaluation.values(each)).values) for each in (few, many)]
    assert kept == [{"a", "b"}, set(map(str, range(12, 20)))]


class MovingObject:
    """Prometheus with one pod that two exporters report; one flag per query: has it a sample?"""

    def __init__(self, *reported: bool) -> None:
        self.reported = list(reported)

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        label = "exported_pod" if 'exported_pod="a"' in promql else "pod"
        sample = Sample(labels={label: "a"}, value=1.0, time=0.0)
        return vector([sample] if self.reported.pop(0) else [], reduce)


async def test_objects_of_other_requests_do_not_hide_one_that_moves(evaluate):
    a_has_a_value, b_has_none = (True, False), (False, False)
    prometheus = MovingObject(*a_has_a_value, *b_has_none, *(False, False), *(False, True))
    evaluation = evaluate(prometheus)

    await evaluation.values(plan_for("a"))
    await evaluation.values(plan_for("b"))
    after = (await evaluation.values(plan_for("a"))).values

    assert list(after) == ["a"]
    assert prometheus.reported == []


async def test_object_that_is_gone_is_queried_again_only_once(evaluate):
    prometheus = MovingObject(*(True, False), *(False, False), *(False, False), *(False, False))
    evaluation = evaluate(prometheus)

    answers = [(await evaluation.values(plan_for("a"))).values for _ in range(3)]

    assert [list(answer) for answer in answers] == [["a"], [], []]
    assert prometheus.reported == []


async def test_object_that_never_had_a_value_is_not_queried_again(evaluate):
    prometheus = MovingObject(False, False)

    assert (await evaluate(prometheus).values(plan_for("a"))).values == {}


class Lossy:
    """Prometheus with the pods that a test says, and what it says that it lacks."""

    def __init__(self) -> None:
        self.pods: dict[str, float] = {}
        self.partial = ""
        self.queries = 0

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries += 1
        samples = (
            Sample(labels={"pod": name}, value=value, time=time.time())
            for name, value in self.pods.items()
        )
        return vector(samples, reduce, partial=self.partial)


async def milli(evaluation: Evaluation, planned: plan.Plan) -> dict[str, int]:
    values = (await evaluation.values(planned, serve_partial=True)).values
    return {name: value.milli for name, value in values.items()}


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_pod_that_a_partial_response_lacks_gets_no_constant(evaluate, allowed):
    prometheus = Lossy()
    prometheus.pods, prometheus.partial = {"a": 5}, "store away"
    planned = plan_for("a", "b", more="onMissing: {value: 0}", labels=("pod",))

    found = await milli(evaluate(prometheus, allow_partial=allowed), planned)

    assert found == ({"a": 5000, "b": 0} if allowed else {"a": 5000})


async def test_last_values_are_used_for_losses_and_not_built_from_them(evaluate):
    prometheus = Lossy()
    evaluation = evaluate(prometheus)
    planned = plan_for("a", "b", more="onMissing: {lastKnown: 5m}", labels=("pod",))
    prometheus.pods = {"a": 8, "b": 9}
    assert await milli(evaluation, planned) == {"a": 8000, "b": 9000}

    prometheus.pods, prometheus.partial = {"a": 1}, "store away"
    assert await milli(evaluation, planned) == {"a": 1000, "b": 9000}

    prometheus.pods, prometheus.partial = {}, ""
    assert await milli(evaluation, planned) == {"a": 8000, "b": 9000}


async def test_an_object_that_a_partial_response_lacks_is_not_queried_again(evaluate):
    prometheus = Lossy()
    evaluation = evaluate(prometheus)
    prometheus.pods = {"a": 8, "b": 9}
    await milli(evaluation, plan_for("a", "b"))
    both_steps = prometheus.queries

    prometheus.pods, prometheus.partial = {"b": 9}, "store away"
    assert await milli(evaluation, plan_for("a", "b")) == {"b": 9000}
    assert prometheus.queries == 2 * both_steps

    prometheus.partial = ""  # the value that it had is not forgotten
    await milli(evaluation, plan_for("a", "b"))
    assert prometheus.queries == 4 * both_steps


async def test_shared_results_stay_partial(evaluate):
    prometheus = Lossy()
    evaluation = evaluate(prometheus, freshness=60.0)
    prometheus.pods, prometheus.partial = {"a": 5, "b": 6}, "store away"

    planned = plan_for("a", labels=("pod",))
    for _ in range(6):
        with pytest.raises(errors.Partial, match="store away"):
            await evaluation.values(planned)
    assert (await evaluation.values(planned, serve_partial=True)).partial == "store away"
    assert prometheus.queries < 6

    with pytest.raises(errors.Partial):
        await evaluation.values(plan_for("none", labels=("pod",)), serve_partial=True)
