"""metrics.k8s.io on a real Prometheus, with the usual rules for cAdvisor and node-exporter.

The expositions are in tests/fixtures/resource. The target labels are those of kube-prometheus.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from adapter.cli.local_prometheus.remote_write import STALE
from tools import quantity
from tools.presets import api
from tools.presets.api import Api
from tools.real.prometheus import Prometheus, samples

FIXTURES = Path(__file__).parents[3] / "fixtures" / "resource"
CONFIGURATIONS = Path(__file__).parents[3] / "rules" / "lint" / "configurations"
GROUP = "/apis/metrics.k8s.io/v1beta1"
RESOURCES = ("cpu", "memory")
NODES = ("gpu-a", "gpu-b")
PODS = ("ml/bert-0", "ml/bert-1", "ml/train-x", "web/bert-0", "web/idle")
NEW = ("ml/new", "web/new")
"""Pods without series."""
STEP = 15.0
SPAN = 600.0
"""Seconds between two samples, and from the first to the start of the tests."""
AHEAD = 300.0
"""Seconds of samples in the future: a rate changes 16 s after the last sample."""
RESTARTED = 90.0
"""Seconds for which the series of a restarted exporter and of restarted containers exist."""

T = TypeVar("T")

NODE_MEMORY = "node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes"
CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
IN_CONTAINERS = 'container!="",container!="POD"'
EXPECTED = {
    "preset": {
        "cpu": f"sum by (namespace,pod,container) (rate({CPU}{{{IN_CONTAINERS}}}[3m]))",
        "memory": f"sum by (namespace,pod,container) ({MEMORY}{{{IN_CONTAINERS}}})",
        "node cpu": 'sum by (node) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal"}[3m]))',
        "node memory": f"sum by (node) ({NODE_MEMORY})",
        "window": "3m0s",
    },
    "kube-prometheus": {
        "cpu": f'sum by (namespace,pod,container) (irate({CPU}{{container!=""}}[2m]))',
        "memory": f'sum by (namespace,pod,container) ({MEMORY}{{container!=""}})',
        # The rule reads the nodes of the exporter's pods from a recorded series.
        "node cpu": 'sum by (node) (1 - irate(node_cpu_seconds_total{mode="idle"}[1m]))',
        "node memory": f"sum by (node) ({NODE_MEMORY})",
        "window": "5m0s",
    },
}
"""What the queries of each configuration mean, as one query for the whole cluster."""


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    """Prometheus with samples of both exporters, from ten minutes ago on."""
    series = list(_series())
    started = time.time() - SPAN
    for step in range(int((SPAN + AHEAD) / STEP) + 1):
        seconds = step * STEP
        restarted = seconds >= SPAN - RESTARTED
        run = {"run": "2" if restarted else "1"}
        empty_prometheus.write(
            (({**labels, **run}, value + seconds * _rate(labels)) for labels, value in series),
            at=started + seconds,
        )
        if restarted:
            ended = (({**labels, "run": "1"}, STALE) for labels, _ in series)
            empty_prometheus.write(ended, at=started + seconds)
    return empty_prometheus


def _series() -> Iterator[tuple[Mapping[str, str], float]]:
    for node in NODES:
        exporter = {"namespace": "monitoring", "pod": f"node-exporter-{node}"}
        kubelet = {
            "job": "kubelet",
            "metrics_path": "/metrics/cadvisor",
            "instance": f"{node}:10250",
        }
        of_node = {"job": "node-exporter", "instance": node, "node": node, **exporter}
        for file, target in (
            (f"cadvisor-{node}.prom", kubelet),
            (f"node-exporter-{node}.prom", of_node),
        ):
            lines = (FIXTURES / file).read_text().splitlines()
            for labels, value in samples(lines):
                # Prometheus drops empty labels when it scrapes.
                yield {**target, **{key: each for key, each in labels.items() if each}}, value
        yield {"__name__": "node_namespace_pod:kube_pod_info:", "node": node, **exporter}, 1.0


def _rate(labels: Mapping[str, str]) -> float:
    """Return the increase per second of a counter: a different one for each; 0 for a gauge."""
    name = labels["__name__"]
    if not name.endswith("_total"):
        return 0.0
    if labels.get("mode") == "idle":
        return 0.9313
    text = "".join(value for _, value in sorted(labels.items()))
    return 0.0103 + sum(map(ord, text)) % 97 / 977


@pytest.fixture(params=EXPECTED)
async def served(request, scraped, tmp_path):
    flags, rules = ["--preset=resource-metrics"], ""
    if request.param == "kube-prometheus":
        file = CONFIGURATIONS / "kube-prometheus-configmap.yaml"
        config_map, *_ = yaml.safe_load_all(file.read_text())
        flags, rules = [], config_map["data"]["config.yaml"]
    manifests = api.manifests((*PODS, *NEW), (*NODES, "new"))
    flags.append("--query-freshness=0s")
    async with api.serving(tmp_path, scraped.url, manifests, flags, rules=rules) as served:
        yield served, EXPECTED[request.param]


def containers(pod: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, str]]:
    metadata = pod["metadata"]
    return {
        (metadata["namespace"], metadata["name"], each["name"]): each["usage"]
        for each in pod["containers"]
    }


def in_thousandths(value: float) -> Fraction:
    return Fraction(math.trunc(value * 1000), 1000)


def expected(server: Prometheus, promql: str, *labels: str) -> dict[tuple[str, ...], Fraction]:
    return {
        tuple(each["metric"][label] for label in labels): in_thousandths(float(each["value"][1]))
        for each in server.query(promql)
    }


async def answered(server: Api, path: str, queried: Callable[[], T]) -> tuple[Any, T]:
    """Return a document, and what `queried` returned both before and after it.

    A rate changes while samples enter and leave its window: then, both are requested again.
    """
    while True:
        before = queried()
        _, document = await server.get(path)
        if queried() == before:
            return document, before


async def test_usage_of_every_container_is_that_of_the_query(
    served: tuple[Api, Mapping[str, str]], scraped: Prometheus
) -> None:
    server, queries = served
    document, usages = await answered(
        server,
        f"{GROUP}/pods",
        lambda: [
            expected(scraped, queries[each], "namespace", "pod", "container") for each in RESOURCES
        ],
    )

    pods = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in document["items"]
    ]
    assert pods == list(PODS)
    assert {each["window"] for each in document["items"]} == {queries["window"]}
    usage = {key: each for pod in document["items"] for key, each in containers(pod).items()}
    for resource, queried in zip(RESOURCES, usages, strict=True):
        assert {key: quantity.parse(each[resource]) for key, each in usage.items()} == queried


async def test_usage_of_every_node_is_that_of_the_query(
    served: tuple[Api, Mapping[str, str]], scraped: Prometheus
) -> None:
    server, queries = served
    document, usages = await answered(
        server,
        f"{GROUP}/nodes",
        lambda: [expected(scraped, queries[f"node {each}"], "node") for each in RESOURCES],
    )

    usage = {(each["metadata"]["name"],): each["usage"] for each in document["items"]}
    assert list(usage) == [(node,) for node in NODES]
    for resource, queried in zip(RESOURCES, usages, strict=True):
        assert {key: quantity.parse(each[resource]) for key, each in usage.items()} == queried
