"""External metrics: the whole server over HTTPS with a real Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tools.presets import api
from tools.presets.api import Api
from tools.real.prometheus import Prometheus

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
EXAMPLE = Path(__file__).parents[4] / "manifests" / "examples" / "external-query.yaml"
COMMENT = [line[2:] for line in EXAMPLE.read_text().splitlines() if line.startswith("#")]
INDENTED = [part for part in "\n".join(COMMENT).split("\n\n") if part.startswith("  ")]
(RULE,) = yaml.safe_load(INDENTED[0])["externalRules"]
UNCONDITIONAL = {**RULE, **yaml.safe_load(INDENTED[1]), "name": {"as": "unconditional"}}
MORE = """
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  resources: &namespaced {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  name: {as: Scalar}
  resources: *namespaced
  metricsQuery: 'scalar(max(<<.Series>>{<<.LabelMatchers>>}))'
- seriesQuery: '{__name__=~"^kafka_.*_lag$"}'
  name: {matches: "^kafka_(.*)$", as: "$1"}
  resources: {namespaced: false}
  metricsQuery: 'max by (topic) (<<.Series>>{<<.LabelMatchers>>})'
- seriesQuery: not_there_yet
  resources: *namespaced
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
RULES = yaml.safe_dump({"externalRules": [RULE, UNCONDITIONAL, *yaml.safe_load(MORE)]})
HPA = yaml.safe_load(EXAMPLE.read_text())


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    now = time.time()
    for at in (now - 30, now, now + 120):
        empty_prometheus.put(
            'DCGM_FI_DEV_GPU_UTIL{namespace="default",pod="model-server-7d4b9c-x2x4z"} 80',
            'DCGM_FI_DEV_GPU_UTIL{namespace="default",pod="model-server-7d4b9c-q9q9q"} 95.5',
            'DCGM_FI_DEV_GPU_UTIL{namespace="default",pod="model-server-b-6f5d-aaaaa"} 0',
            'DCGM_FI_DEV_GPU_UTIL{namespace="other",pod="model-server-7d4b9c-zzzzz"} 0',
            'kafka_group_lag{topic="a",partition="0"} 1500',
            'kafka_group_lag{topic="a",partition="1"} 2000',
            'kafka_group_lag{topic="b",partition="0"} NaN',
            'kafka_group_lag{topic="c",partition="0"} +Inf',
            at=at,
        )
    return empty_prometheus


@pytest.fixture
async def served(scraped: Prometheus, tmp_path: Path) -> AsyncIterator[Api]:
    async with api.serving(tmp_path, scraped.url, api.manifests(()), rules=RULES) as running:
        yield running


def rows(document: Any) -> list[tuple[dict[str, str] | None, str]]:
    return [(item["metricLabels"], item["value"]) for item in document["items"]]


async def test_the_example_autoscaler_gets_the_average_of_its_rule(served: Api) -> None:
    (metric,) = HPA["spec"]["metrics"]
    identifier, target = metric["external"]["metric"], metric["external"]["target"]

    path = f"{GROUP}/namespaces/{HPA['metadata']['namespace']}/{identifier['name']}"
    status, document = await served.get(path)

    assert (status, rows(document)) == (200, [({}, "87750m")])
    assert identifier["name"] == identifier["name"].lower()  # as client-go requires
    # Value multiplies the replicas by 87.75/70; AverageValue would always want ceil(87.75/70) = 2.
    assert target == {"type": "Value", "value": "70"}


async def test_a_query_without_placeholders_ignores_the_namespace(
    served: Api,
) -> None:
    for namespace in ("default", "other", "nowhere"):
        for query in ("", "?labelSelector=pod%3Dx"):
            _, document = await served.get(f"{GROUP}/namespaces/{namespace}/unconditional{query}")

            assert rows(document) == [({}, "58500m")]


@pytest.mark.parametrize(
    ("namespace", "selector", "values"),
    [
        ("default", "", {"80", "95500m", "0"}),
        ("other", "", {"0"}),
        ("nowhere", "", set()),
        ("*", "", set()),
        ("default", "pod=model-server-7d4b9c-x2x4z", {"80"}),
        ("default", "pod in (model-server-7d4b9c-x2x4z,x)", {"80"}),
        ("default", "pod!=model-server-7d4b9c-x2x4z", {"95500m", "0"}),
        ("default", "!pod", set()),
    ],
)
async def test_namespace_and_selector_select_the_series(
    served: Api, namespace: str, selector: str, values: set[str]
) -> None:
    path = f"{GROUP}/namespaces/{namespace}/DCGM_FI_DEV_GPU_UTIL?labelSelector={quote(selector)}"

    for each in (path, path.replace("DCGM_FI_DEV_GPU_UTIL", "dcgm_fi_dev_gpu_util")):
        status, document = await served.get(each)

        assert status == (200 if values else 404)
        found = rows(document) if values else []
        assert {value for _, value in found} == values
        for labels, _ in found:
            assert labels
            assert labels["__name__"] == "DCGM_FI_DEV_GPU_UTIL"


async def test_a_scalar_has_no_labels_and_nan_and_infinity_are_omitted(served: Api) -> None:
    _, scalar = await served.get(f"{GROUP}/namespaces/default/scalar")
    status, _ = await served.get(f"{GROUP}/namespaces/nowhere/scalar")
    _, lag = await served.get(f"{GROUP}/namespaces/default/group_lag")

    assert rows(scalar) == [(None, "95500m")]
    assert status == 404
    assert rows(lag) == [({"topic": "a"}, "2k")]


@pytest.mark.parametrize(
    ("metric", "cause"),
    [
        ("not_there_yet", "NoSeries: externalRules[5] "),
        ("scalar?labelSelector=pod%3Dx", "NotFinite: externalRules[3] "),
        ("dcgm_fi_dev_gpu_util?labelSelector=pod%3Dx", "NoSample: externalRules["),
    ],
)
async def test_the_cause_of_no_value_is_logged_once(
    served: Api, caplog: pytest.LogCaptureFixture, metric: str, cause: str
) -> None:
    # A metric without series is no warning while the adapter starts.
    caplog.set_level(logging.DEBUG, "adapter.server.causes.log")
    for _ in range(2):
        status, _ = await served.get(f"{GROUP}/namespaces/default/{metric}")
        assert status == 404

    subject = f"external metric {metric.partition('?')[0]} in namespace default: "
    (line,) = (each.message for each in caplog.records if each.message.startswith(subject))
    assert line.startswith(subject + cause)
    assert ('pod="x"' in line) is cause.startswith("NoSample")
