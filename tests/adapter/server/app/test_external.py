"""The external rule in the comment of an example: the whole server with a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
RULES = yaml.safe_dump({"externalRules": [RULE, UNCONDITIONAL]})
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


async def test_a_query_without_placeholders_ignores_the_namespace(served: Api) -> None:
    for namespace in ("default", "other", "nowhere"):
        for query in ("", "?labelSelector=pod%3Dx"):
            _, document = await served.get(f"{GROUP}/namespaces/{namespace}/unconditional{query}")

            assert rows(document) == [({}, "58500m")]
