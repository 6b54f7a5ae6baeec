"""Requests while the rules are replaced: no answer is of two generations, and none fails."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients.prometheus_result import QueryResult, Reduce
from adapter.server.api.groups.backend import Backend, Questions
from adapter.server.auth.user import EVERYBODY, Caller
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.series.relist import Relist
from rules import ruleset
from rules.document.sources import DEFAULT
from rules.kinds import PODS, Kinds
from rules.query.aggregate import Sample
from tests.adapter import wired
from tests.adapter.server.evaluation.support import vector

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/p"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/p"


def rules(metric: str, more: str = "") -> ruleset.RuleSet:
    text = f"""
rules:
- seriesQuery: always
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: 'always{{<<.LabelMatchers>>}}'
- seriesQuery: of_{metric}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{as: {metric}}}
  metricsQuery: 'of_{metric}{{<<.LabelMatchers>>}}'
{more}"""
    return ruleset.load([("rules.yaml", text)])


OLD = rules("old")
USED = """{containerQuery: 'used{<<.LabelMatchers>>}', nodeQuery: 'used{<<.LabelMatchers>>}',
    containerLabel: container, resources: {overrides: {namespace: {resource: namespace},
    pod: {resource: pod}, node: {resource: node}}}}"""
NEW = rules("new", f"resourceRules: {{cpu: {USED}, memory: {USED}, window: 1m}}")


class Client:
    """Prometheus in memory: it answers each query a little later, and lists nothing."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries.append(promql)
        for _ in range(random.Random(len(self.queries)).randrange(8)):
            await asyncio.sleep(0)
        labels = {"namespace": "default", "pod": "p", "container": "c"}
        return vector([Sample(labels, 1.0, time.time())], reduce)

    def for_team(self, team: None) -> Client:
        return self

    async def names(self, *_: object) -> None:
        raise errors.Unreachable("lists nothing")

    label_names = series = names


class Parts:
    """The parts of a server that follow a generation, wired as in `adapter.server.app`."""

    def __init__(self) -> None:
        self.client = Client()
        self.kinds = Kinds.builtin()
        self.relist = Relist(
            OLD, {DEFAULT: self.client}, lambda: self.kinds, interval=600, max_age=600
        )
        metrics = telemetry.EvaluationMetrics(CollectorRegistry())
        self.evaluation = Evaluation({DEFAULT: self.client}, metrics=metrics, freshness=1000.0)
        self.collector = CauseCollector(
            self.relist.labels,
            probes=Probes(lambda _: self.client.query, self.client.names),
            metrics=telemetry.CauseMetrics(CollectorRegistry()),
        )
        pods = {(PODS, "default"): {"p": {}}}
        questions, self.objects = Questions(), wired.Objects(self.kinds, pods)
        self.during_review: ruleset.RuleSet | None = None
        """Rules that are adopted while the request is authorized."""
        self.handler = wired.router_of(
            lambda: Backend(
                generation=self.relist.generation,
                kinds=self.kinds,
                objects=self.objects,
                evaluation=self.evaluation,
                collector=self.collector,
                questions=questions,
            ),
            guard=self.authorize,
        )

    async def authorize(self, *_: object) -> Caller:
        if self.during_review is not None:
            await self.adopt(self.during_review)
        return EVERYBODY

    async def adopt(self, rules: ruleset.RuleSet) -> None:
        await self.relist.adopt(rules)
        kept = self.relist.generation.rules
        self.evaluation.adopt(kept)
        self.collector.adopt(frozenset(kept))


@pytest.fixture
async def parts():
    parts = Parts()
    yield parts
    await parts.evaluation.close()


@pytest.mark.slow
async def test_answers_are_of_one_generation_while_rules_are_replaced(parts):
    replies: dict[str, set[tuple[int, str]]] = {}
    done = asyncio.Event()

    async def request(port: int, path: str) -> None:
        while not done.is_set():
            reply = await wired.fetch(port, path)
            cause = "no rule" if b"no rule" in reply.body else ""
            replies.setdefault(path, set()).add((reply.status, cause))

    async with wired.listening(parts.handler) as port:
        paths = [f"{CUSTOM}/{metric}" for metric in ("always", "old", "new")]
        async with asyncio.TaskGroup() as tasks:
            for path in (*paths, *paths, USAGE, "/apis", "/openapi/v3"):
                tasks.create_task(request(port, path))
            for _, compiled in zip(range(60), itertools.cycle((NEW, OLD)), strict=False):
                await parts.adopt(compiled)
                await asyncio.sleep(0.005)
            done.set()

    always, old, new = (replies[path] for path in paths)
    assert always == {(200, "")}
    assert old == new == {(200, ""), (404, "no rule")}
    assert {status for status, _ in replies[USAGE]} == {200, 404}
    assert replies["/apis"] == replies["/openapi/v3"] == {(200, "")}
    assert sum("always" in query for query in parts.client.queries) <= 2  # one alone, one shared


async def test_served_groups_follow_the_rules(parts):
    async with wired.listening(parts.handler) as port:
        assert (await wired.fetch(port, USAGE)).status == 404
        before = (await wired.fetch(port, "/openapi/v3")).body

        await parts.adopt(NEW)

        assert (await wired.fetch(port, USAGE)).status == 200
        assert b"metrics.k8s.io" in (await wired.fetch(port, "/apis/metrics.k8s.io")).body
        assert (await wired.fetch(port, "/openapi/v3")).body != before

        await parts.adopt(OLD)

        assert (await wired.fetch(port, USAGE)).status == 404
        assert (await wired.fetch(port, "/openapi/v3")).body == before


@pytest.mark.parametrize(("before", "after", "status"), [(OLD, NEW, 404), (NEW, OLD, 200)])
async def test_a_request_is_answered_by_the_generation_that_it_began_with(
    parts, before, after, status
):
    await parts.adopt(before)
    parts.during_review = after

    async with wired.listening(parts.handler) as port:
        assert (await wired.fetch(port, USAGE)).status == status


async def test_an_answer_is_sent_again_while_its_objects_and_values_are_the_same(parts):
    evaluated = []
    values = parts.evaluation.values

    async def count(plan, **options):
        evaluated.append(plan.names)
        return await values(plan, **options)

    parts.evaluation.values = count
    path = CUSTOM[:-1] + "*/always"

    async with wired.listening(parts.handler) as port:
        replies = [await wired.fetch(port, path) for _ in range(3)]
        assert replies[0].body == replies[1].body == replies[2].body
        assert len(evaluated) == 1

        parts.objects.known[PODS, "default"] = {"p": {}, "q": {}}
        await wired.fetch(port, path)
        assert evaluated[1:] == [("p", "q")]

        parts.evaluation.adopt(())  # forgets the values
        await wired.fetch(port, path)
        assert len(evaluated) == 3

        await parts.adopt(NEW)
        await parts.adopt(OLD)
        await wired.fetch(port, path)
        assert len(evaluated) == 4
