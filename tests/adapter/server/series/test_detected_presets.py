"""Presets that are detected continuously, in a real Prometheus behind a recording proxy."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.server.series.detected_presets import DetectedPresets
from rules.findings import State
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real
from tools.waiting import running, until

OLD = 'DCGM_FI_DEV_GPU_UTIL{UUID="1",exported_pod="a",exported_namespace="default"} 5'
NEW = OLD.replace("UTIL", "UTIL_RATIO")
NAMES = "/api/v1/label/__name__/values"


@pytest.fixture
def server(real_servers: None, tmp_path: Path) -> Iterator[real.Prometheus]:
    with real.run(tmp_path) as prometheus:
        prometheus.put(OLD)
        yield prometheus


@pytest.fixture
async def proxy(server, serve) -> fakes.Prometheus:
    return await serve(fakes.through(server.url))


@pytest.fixture
async def start(
    proxy, registry, session
) -> AsyncIterator[Callable[..., Awaitable[DetectedPresets]]]:
    """Starts detections that are due every ten minutes; it looks for new names all the time."""
    async with AsyncExitStack() as tasks:

        async def start(changed=lambda: None, *, interval=600.0) -> DetectedPresets:
            presets = DetectedPresets(
                Prometheus(session, proxy.url),
                interval=interval,
                refresh_interval=0.01,
                meter=telemetry.DetectionMetrics(registry),
            )
            await presets.detect()
            await tasks.enter_async_context(running(presets.run(changed)))
            return presets

        yield start


async def test_new_series_are_found_by_one_request_that_reads_no_samples(
    server, proxy, start, registry, caplog
):
    caplog.set_level(logging.INFO)
    changes: list[int] = []
    presets = await start(lambda: changes.append(len(proxy.requests)))
    assert presets.names == ("gpu-dcgm",)
    detection = len(proxy.requests)
    assert detection <= 30
    await until(lambda: len(proxy.requests) > detection + 10)
    assert {each.path for each in proxy.requests[detection:]} == {NAMES}

    server.put(NEW)
    await until(lambda: changes)
    before = len(proxy.requests)
    await until(lambda: len(proxy.requests) > before + 10)

    assert presets.names == ("gpu-dcgm49", "gpu-dcgm")
    assert {each.path for each in proxy.requests[before:]} == {NAMES}
    assert len(changes) == 1
    assert presets.check().fact == "gpu-dcgm49, gpu-dcgm (detected)"
    _, line = [each.message for each in caplog.records if "--preset=auto" in each.message]
    assert line.startswith(
        "--preset=auto: using --preset=gpu-dcgm49 --preset=gpu-dcgm: found dcgm-exporter 4.9 or"
    )
    name = "gpu_metrics_adapter_detected_preset"
    assert registry.get_sample_value(name, {"preset": "gpu-dcgm49"}) == 1


async def test_presets_stay_while_prometheus_cannot_be_queried(server, proxy, start, caplog):
    presets = await start(interval=0.01)
    works, proxy.behave = proxy.behave, fakes.says("{}", status=503)
    await until(lambda: presets.check().state is State.WARNING)
    failed = len(proxy.requests)
    await until(lambda: len(proxy.requests) > failed + 3)

    assert presets.names == ("gpu-dcgm",)
    assert presets.check().fact.startswith("Prometheus cannot be queried since 20")
    assert caplog.text.count("Prometheus cannot be queried") == 1

    server.put(NEW)
    proxy.behave = works
    await until(lambda: presets.names == ("gpu-dcgm49", "gpu-dcgm"))
    assert presets.check().fact == "gpu-dcgm49, gpu-dcgm (detected)"


async def test_without_series_the_default_preset_is_used_until_there_are_some(server, proxy, start):
    server.end(OLD)
    presets = await start()
    assert presets.names == ("gpu-dcgm",)
    assert presets.check().fact == "gpu-dcgm (no exporter is detected, so this is used)"

    server.put(NEW)

    await until(lambda: presets.names == ("gpu-dcgm49",))


async def test_backend_without_an_index_is_asked_at_each_detection_only(proxy, start):
    through = proxy.behave

    async def ignore_match(request, received):
        if received.path == NAMES:
            names = b'{"status":"success","data":["DCGM_FI_DEV_GPU_UTIL","up"]}'
            return web.Response(body=names, content_type="application/json")
        return await through(request, received)

    proxy.behave = ignore_match
    presets = await start(interval=1.0)
    assert presets.names == ("gpu-dcgm",)
    detection = len(proxy.requests)

    await until(lambda: len(proxy.requests) > detection)

    assert proxy.requests[detection].path != NAMES
