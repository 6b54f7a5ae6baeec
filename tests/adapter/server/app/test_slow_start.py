"""Lists while a slow Prometheus is listed for the first time, by the whole server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from adapter import settings
from adapter.cli.local_prometheus.process import free_port
from adapter.server.app import reload
from adapter.server.app import server as app
from tools.presets import api
from tools.real import prometheus as real
from tools.waiting import until

DELAY = 0.2
"""Seconds by which each answer of Prometheus is late."""
PATH = f"{api.GROUP}/namespaces/ml/pods/*/duty_cycle_current"
ENDED = 'DCGM_FI_DEV_GPU_UTIL{exported_namespace="ml",exported_pod="bert",UUID="0"} 10'
"""Still in the index: labels alone do not say which of them live series carry."""
GUESS = 'exported_namespace="ml"'
"""In the query by the labels that the preset prefers, and that the series do not carry."""

Wait = Callable[[str], Awaitable[Any]]
"""Waits before a query is passed on; given its text, empty for listings."""


async def late(query: str) -> None:
    """Wait as long for each query."""
    await asyncio.sleep(DELAY)


@asynccontextmanager
async def serving(directory: Path, wait: Wait, *flags: str) -> AsyncIterator[api.Api]:
    """Run the server before a real Prometheus whose answers wait."""
    with real.run(directory) as prometheus:
        prometheus.put('DCGM_FI_DEV_GPU_UTIL{namespace="ml",pod="bert",UUID="0"} 50')
        prometheus.put(ENDED, at=time.time() - 1)
        prometheus.end(ENDED)
        async with aiohttp.ClientSession() as session:

            async def answer(request: web.BaseRequest) -> web.Response:
                await wait(request.query.get("query", ""))
                async with session.get(prometheus.url + request.raw_path) as response:
                    return web.json_response(await response.json(), status=response.status)

            runner = web.ServerRunner(web.Server(answer))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            file = directory / "objects.json"
            file.write_text(api.manifests(["ml/bert"]))
            own = (
                f"--prometheus-url=http://127.0.0.1:{runner.addresses[0][1]}",
                f"--objects={file}",
                f"--secure-port={free_port()}",
            )
            async with app.running(settings.parse((*own, *flags))) as url, asyncio.timeout(90):
                yield api.Api(url, session)
            await runner.cleanup()


async def relisted(client: api.Api) -> None:
    """Return once the first relist has finished."""
    await until(client.relisted)


def reasons(document: Any) -> set[str]:
    """Return the reasons of a 404."""
    return {each["reason"] for each in document["details"]["causes"]}


@pytest.mark.parametrize("flags", [("--preset=gpu-dcgm",), ()])
async def test_no_list_is_empty_because_labels_are_not_known_yet(
    flags: tuple[str, ...], real_servers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_DETECTION_TIMEOUT", DELAY / 2)
    causes = set()
    async with serving(tmp_path, late, *flags) as client:
        while (answer := await client.get(PATH))[0] != 200:
            causes |= reasons(answer[1])

    assert [item["value"] for item in answer[1]["items"]] == ["50"]
    assert causes == {"NotListedYet"}


@pytest.mark.parametrize("name", ["bert", "*"])
async def test_no_label_is_missing_if_a_relist_ends_before_the_query_by_a_guess(
    name: str, real_servers: None, tmp_path: Path
) -> None:
    asked, listed = asyncio.Event(), asyncio.Event()

    async def wait(query: str) -> None:
        if GUESS in query:
            asked.set()
            await listed.wait()
        else:
            await asked.wait()

    async with serving(tmp_path, wait, "--preset=gpu-dcgm") as client:
        path = PATH.replace("*", name)
        guess = asyncio.create_task(client.get(path))
        await relisted(client)
        listed.set()
        status, document = await guess
        _, later = await client.get(path)

    assert status == 404
    assert reasons(document) == {"NotListedYet"}
    assert [item["value"] for item in later["items"]] == ["50"]


async def test_no_list_is_empty_while_the_query_of_live_labels_fails(
    real_servers: None, tmp_path: Path
) -> None:
    failing = True

    async def wait(query: str) -> None:
        if failing and "gpu_metrics_adapter_query" in query:
            raise web.HTTPServiceUnavailable

    async with serving(tmp_path, wait, "--preset=gpu-dcgm") as client:
        await relisted(client)
        status, document = await client.get(PATH)
        failing = False
        while (answer := await client.get(PATH))[0] != 200:
            assert reasons(answer[1]) <= {"RelistFailed", "NotListedYet"}

    assert (status, reasons(document)) == (404, {"RelistFailed"})
    assert [item["value"] for item in answer[1]["items"]] == ["50"]
