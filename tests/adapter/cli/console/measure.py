"""Prints what the console costs with 1 000 autoscalers and 10 000 pods.

The API server is a fake in this process; the console is a process of its own, whose pages are
requested as the script of a page does, every five seconds for a minute.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import test_utils

from tests.adapter.cli.console.conftest import World
from tests.rules.hpa import test_reading
from tools.fakes import kubernetes

AUTOSCALERS, PODS = 1000, 10
SECONDS = 60.0
INTERVAL = 5.0


def world() -> World:
    """Return a cluster with an autoscaler in each of 1 000 namespaces, ten pods each."""
    found = World()
    for index in range(AUTOSCALERS):
        namespace = f"team-{index:04}"
        found.healthy(namespace)
        path = test_reading.PODS.replace("default", namespace)
        found.documents[path] = {"items": [test_reading.pod(f"p{each}") for each in range(PODS)]}
        values = test_reading.values(**{f"p{each}": "63" for each in range(PODS)})
        found.documents[test_reading.VALUES.replace("default", namespace)] = values
    return found


async def main() -> None:
    """Print the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        api = world()
        server = test_utils.TestServer(api.app())
        await server.start_server()
        kubeconfig = kubernetes.kubeconfig(Path(folder), server)
        console = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "adapter", "console", "--no-browser", "--port=0"),
            f"--kubeconfig={kubeconfig}",
            stdout=asyncio.subprocess.PIPE,
        )
        assert console.stdout is not None
        address = re.split(r"\s", (await console.stdout.readline()).decode())[1]
        try:
            await _measure(api, console.pid, address)
        finally:
            console.terminate()
            await console.wait()
            await server.close()


async def _measure(api: World, pid: int, address: str) -> None:
    root, _, token = address.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def get(path: str, **more: str) -> tuple[float, str]:
            began = time.perf_counter()
            async with session.get(f"{root}{path}", headers=more) as response:
                text = await response.text()
                assert response.status == 200, text
            return time.perf_counter() - began, text

        seconds, page = await get("/autoscalers")
        print(f"first answer: {seconds:.2f} s, {len(page) / 1000:.0f} kB, {page.count('<tr')} rows")
        visible = " ".join(f"team-{index:04}/gpu-hpa" for index in range(15))
        api.requests.clear()
        began, times = time.monotonic(), []
        while time.monotonic() - began < SECONDS:
            times.append((await get("/autoscalers", **{"X-Visible": visible}))[0])
            await asyncio.sleep(INTERVAL)
        print(f"further answers: {min(times):.2f} to {max(times):.2f} s")
        _report("15 rows on the screen", api.requests)
        api.requests.clear()
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            await get("/autoscalers/team-0500/gpu-hpa")
            await asyncio.sleep(INTERVAL)
        _report("one autoscaler open", api.requests)
    print(f"memory: {_memory(pid)}")


def _memory(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return ", ".join(re.findall(r"Vm(?:HWM|RSS):\s+\d+ kB", status))


def _report(title: str, requests: list[Any]) -> None:
    kinds = Counter(re.sub(r"team-\d+", "NS", each) for each in requests)
    print(f"{title}: {len(requests) * 60 / SECONDS:.0f} requests per minute")
    for path, number in kinds.most_common(8):
        print(f"  {number:5} {path}")


if __name__ == "__main__":
    asyncio.run(main())
