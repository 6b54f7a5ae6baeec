"""`?explain=true` on a real Prometheus, and who may have it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients.prometheus_result import QueryResult
from adapter.errors import Refused, Unreachable
from adapter.server.api.explain import Explainer
from adapter.server.api.groups import custom
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from rules import kinds, ruleset
from rules.kinds import Kinds
from rules.query import catalog as catalogs
from rules.query import entry_document, plan
from rules.query.aggregate import Sample
from rules.query.catalog import Catalog, Entry
from rules.selectors import selectors
from tests.adapter import wired
from tests.adapter.server.api import test_causes
from tools.fakes import prometheus as fakes
from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real.prometheus import Prometheus

PODS = f"{GROUP}/namespaces/default/pods"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
MORE_RULES = """
- seriesQuery: aged
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  minPodAge: 1m
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
- seriesQuery: started
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg by (ns, pod) (rate(started[1m]))
"""


@pytest.fixture(scope="module")
def filled(empty_prometheus: Prometheus) -> Prometheus:
    empty_prometheus.put(*test_causes.LIVE, 'aged{ns="default",pod="a"} 1', at=time.time() - 2)
    return empty_prometheus


@pytest.fixture
async def served(filled: Prometheus, tmp_path: Path) -> AsyncIterator[Api]:
    pods = api.manifests(["default/a", "default/b", "default/young"], nodes=["n"])
    not_ready = json.dumps({"conditions": [{"type": "Ready", "status": "False"}]})
    pods = pods.replace('"app": "young"}}', f'"app": "young"}}}}, "status": {not_ready}')
    rules, separator, external = (test_causes.RULES + test_causes.EXTERNAL).partition(
        "externalRules:"
    )
    text = rules.rstrip() + MORE_RULES + separator + external
    async with api.serving(tmp_path, filled.url, pods, rules=text) as running:
        yield running


async def explain(served: Api, path: str, query: str = "") -> Any:
    status, document = await served.get(f"{path}?explain=true{query}")
    assert (status, document["kind"]) == (200, "Explanation"), document
    assert document["apiVersion"] == "explain.gpu-metrics-adapter/v1"
    return document


async def test_a_value_is_explained_from_rule_to_number(served: Api) -> None:
    found = await explain(served, f"{PODS}/a/partial", "&metricLabelSelector=ns%3Ddefault")

    rule = found["rules"]["items"][0]
    assert found["rules"]["count"] == 20
    assert rule["rule"].startswith("rules[15] (")
    assert (rule["taken"], rule["reason"]) == (True, "takes it from partial")
    (query,) = found["queries"]
    assert query["promql"] == 'avg by (pod) (partial{ns="default",ns="default",pod="a"})'
    assert query["wantedLabels"] == ["pod", "ns"]
    assert query["presentLabels"] == ["ns", "pod"]
    assert query["samples"] == {"count": 1, "items": [{"labels": {"pod": "a"}, "value": 1.0}]}
    assert query["seriesCount"] == 1
    # The time of the sample, not that of the evaluation.
    assert 2 <= query["newestSampleSeconds"] < 60
    assert query["oldestSampleSeconds"] == pytest.approx(query["newestSampleSeconds"], abs=1)
    assert found["objects"] == {"count": 1, "items": ["a"]}
    assert found["values"] == {"count": 1, "items": [{"object": "a", "value": "1"}]}
    assert (found["outcome"], found["causes"]) == ("values", [])
    assert found["verdict"].startswith(
        "partial of pods/a in namespace default has the value 1 for a (oldest sample: "
    )


async def test_another_program_plans_the_same_queries_from_an_explanation(served: Api) -> None:
    found = await explain(served, f"{PODS}/a/partial", "&metricLabelSelector=ns%3Ddefault")

    entry = entry_document.read(found["plan"])

    assert isinstance(entry, Entry)
    selector = selectors.parse("ns=default")
    planned = plan.custom(entry, namespace="default", names=["a"], selector=selector)
    assert planned.promql() == (found["queries"][0]["promql"],)


async def test_interval_and_first_samples_of_pods_follow_from_their_samples(
    served: Api, filled: Prometheus
) -> None:
    now = time.time()
    begins = {("default", "a"): 2700, ("default", "b"): 600, ("other", "b"): 900}
    for (namespace, pod), begin in begins.items():
        ages = range(begin, -121, -20)
        samples = [(int((now - age) * 1000), float(-age)) for age in ages]
        labels = {"__name__": "started", "ns": namespace, "pod": pod}
        filled.put_series([(labels, samples)])

    found = await explain(served, f"{PODS}/*/started", "&labelSelector=app in (a,b)")

    (query,) = found["queries"]
    assert query["intervalSeconds"] == pytest.approx(20, abs=1)
    first = query["firstSamples"]
    # The steps are 15 s, and 5 minutes for those of any pod.
    assert now - 2700 <= first["since"] <= now - 2400
    assert sorted(first["pods"]) == ["a", "b"]
    assert now - 2700 <= first["pods"]["a"] <= now - 2685
    assert now - 600 <= first["pods"]["b"] <= now - 585


async def test_a_list_that_lacks_objects_says_why_they_lack(served: Api) -> None:
    found = await explain(served, f"{PODS}/*/partial")

    assert [each["reason"] for each in found["causes"]] == ["NotScraped", "NoSample"]
    assert "none is for pods b, young in namespace default" in found["causes"][0]["message"]
    assert found["outcome"] == "values"


async def test_pods_that_a_rule_leaves_out_are_named_with_the_values_of_the_others(
    served: Api,
) -> None:
    found = await explain(served, f"{PODS}/*/aged", "&labelSelector=app in (a,young)")

    assert found["objects"]["items"] == ["a"]
    assert found["values"]["items"] == [{"object": "a", "value": "1"}]
    assert [each["reason"] for each in found["causes"]] == ["PodTooYoung"]
    assert "has the value 1 for a" in found["verdict"]
    assert found["verdict"].endswith("none is Ready. Wait, or lower `minPodAge`")


@pytest.mark.parametrize("name", ["a", "*"])
async def test_an_unknown_resource_is_the_cause(served: Api, name: str) -> None:
    found = await explain(served, f"{GROUP}/namespaces/default/foos/{name}/partial")

    assert found["causes"][0]["reason"] == "UnknownResource"
    assert "no resource foos" in found["verdict"]
    assert found["rules"]["count"] == 20


async def test_an_external_metric_has_the_labels_of_its_values(served: Api) -> None:
    found = await explain(served, f"{EXTERNAL}/elsewhere", "&labelSelector=pod%3Da")
    status, _ = await served.get(f"{EXTERNAL}/elsewhere?explain=false")

    assert found["request"]["metricLabelSelector"] == "pod=a"
    assert found["queries"][0]["promql"] == 'elsewhere{pod="a",ns="default"}'
    assert found["objects"] is None
    assert found["rules"]["count"] == 2
    assert found["causes"][0]["reason"] == "OtherNamespace"
    assert status == 404


async def test_an_invalid_request_stays_an_error(served: Api) -> None:
    status, document = await served.get(f"{PODS}/*/partial?explain=true&labelSelector=%3D")

    assert (status, document["kind"]) == (400, "Status")


def collecting(query: Any) -> CauseCollector:
    """Return one whose queries go to `query`."""
    return CauseCollector(
        AsyncMock(return_value=frozenset()),
        probes=Probes(lambda _: query, AsyncMock(side_effect=Unreachable("down"))),
        metrics=telemetry.CauseMetrics(CollectorRegistry()),
    )


def deciding(*, may_read: bool) -> Callable[[Any], Any]:
    """Return filters whose caller may read the metric, and discovery if `may_read`."""

    class Caller(wired.Nobody):
        async def may_read(self, path: str) -> bool:
            assert path == GROUP
            return may_read

    async def guard(*_: object) -> Caller:
        return Caller()

    return guard


def router(
    *,
    may_read: bool = True,
    objects: wired.Objects | None = None,
    evaluation: wired.Evaluation | None = None,
    catalog: Catalog | None = None,
    collector: Any = None,
) -> Any:
    return wired.build_router(
        catalog or Catalog.empty(),
        objects or wired.Objects(Kinds.builtin(), {}),
        evaluation or wired.Evaluation({}),
        guard=deciding(may_read=may_read),
        collector=collector,
        explainer=Explainer(),
    )


async def test_it_needs_the_right_to_read_discovery_and_says_so() -> None:
    async with wired.listening(router(may_read=False)) as port:
        explained = await wired.fetch(port, f"{PODS}/*/util?explain=true")
        plain = await wired.fetch(port, f"{PODS}/*/util")

    assert (explained.status, plain.status) == (403, 404)
    assert (
        f'also needs the right to get the path "{GROUP}"' in json.loads(explained.body)["message"]
    )
    assert b"none" not in explained.body


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (
            Refused("pods is forbidden: secret", status=403),
            "MissingRight: the adapter has no permission to list and watch pods: grant {api",
        ),
        (Unreachable("https://10.0.0.1: secret"), "ListFailed: the API server did not list pods"),
    ],
)
async def test_a_list_that_fails_is_the_cause_and_a_missing_right_is_named(
    failure: Exception, verdict: str
) -> None:
    objects = wired.Objects(Kinds.builtin(), {})
    objects.failure = failure
    rules = ruleset.load([("rules.yaml", test_causes.RULES)])
    catalog = catalogs.build(rules, {}, Kinds.builtin())

    async with wired.listening(router(objects=objects, catalog=catalog)) as port:
        reply = await wired.fetch(port, f"{PODS}/*/divided?explain=true")

    found = json.loads(reply.body)
    assert (reply.status, found["outcome"], found["objects"]) == (200, "noValue", None)
    assert f" has no value: {verdict}" in found["verdict"]
    assert "secret" not in reply.body.decode()


OF_ALL = """
rules:
- seriesQuery: gpu
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum by (ns, pod, customer) (gpu)
"""


async def test_samples_of_objects_that_the_caller_may_not_read_are_not_shown() -> None:
    rules = ruleset.load([("rules.yaml", OF_ALL)])
    catalog = catalogs.build(rules, catalogs.pinned_listings(rules), Kinds.builtin())
    own = Sample({"ns": "default", "pod": "a", "customer": "mine"}, 1.0, 0.0)
    others = [
        {"ns": "default", "pod": "b"},
        {"ns": "team-b", "pod": "a"},
        {"customer": "secret"},
    ]
    vector = (own, *(Sample(labels, 7.0, 0.0) for labels in others))

    async def query(_promql: str) -> QueryResult:
        return QueryResult(kind="vector", samples=vector)

    async with wired.listening(
        router(
            catalog=catalog,
            objects=wired.Objects(Kinds.builtin(), {(kinds.PODS, "default"): {"a": {}}}),
            collector=collecting(query),
        )
    ) as port:
        reply = await wired.fetch(port, f"{PODS}/*/gpu?explain=true")

    (explained,) = json.loads(reply.body)["queries"]
    shown = {"labels": dict(own.labels), "value": 1.0}
    assert explained["samples"] == {"count": 1, "items": [shown]}
    assert explained["otherSamples"] == 3


async def test_the_objects_that_are_shown_are_those_of_the_answer() -> None:
    rules = ruleset.load([("rules.yaml", OF_ALL)])
    catalog = catalogs.build(rules, catalogs.pinned_listings(rules), Kinds.builtin())
    objects = wired.Objects(Kinds.builtin(), {})
    listed = AsyncMock(side_effect=[("a",), ("a", "b")])
    objects.names = listed

    query = AsyncMock(return_value=QueryResult(kind="vector", samples=()))
    wires = router(catalog=catalog, objects=objects, collector=collecting(query))
    async with wired.listening(wires) as port:
        reply = await wired.fetch(port, f"{PODS}/*/gpu?explain=true")

    assert json.loads(reply.body)["objects"]["items"] == ["a"]
    listed.assert_awaited_once()


async def test_a_cause_follows_from_the_very_queries_that_are_shown() -> None:
    rules = ruleset.load([("rules.yaml", OF_ALL)])
    catalog = catalogs.build(rules, catalogs.pinned_listings(rules), Kinds.builtin())
    objects = wired.Objects(Kinds.builtin(), {(kinds.PODS, "default"): {"a": {}}})
    sent: list[str] = []

    async def query(promql: str) -> QueryResult:
        sent.append(promql)
        vector = () if 'pod=~"a"' in promql else (Sample({}, 7.0, 0.0),)
        return QueryResult(kind="vector", samples=vector)

    wires = router(catalog=catalog, objects=objects, collector=collecting(query))
    async with wired.listening(wires) as port:
        reply = await wired.fetch(port, f"{PODS}/a/gpu?explain=true")
        once = len(sent)
        again = await wired.fetch(port, f"{PODS}/a/gpu")

    found = json.loads(reply.body)
    (explained,) = found["queries"]
    evidence = {each["promql"]: each["result"] for each in explained["evidence"]}
    assert sorted(evidence) == sorted(sent[:once]) == sorted(sent)
    assert evidence['count({__name__="gpu",__name__="gpu"})'] == "7"
    assert explained["seriesCount"] == 0
    # Not the value: the rule's own query may return that of another object.
    assert evidence["sum by (ns, pod, customer) (gpu)"] == "1 series"
    causes = [each for each in json.loads(again.body)["details"]["causes"] if "reason" in each]
    assert found["causes"] == causes


async def test_at_most_two_are_explained_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started = asyncio.Semaphore(0)
    released = asyncio.Event()

    async def waits(*_: object, **__: object) -> Any:
        started.release()
        await released.wait()
        raise Refused("ended", status=400)

    monkeypatch.setattr("adapter.server.api.explain._explain", waits)
    async with wired.listening(router()) as port:
        path = f"{PODS}/*/util?explain=true"
        running = [asyncio.create_task(wired.fetch(port, path)) for _ in range(2)]
        for _ in running:
            await started.acquire()
        third = await wired.fetch(port, path)
        released.set()
        await asyncio.gather(*running)
        fourth = await wired.fetch(port, path)

    assert (third.status, third.headers["Retry-After"]) == (429, "1")
    assert fourth.status == 500


async def test_explanations_in_the_namespace_of_a_team_keep_out_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = asyncio.Event()

    async def waits(*_: object) -> Any:
        await released.wait()
        raise Refused("ended", status=400)

    monkeypatch.setattr("adapter.server.api.explain._explain", waits)
    explainer = Explainer()
    of_team, of_cluster = (
        SimpleNamespace(generation=SimpleNamespace(catalog=SimpleNamespace(cluster=cluster)))
        for cluster in (Catalog.empty(), None)
    )

    def explained(namespace: str, backend: Any) -> asyncio.Task[Any]:
        info: Any = SimpleNamespace(namespace=namespace)
        return asyncio.create_task(explainer.answer(custom, info, backend, deadline=1e9))

    running = [
        *(explained("a", of_team) for _ in range(3)),
        *(explained("b", of_team) for _ in range(2)),
        *(explained("c", of_cluster) for _ in range(2)),
    ]
    await asyncio.sleep(0)
    waiting = [not each.done() for each in running]
    released.set()
    await asyncio.gather(*running, return_exceptions=True)

    assert waiting == [True, True, False, True, True, True, True]
    assert getattr(running[2].exception(), "code", 0) == 429


async def test_without_an_explainer_the_parameter_is_ignored_as_by_the_original() -> None:
    handler = wired.build_router(
        Catalog.empty(), wired.Objects(Kinds.builtin(), {}), wired.Evaluation({})
    )
    async with wired.listening(handler) as port:
        assert (await wired.fetch(port, f"{PODS}/*/util?explain=true")).status == 404


async def test_a_prometheus_that_hangs_is_named_before_its_timeout(
    filled: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aiohttp_server: Any
) -> None:
    for name in ("_ANSWER_TIMEOUT", "_SHORT_TIMEOUT"):
        monkeypatch.setattr(f"adapter.server.api.explain.{name}", 0.1)
    fake = fakes.Prometheus(fakes.through(filled.url))
    url = str((await aiohttp_server(fake.app())).make_url("")).rstrip("/")
    pods, flags = api.manifests(["default/a"]), ["--prometheus-timeout=10m"]
    async with api.serving(tmp_path, url, pods, flags, rules=test_causes.RULES) as served:
        fake.behave = fakes.hangs
        found = await explain(served, f"{PODS}/a/divided")

    assert found["causes"][0]["reason"] == "PrometheusUnavailable"
    assert "does not respond in time" in found["verdict"]
    assert found["queries"][0]["error"] == "Prometheus did not answer in time"


async def test_the_queries_go_to_the_prometheus_of_the_rule(
    filled: Prometheus, tmp_path: Path
) -> None:
    rules = f"""\
sources:
  gpu: {{url: "{filled.url}"}}
rules:
- seriesQuery: partial
  source: gpu
  resources: {{overrides: {{ns: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: <<.Series>>{{<<.LabelMatchers>>}}
"""
    pods = api.manifests(["default/a"])
    async with api.serving(tmp_path, "http://127.0.0.1:9", pods, rules=rules) as served:
        found = await explain(served, f"{PODS}/a/partial")

    (query,) = found["queries"]
    assert (query["source"], query["seriesCount"], query["samples"]["count"]) == ("gpu", 1, 1)
    assert found["outcome"] == "values"
