"""Runs a real Prometheus as a child process that scrapes the fleet every second."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

_START_TIMEOUT = 60.0
"""Seconds; a slow disk delays the start."""
_STOP_TIMEOUT = 10.0
_PORTS = range(20000, 32000)
_ports = itertools.islice(itertools.cycle(_PORTS), os.getpid() * 97 % len(_PORTS), None)


class PrometheusFailedError(Exception):
    """Prometheus exited or was not ready in time; `str()` has the last lines of its log."""


def config(
    nodes: Sequence[str],
    exporters: int,
    *,
    honor_labels: bool,
    servers: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a configuration that scrapes each exporter and model server every second.

    `servers` are the namespace and name of the pods of model servers.
    """
    of_servers = [
        _target(
            exporters,
            pod,
            instance=f"{pod}:8000",
            namespace=namespace,
            pod=pod,
            container="server",
        )
        for namespace, pod in servers
    ]
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                job(nodes, exporters, honor_labels=honor_labels),
                {"job_name": "model-servers", "static_configs": of_servers},
            ],
        }
    )


def job(nodes: Sequence[str], exporters: int, *, honor_labels: bool) -> dict[str, Any]:
    """Return a scrape job for all nodes, whose exporters share the port `exporters`.

    The target labels are those that prometheus-operator adds for a ServiceMonitor. Without
    `honor_labels`, Prometheus renames the exporter's `pod` and `namespace` to `exported_pod` and
    `exported_namespace`.
    """
    targets = [
        _target(
            exporters,
            node,
            instance=f"{node}:9400",
            node=node,
            namespace="gpu-operator",
            pod=f"nvidia-dcgm-exporter-{node.rpartition('-')[2]}",
            container="nvidia-dcgm-exporter",
            service="nvidia-dcgm-exporter",
            endpoint="gpu-metrics",
        )
        for node in nodes
    ]
    return {
        "job_name": "nvidia-dcgm-exporter",
        "honor_labels": honor_labels,
        "static_configs": targets,
    }


def _target(port: int, page: str, **labels: str) -> dict[str, Any]:
    labels["__metrics_path__"] = f"/{page}/metrics"
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def child_command(*line: str | Path) -> Sequence[str]:
    """Return a command line that runs `line` and kills it when the parent thread ends.

    Returns `line` itself if `setpriv` (of util-linux) is not installed.
    """
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *map(str, line)]


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now.

    They are below the ephemeral range of the kernel, where any outgoing connection could take one
    before it is used; and a client that keeps dialling a stopped server there would sooner or
    later connect to itself. Each process goes on from one of its own, so that two that run side by
    side do not get the same.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as sockets:
        while len(ports) < count:
            port = next(_ports)
            with contextlib.suppress(OSError):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port() -> int:
    """Return one port of `free_ports`."""
    return free_ports(1)[0]


@contextlib.asynccontextmanager
async def running(
    program: Path, configuration: str, port: int, folder: Path, *flags: str
) -> AsyncIterator[str]:
    """Run `program` in `folder`; yield its URL once it is ready. Raises PrometheusFailedError."""
    (folder / "prometheus.yml").write_text(configuration, encoding="utf-8")
    log = folder / "prometheus.log"
    command = child_command(
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    )
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must not end it before the server
        )
    url = f"http://127.0.0.1:{port}"
    try:
        await _wait_until_ready(process, url, log)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _wait_until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_TIMEOUT
    async with aiohttp.ClientSession() as session:
        while process.returncode is None and loop.time() < deadline:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(
                    f"{url}/-/ready", timeout=aiohttp.ClientTimeout(2)
                ) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
    state = f"was not ready after {_START_TIMEOUT:g} s" if process.returncode is None else "exited"
    raise PrometheusFailedError(f"Prometheus {state}; its last log lines:\n{_last_lines(log)}")


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
