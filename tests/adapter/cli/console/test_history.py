"""History of an autoscaler from a real Prometheus that has the series of kube-state-metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from adapter.cli.console import history
from adapter.clients.prometheus import Prometheus
from tests.rules.hpa.documents import hpa, pods_metric, resource_metric
from tools.real import prometheus as real

HPA = 'horizontalpodautoscaler="gpu-hpa"'
STATUS = "kube_horizontalpodautoscaler_status"
MINUTES = 50


@pytest.fixture
async def server(real_servers: None, tmp_path: Path) -> AsyncIterator[real.Prometheus]:
    """Prometheus with fifty minutes of two autoscalers of the same name."""
    with real.run(tmp_path) as running:
        for minute in range(MINUTES, 0, -1):
            replicas, value = 1 + (MINUTES - minute) // 10, 40 + minute
            running.put(
                f'{STATUS}_current_replicas{{{HPA},namespace="default"}} {replicas}',
                f'{STATUS}_desired_replicas{{{HPA},namespace="default"}} {replicas + 1}',
                f'{STATUS}_target_metric{{{HPA},namespace="default",metric_name='
                f'"duty_cycle_current",metric_target_type="average"}} {value}.5',
                f'{STATUS}_target_metric{{{HPA},namespace="default",metric_name="cpu",'
                f'metric_target_type="utilization"}} {value}',
                f'{STATUS}_current_replicas{{{HPA},namespace="monitoring",'
                'exported_namespace="other"} 99',
                at=time.time() - 60 * minute,
            )
        yield running


async def test_samples_have_the_values_of_kube_state_metrics(server):
    autoscaler = hpa(pods_metric(), resource_metric(averageUtilization=80))
    async with aiohttp.ClientSession() as session:
        client = Prometheus(session, server.url, timeout=10)
        now = time.time()
        ranges = await client.query_range(history.query("default", "gpu-hpa"), now - 3600, now, 60)
        same = await client.query_range(history.query("monitoring", "gpu-hpa"), now - 3600, now, 60)
        other = await client.query_range(history.query("other", "gpu-hpa"), now - 3600, now, 60)

    samples = history.samples(autoscaler, ranges.content)
    assert len(samples) >= MINUTES - 1
    assert [each.time for each in samples] == sorted({each.time for each in samples})
    first, last = samples[0], samples[-1]
    assert (first.present, first.wanted, last.present, last.wanted) == (1, 2, 5, 6)
    assert first.values == (90_500, 90)
    assert {each.points[0][1] for each in other.content} == {99}
    assert same.content == ()  # that is the namespace of kube-state-metrics


async def test_the_chart_begins_before_the_console(server, world, start):
    world.healthy()
    async with aiohttp.ClientSession() as session:
        client = await start(world, prometheus=Prometheus(session, server.url, timeout=10))

        document = await (await client.get("/autoscalers/default/gpu-hpa.json")).json()
        page = await (await client.get("/autoscalers/default/gpu-hpa")).text()

    times = [each["time"] for each in document["history"]]
    assert times == sorted(times)
    assert times[0] < time.time() - 60 * (MINUTES - 5)
    assert document["historySource"].startswith("From kube-state-metrics, and as seen")
    assert "current: 1 to 5" in page


async def test_without_an_answer_of_prometheus_the_page_says_so(world, start):
    world.healthy()
    async with aiohttp.ClientSession() as session:
        gone = Prometheus(session, "http://127.0.0.1:9", timeout=5)
        client = await start(world, prometheus=gone)

        document = await (await client.get("/autoscalers/default/gpu-hpa.json")).json()

    assert "; Prometheus: " in document["historySource"]
