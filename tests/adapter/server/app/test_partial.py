"""Partial responses, from Prometheus to the answer: a real one, and a fake that marks them."""

from __future__ import annotations

import json

import aiohttp
import pytest
from aiohttp import web

from adapter import settings
from adapter.cli.doctor import checks
from tools.fakes import prometheus as fakes
from tools.presets import api
from tools.presets.api import GROUP
from tools.real.prometheus import Prometheus

WARNING = "receive series from Addr: 10.0.0.7:10901: connection refused"
OF_PODS = f"{GROUP}/namespaces/n/pods/*/used"
OF_POD = f"{GROUP}/namespaces/n/pods/a/used"
OF_NAMESPACE = f"{GROUP}/namespaces/n/metrics/used"
OF_NODE = f"{GROUP}/nodes/node-a/used"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods"
"""Paths of metrics."""
RESOURCES = """
  resources: {overrides: {
    namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}
"""
USAGE_RULE = """
    containerQuery: sum by (<<.GroupBy>>) (used{<<.LabelMatchers>>,container!=""})
    nodeQuery: sum by (<<.GroupBy>>) (used{<<.LabelMatchers>>})
    resources: {overrides: {
      namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}
    containerLabel: container
"""
RULES = f"""
rules:
- seriesQuery: used{RESOURCES}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
- seriesQuery: used{RESOURCES}
  name: {{as: allowed}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
  allowPartialResponse: true
- seriesQuery: lost{RESOURCES}
  metricsQuery: <<.Series>>{{<<.LabelMatchers>>}} > 1
externalRules:
- seriesQuery: queue
  resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}})
resourceRules:
  window: 1m
  cpu:{USAGE_RULE}
  memory:{USAGE_RULE}
"""


