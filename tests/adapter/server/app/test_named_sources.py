"""Named Prometheus servers: `sources` of a rules file, in the whole server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real import prometheus
from tools.real.prometheus import Prometheus

RULE = """
- seriesQuery: {series}
  name: {{as: {metric}}}
  resources: {{overrides: {{ns: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
  {more}
"""


def rule(series, metric, more=""):
    return RULE.format(series=series, metric=metric, more=more)


RULES = "rules:" + "".join(
    (
        rule("load", "of_default"),
        rule("load", "of_other", "source: other"),
        rule("load", "of_down", "source: down"),
        rule("missing", "missing", "source: other"),
        rule("load", "merged", "{source: other, merge: true}").replace(
            "  {source", "  <<: {source"
        ),
        rule("later", "merged", "merge: true"),
    )
)
EXTERNAL = """
externalRules:
- seriesQuery: load
  name: {as: external}
  source: other
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""
PATH = f"{GROUP}/namespaces/default/pods/*"


@pytest.fixture(scope="module")
def servers(real_servers, tmp_path_factory) -> Iterator[tuple[Prometheus, Prometheus]]:
    with (
        prometheus.run(tmp_path_factory.mktemp("default")) as first,
        prometheus.run(tmp_path_factory.mktemp("other")) as other,
    ):
        first.put('load{ns="default",pod="a"} 1', 'later{ns="default",pod="b"} 4')
        other.put('load{ns="default",pod="a"} 2', 'missing{ns="elsewhere",pod="a"} 1')
        yield first, other


@pytest.fixture
async def served(servers, tmp_path: Path) -> AsyncIterator[Api]:
    first, other = servers
    text = f"""
sources:
  other: {{url: "{other.url}"}}
  down: {{url: "http://127.0.0.1:9"}}
"""
    pods = api.manifests(["default/a", "default/b"])
    async with api.serving(tmp_path, first.url, pods, rules=text + RULES + EXTERNAL) as running:
        yield running


async def test_each_rule_is_answered_by_its_source(served: Api) -> None:
    assert await served.pods("default", "of_default") == {"a": 1}
    assert await served.pods("default", "of_other") == {"a": 2}
    assert await served.pods("default", "merged") == {"a": 2, "b": 4}
    _, document = await served.get(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/external"
    )
    assert [each["value"] for each in document["items"]] == ["2"]


async def test_a_source_that_is_down_fails_its_rules_only(served: Api) -> None:
    for _ in range(6):
        status, document = await served.get(f"{PATH}/of_down")
        assert (status, document["details"]["causes"][1]["reason"]) == (
            500,
            "PrometheusUnavailable",
        )
    assert await served.pods("default", "of_default") == {"a": 1}
    assert await served.pods("default", "of_other") == {"a": 2}

    async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
        lines = (await response.text()).splitlines()
    assert response.status == 200
    assert "[+]prometheus ok: answers" in lines
    assert "[+]prometheus-other ok: answers" in lines
    (line,) = [each for each in lines if "prometheus-down" in each]
    assert line.startswith("[!]prometheus-down degraded: cannot be reached (check sources.down.")
    async with served.session.get(f"{served.url}/metrics", ssl=False) as response:
        text = await response.text()
    name = "gpu_metrics_adapter_prometheus_request_duration_seconds_count"
    for source in ("default", "other"):
        assert f'{name}{{outcome="ok",path="/api/v1/query",source="{source}"}}' in text


async def test_causes_are_queried_at_the_source_of_the_rule(served: Api) -> None:
    async with served.session.get(f"{served.url}{PATH}/missing", ssl=False) as response:
        warning = response.headers["Warning"]

    assert "OtherNamespace: rules[3]" in warning
    assert "some whose label ns is elsewhere" in warning
