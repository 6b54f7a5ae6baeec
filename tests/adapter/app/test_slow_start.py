"""Lists while a slow Prometheus is listed for the first time, by the whole server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from adapter import settings
from adapter.app import server as app
from tests.presets import api
from tests.real import prometheus as real

DELAY = 0.2
"""Seconds by which each answer of Prometheus is late."""
PATH = f"{api.GROUP}/namespaces/ml/pods/*/duty_cycle_current"


@pytest.fixture
async def slow(real_servers: None, tmp_path: Path) -> AsyncIterator[str]:
    """Yield the URL of a proxy that delays a real Prometheus."""
    with real.run(tmp_path) as prometheus:
        prometheus.put('DCGM_FI_DEV_GPU_UTIL{namespace="ml",pod="bert",UUID="0"} 50')
        async with aiohttp.ClientSession() as session:

            async def answer(request: web.BaseRequest) -> web.Response:
                await asyncio.sleep(DELAY)
                async with session.get(prometheus.url + request.raw_path) as response:
                    return web.json_response(await response.json(), status=response.status)

            runner = web.ServerRunner(web.Server(answer))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            await runner.cleanup()


async def test_no_list_is_empty_because_labels_are_not_known_yet(slow: str, tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(api.manifests(["ml/bert"]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = (f"--prometheus-url={slow}", f"--objects={file}", f"--secure-port={port}")
    served = app.running(settings.parse((*flags, "--preset=gpu-dcgm")))
    causes = set()
    async with served as url, aiohttp.ClientSession() as session, asyncio.timeout(60):
        client = api.Api(url, session)
        while True:
            status, document = await client.get(PATH)
            if status == 200:
                break
            causes |= {each["reason"] for each in document["details"]["causes"]}

    assert [item["value"] for item in document["items"]] == ["50"]
    assert causes == {"NotListedYet"}
