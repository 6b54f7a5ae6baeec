"""Values come of a real Prometheus; a fake before it says when it answers, and counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import aiohttp
import pytest

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult
from adapter.metrics.evaluation import Evaluation
from rules import kinds, ruleset
from rules.errors import AmbiguousSampleError
from rules.kinds import GroupResource
from rules.query import catalog, label_binding, plan
from rules.query.aggregate import Sample
from rules.query.catalog import Listing, Series
from rules.selectors import selectors
from tests.fakes import prometheus as fakes
from tests.real import prometheus as real

PODS = GroupResource("", "pods")


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[real.Prometheus]:
    with real.run(tmp_path_factory.mktemp("prometheus")) as found:
        found.put(
            'used{namespace="n",exported_pod="a",gpu="0"} 10',
            'used{namespace="n",exported_pod="a",gpu="1"} 20',
            'used{namespace="n",pod="a"} 99',
            'used{namespace="n",pod="b"} 7.5',
            'broken{namespace="n",pod="a"} NaN',
            'queue{namespace="n",name="x"} 3',
        )
        yield found


class Gate:
    """Holds requests back until it is opened."""

    def __init__(self, behave: fakes.Behaviour) -> None:
        self.opened = asyncio.Event()
        self.given_up = 0
        self._behave = behave

    async def __call__(self, request, asked):
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return await self._behave(request, asked)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


@pytest.fixture
def evaluation(running, session) -> Evaluation:
    return Evaluation(Prometheus(session, running.url))


@pytest.fixture
def held(running, session, aiohttp_server) -> Callable[[], Awaitable[tuple]]:
    """An evaluation whose Prometheus answers when the gate is opened."""

    async def start() -> tuple[Evaluation, Gate, fakes.Prometheus]:
        gate = Gate(fakes.through(running.url))
        fake = fakes.Prometheus(gate)
        server = await aiohttp_server(fake.app())
        return Evaluation(Prometheus(session, str(server.make_url("/")))), gate, fake

    return start


def plan_for(
    *names: str,
    series: str = "used",
    more: str = "",
    query: str = "",
    labels: tuple[str, ...] = ("exported_pod", "pod"),
) -> plan.Plan:
    """Of pods in the namespace `n`, by `exported_pod` and then by `pod`."""
    query = query or "<<.Series>>{<<.LabelMatchers>>}"
    text = f"""
