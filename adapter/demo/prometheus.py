"""A real Prometheus that scrapes the fleet every second, as a child process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from adapter.demo import child

READY_WITHIN = 60.0
"""Seconds that a start may take on a slow disk."""
STOP_WITHIN = 10.0


class PrometheusFailedError(Exception):
    """The program ended, or was not ready in time; `str()` has its last lines."""


def config(nodes: Sequence[str], exporters: int, *, honor_labels: bool) -> str:
    """A configuration that scrapes the exporter of each node every second."""
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [job(nodes, exporters, honor_labels=honor_labels)],
        }
    )


def job(nodes: Sequence[str], exporters: int, *, honor_labels: bool) -> dict[str, Any]:
    """Scrapes each node as a ServiceMonitor's endpoint is scraped; all are behind one port.

    The target labels are those that prometheus-operator adds; without `honor_labels` they push the
    exporter's own `pod` and `namespace` aside, to `exported_pod` and `exported_namespace`.
    """
    targets = [
        {
            "targets": [f"127.0.0.1:{exporters}"],
            "labels": {
                "__metrics_path__": f"/{node}/metrics",
                "instance": f"{node}:9400",
                "node": node,
                "namespace": "gpu-operator",
                "pod": f"nvidia-dcgm-exporter-{node.rpartition('-')[2]}",
                "container": "nvidia-dcgm-exporter",
                "service": "nvidia-dcgm-exporter",
                "endpoint": "gpu-metrics",
            },
        }
        for node in nodes
    ]
    return {
        "job_name": "nvidia-dcgm-exporter",
        "honor_labels": honor_labels,
        "static_configs": targets,
    }


@contextlib.asynccontextmanager
async def running(program: Path, text: str, port: int, folder: Path) -> AsyncIterator[str]:
    """Run `program` with the configuration `text`; gives its URL once it is ready."""
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    log = folder / "prometheus.log"
    command = child.command(
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=1h",
    )
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to pass on, in order
        )
    url = f"http://127.0.0.1:{port}"
    try:
        await _ready(process, url, log)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_WITHIN)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_WITHIN
    async with aiohttp.ClientSession() as session:
        while process.returncode is None and loop.time() < deadline:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(
                    f"{url}/-/ready", timeout=aiohttp.ClientTimeout(2)
                ) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
    last = "\n".join(_lines(log)[-5:])
    state = "was not ready in time" if process.returncode is None else "ended"
    raise PrometheusFailedError(f"Prometheus {state}; its last lines:\n{last}")


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()