class Partial:
    """Passes requests on to a real Prometheus; while `marks` is set, adds these keys to results."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.marks: dict[str, object] = {}

    async def behave(self, _: web.Request, received: fakes.Received) -> web.StreamResponse:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + received.path, params=received.parameters) as response,
        ):
            document = {**await response.json(), **self.marks}
            return web.json_response(document, status=response.status)


@pytest.fixture(scope="module")
def filled(empty_prometheus: Prometheus) -> Prometheus:
    empty_prometheus.put(
        'used{namespace="n",pod="a",node="node-a",container="c"} 2',
        'lost{namespace="n",pod="a",node="node-a"} 1',
        'queue{namespace="n"} 210',
    )
    return empty_prometheus


@pytest.fixture
async def partial(filled: Prometheus) -> Partial:
    return Partial(filled.url)


@pytest.fixture
async def url(partial: Partial, aiohttp_server) -> str:
    return str((await aiohttp_server(fakes.Prometheus(partial.behave).app())).make_url(""))


OBJECTS = api.manifests(["n/a", "n/b"], ["node-a"])
FRESH = ["--query-freshness=0s"]


@pytest.mark.parametrize(
    "marks", [{"isPartial": True}, {"warnings": [WARNING, "PromQL info: not a counter"]}]
)
async def test_what_is_no_metric_of_pods_fails_and_its_cause_says_so(
    tmp_path, partial, url, caplog, marks
):
    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        paths = (OF_POD, OF_NAMESPACE, OF_NODE, EXTERNAL)
        for path in paths:
            assert (await served.get(path))[0] == 200
        partial.marks = marks
        for path in paths:
            status, document = await served.get(path)
            assert (status, document["reason"]) == (500, "InternalError")
            (cause,) = [each for each in document["details"]["causes"] if "reason" in each]
            assert cause["reason"] == "PartialResponse"
            assert "10.0.0.7" not in json.dumps(document)
            status, explained = await served.get(f"{path}?explain=true")
            assert (status, explained["causes"][0]["reason"]) == (200, "PartialResponse")
            assert explained["queries"][0]["error"] == "the response of Prometheus is partial"

        partial.marks = {"warnings": ["PromQL info: not a counter"]}
        for path in paths:
            assert (await served.get(path))[0] == 200

    noted = [each.message for each in caplog.records if "is partial: " in each.message]
    assert noted == [f"Prometheus (source default) is partial: {_quoted(marks)}"]


def _quoted(marks: dict[str, object]) -> str:
    return WARNING if "warnings" in marks else "isPartial is true"


async def test_metrics_of_pods_are_served_with_a_warning(tmp_path, partial, url):
    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        assert "PartialResponse" not in await served.warning(OF_PODS)
        partial.marks = {"isPartial": True}

        assert await served.pods("n", "used") == {"a": 2}
        assert "PartialResponse" in await served.warning(OF_PODS)
        # With no value at all, nothing says that the pods have none.
        status, document = await served.get(f"{GROUP}/namespaces/n/pods/*/lost")
        assert (status, document["details"]["causes"][-1]["reason"]) == (500, "PartialResponse")


async def test_usage_fails_because_a_pod_would_lack_containers(tmp_path, partial, url):
    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        assert len((await served.get(USAGE))[1]["items"]) == 1
        partial.marks = {"isPartial": True}

        status, document = await served.get(USAGE)
        assert (status, document["items"]) == (200, [])
        assert "PartialResponse" in await served.warning(USAGE)
        async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
            assert "[!]usage degraded: resourceRules.cpu" in await response.text()


async def test_partial_responses_are_degraded_health_and_counted(tmp_path, partial, url):
    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        partial.marks = {"isPartial": True}
        await served.get(EXTERNAL)

        async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
            assert response.status == 200
            text = await response.text()
        async with served.session.get(f"{served.url}/metrics", ssl=False) as response:
            metrics = await response.text()

    assert "prometheus degraded: sends partial responses" in text
    assert 'health_check_state{check="prometheus",state="degraded"} 1.0' in metrics
    assert 'outcome="Partial",path="/api/v1/query"' in metrics
    assert 'answers_without_value_total{reason="PartialResponse"} 1.0' in metrics


async def test_a_rule_or_the_flag_allows_partial_values_with_a_warning(tmp_path, partial, url):
    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        partial.marks = {"isPartial": True}
        assert await served.pods("n", "allowed", "a") == {"a": 2}
        assert "PartialResponse" in await served.warning(OF_POD.replace("used", "allowed"))

    partial.marks = {}
    flags = [*FRESH, "--allow-partial-responses"]
    refused = RULES.replace("allowPartialResponse: true", "allowPartialResponse: false")
    async with api.serving(tmp_path, url, OBJECTS, flags, rules=refused) as served:
        partial.marks = {"isPartial": True}
        for path in (OF_POD, OF_NAMESPACE, OF_NODE, EXTERNAL):
            assert "PartialResponse" in await served.warning(path)
        assert len((await served.get(USAGE))[1]["items"]) == 1
        assert (await served.get(OF_POD.replace("used", "allowed")))[0] == 500


async def test_doctor_says_what_is_partial(partial, url):
    flags = settings.parse([f"--prometheus-url={url}"]).prometheus
    partial.marks = {"isPartial": True}

    found = await checks._prometheus(flags)

    assert [each.state for each in found if each.fact == "answers queries"] == ["ok"]
    (finding,) = [each for each in found if "sends partial responses" in each.fact]
    assert finding.state == "warning"
    assert "--allow-partial-responses" in finding.cure


async def test_a_metric_that_a_partial_relist_did_not_find_has_that_cause(tmp_path, partial, url):
    partial.marks = {"isPartial": True, "data": []}

    async with api.serving(tmp_path, url, OBJECTS, FRESH, rules=RULES) as served:
        status, document = await served.get(f"{GROUP}/namespaces/n/services/*/used")

    assert status == 404
    assert document["details"]["causes"][-1]["reason"] == "PartialResponse"