rules:
- seriesQuery: '{series}'
  resources: {{overrides: {{namespace: {{resource: namespace}},
    exported_pod: {{resource: pod}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{query}'
  {more}
"""
    compiled = ruleset.load([("rules.yaml", text)])
    listing = Listing(
        series=(Series(name=series, labels=frozenset({"namespace", *labels})),),
        live={(series, PODS): label_binding.combinations(labels, ("namespace",))},
    )
    entry = catalog.build(compiled, {0: listing}, kinds.Kinds.builtin()).entry(PODS, series)
    assert entry
    return plan.custom(entry, namespace="n", names=names, selector=selectors.parse(""))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


async def test_values_are_found_object_by_object_the_earlier_label_first(evaluation):
    values = await evaluation.values(plan_for("b", "a", "c"))

    assert {name: value.milli for name, value in values.items()} == {"b": 7500, "a": 15000}
    assert list(values) == ["b", "a"]
    assert values["b"].time == pytest.approx(time.time(), abs=5)


async def test_plan_of_one_step_is_one_query(evaluation):
    values = await evaluation.values(plan_for("a", "b", labels=("pod",)))

    assert {name: value.milli for name, value in values.items()} == {"a": 99000, "b": 7500}


async def test_failing_step_is_the_failure_of_the_plan(evaluation):
    with pytest.raises(errors.Refused):
        await evaluation.values(plan_for("a", query="<<.Series>>{<<.LabelMatchers>>"))


async def test_several_samples_are_an_error_where_the_rule_says_so(evaluation):
    with pytest.raises(AmbiguousSampleError):
        await evaluation.values(plan_for("a", more="aggregate: error"))


@pytest.mark.parametrize("query", ['"text"', "<<.Series>>{<<.LabelMatchers>>}[5m]"])
async def test_what_is_no_instant_value_is_broken(evaluation, query):
    with pytest.raises(errors.Broken, match="needs an instant vector"):
        await evaluation.values(plan_for("a", query=query))


def external_plan(query, more=""):
    text = f"""
externalRules:
- seriesQuery: 'queue'
  resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
  metricsQuery: '{query}'
  {more}
"""
    compiled = ruleset.load([("rules.yaml", text)])
    entry = catalog.build(compiled, {}, kinds.Kinds.builtin()).external["queue"]
    return plan.external(entry, namespace="n", selector=selectors.parse(""))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("<<.Series>>{<<.LabelMatchers>>}", [({"namespace": "n", "name": "x"}, 3000)]),
        ("scalar(<<.Series>>{<<.LabelMatchers>>})", [(None, 3000)]),
    ],
    ids=["vector", "scalar"],
)
async def test_external_values_are_told_row_by_row(evaluation, query, rows):
    found = await evaluation.rows(external_plan(query))

    told = [
        (row.labels and {k: v for k, v in row.labels.items() if k != "__name__"}, row.value.milli)
        for row in found
    ]
    assert told == rows


@pytest.mark.parametrize(("more", "values"), [("", []), ("onNaN: zero", [0])])
async def test_an_external_sample_that_is_no_number_is_left_out_unless_the_rule_says_zero(
    evaluation, more, values
):
    for sign in ("NaN", "Inf", "-Inf"):
        found = await evaluation.rows(external_plan(f"<<.Series>> * {sign}", more))

        assert [row.value.milli for row in found] == values


@pytest.mark.parametrize("query", ["<<.Series>>{<<.LabelMatchers>>}[5m]"])
async def test_an_external_query_without_instant_values_is_told_apart(evaluation, query):
    with pytest.raises(errors.NotInstantError, match="needs an instant vector or a scalar"):
        await evaluation.rows(external_plan(query))


# In flight


async def test_identical_queries_in_flight_are_one(held):
    evaluation, gate, fake = await held()
    callers = [asyncio.create_task(evaluation.values(plan_for("a", "b"))) for _ in range(10)]
    await until(lambda: len(fake.asked) == 2)  # one for each label
    gate.opened.set()

    answers = await asyncio.gather(*callers)

    assert len(fake.asked) == 2
    assert all(each == answers[0] for each in answers)
    await evaluation.values(plan_for("a", "b"))
    assert len(fake.asked) == 4  # afterwards it is asked anew


async def test_caller_that_gives_up_does_not_end_it_for_the_others(held):
    evaluation, gate, fake = await held()
    first, second = (asyncio.create_task(evaluation.query("used")) for _ in range(2))
    await until(lambda: fake.asked)

    first.cancel()
    await asyncio.sleep(0.05)
    gate.opened.set()

    assert len((await second).samples) == 4
    assert first.cancelled()
    assert gate.given_up == 0


async def test_last_caller_that_gives_up_ends_it(held):
    evaluation, gate, fake = await held()
    callers = [asyncio.create_task(evaluation.query("used")) for _ in range(2)]
    await until(lambda: fake.asked)

    for caller in callers:
        caller.cancel()

    await until(lambda: gate.given_up == 1)
    for caller in callers:
        with suppress(asyncio.CancelledError):
            await caller
    gate.opened.set()
    assert len((await evaluation.query("used")).samples) == 4


async def test_plan_that_is_given_up_ends_all_its_queries(held):
    evaluation, gate, fake = await held()
    caller = asyncio.create_task(evaluation.values(plan_for("a", "b")))
    await until(lambda: len(fake.asked) == 2)

    caller.cancel()

    await until(lambda: gate.given_up == 2)
    with suppress(asyncio.CancelledError):
        await caller


async def test_failure_is_every_callers(held):
    evaluation, gate, fake = await held()
    callers = [asyncio.create_task(evaluation.query("used{")) for _ in range(3)]
    await until(lambda: fake.asked)
    gate.opened.set()

    outcomes = await asyncio.gather(*callers, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [errors.Refused] * 3
    assert len(fake.asked) == 1


async def test_caller_waits_no_longer_than_its_own_deadline(held):
    evaluation, gate, fake = await held()
    now = asyncio.get_running_loop().time()
    patient = asyncio.create_task(evaluation.query("used", deadline=now + 30))
    await until(lambda: fake.asked)

    with pytest.raises(errors.TimedOut):
        await evaluation.query("used", deadline=now + 0.2)

    gate.opened.set()
    assert len((await patient).samples) == 4


async def test_caller_with_more_time_asks_again_when_the_first_ones_is_over(held):
    evaluation, gate, fake = await held()
    now = asyncio.get_running_loop().time()
    hasty = asyncio.create_task(evaluation.query("used", deadline=now + 0.1))
    await until(lambda: fake.asked)
    patient = asyncio.create_task(evaluation.query("used", deadline=now + 30))

    with pytest.raises(errors.TimedOut):
        await hasty
    await until(lambda: len(fake.asked) == 2)
    gate.opened.set()

    assert len((await patient).samples) == 4


# Last known values


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


async def test_last_known_value_stands_in_while_it_is_young(running, session):
    clock = Clock()
    evaluation = Evaluation(Prometheus(session, running.url), clock=clock)
    kept = "onMissing: {lastKnown: 5m}"
    running.put('fleeting{namespace="n",pod="a"} 4')
    plan = plan_for("a", "b", series="fleeting", more=kept)
    before = await evaluation.values(plan)

    running.end('fleeting{namespace="n",pod="a"} 4')
    clock.ahead = 200
    assert await evaluation.values(plan) == before  # with the time of when it was known

    clock.ahead = 400
    assert await evaluation.values(plan) == {}


async def test_without_last_known_a_value_that_ended_is_missing(running, session):
    evaluation = Evaluation(Prometheus(session, running.url))
    running.put('forgotten{namespace="n",pod="a"} 4')
    plan = plan_for("a", series="forgotten")
    assert set(await evaluation.values(plan)) == {"a"}

    running.end('forgotten{namespace="n",pod="a"} 4')

    assert await evaluation.values(plan) == {}


async def test_last_known_values_are_bounded_the_longest_unused_go_first(running, session):
    evaluation = Evaluation(Prometheus(session, running.url), remembered=2)
    kept = "onMissing: {lastKnown: 5m}"
    running.put(*(f'many{{namespace="n",pod="{pod}"}} 1' for pod in "abc"))
    await evaluation.values(plan_for("a", "b", series="many", more=kept))
    await evaluation.values(plan_for("a", series="many", more=kept))
    await evaluation.values(plan_for("c", series="many", more=kept))

    running.end(*(f'many{{namespace="n",pod="{pod}"}} 1' for pod in "abc"))

    found = await evaluation.values(plan_for("a", "b", "c", series="many", more=kept))
    assert list(found) == ["a", "c"]


class Moving:
    """A Prometheus whose answers, one a query, are those of an object between two exporters."""

    def __init__(self, *found: bool) -> None:
        self.found = list(found)

    async def query(self, promql: str, *, deadline: float | None = None) -> QueryResult:
        label = "exported_pod" if 'exported_pod="a"' in promql else "pod"
        sample = Sample(labels={label: "a"}, value=1.0, time=0.0)
        samples = (sample,) if self.found.pop(0) else ()
        return QueryResult(kind="vector", samples=samples)


async def test_object_that_moves_between_two_answers_is_asked_for_once_more():
    fleet = Moving(*(True, False), *(False, False), *(False, True))
    evaluation = Evaluation(fleet)

    before = await evaluation.values(plan_for("a"))
    after = await evaluation.values(plan_for("a"))

    assert list(before) == list(after) == ["a"]
    assert fleet.found == []


async def test_object_that_is_gone_is_asked_for_once_more_and_then_no_longer():
    fleet = Moving(*(True, False), *(False, False), *(False, False), *(False, False))
    evaluation = Evaluation(fleet)

    answers = [await evaluation.values(plan_for("a")) for _ in range(3)]

    assert [list(answer) for answer in answers] == [["a"], [], []]
    assert fleet.found == []


async def test_object_that_never_was_is_asked_for_once():
    fleet = Moving(False, False)

    assert await Evaluation(fleet).values(plan_for("a")) == {}
