"""Cost of requests to the adapter, running as a process with 2 000 pods behind it.

    python -m tests.bench.load

Requests are sent like the aggregator's: over TLS, with the front proxy's certificate, for the HPA
controller. Behind the adapter are a fake Kubernetes process and a real Prometheus with one GPU
series per pod. Four loads run one after the other, each with CLIENTS connections that are never
idle:

* `bare`: a constant response of aiohttp over the same TLS, the unit of the other ratios;
* `/version`: the cost of every request (authentication, authorization);
* `autoscaler`: the metric of one application, as an HPA requests it;
* `namespace`: the metric of all 500 pods of a namespace.

CPU and memory are those of the serving process, from /proc. Requests per second and latency depend
on what else the machine does. At the end, a process with the adapter's client reads the largest
response of Prometheus that the adapter accepts. Fails if `/version` costs MAX_VERSION_RATIO bare
requests or more, `autoscaler` MAX_AUTOSCALER_RATIO, or if the peak memory under load is
MAX_MEMORY_RATIO times that of the idle process or more.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from adapter.clients.prometheus import MAX_RESULT
from tests.bench import processes
from tests.certificates import Holder
from tests.control_plane.daemon import free_ports
from tests.real import prometheus as real

MAX_VERSION_RATIO, MAX_AUTOSCALER_RATIO, MAX_MEMORY_RATIO = 4, 20, 2
SECONDS, WARM_UP_SECONDS = 3.0, 1.0
CLIENTS = 8

_GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
_AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Measurements of one load."""

    requests_per_second: float
    cpu_ms: float
    """CPU time of the serving process per request."""
    p50_ms: float
    p99_ms: float


def main() -> int:
    """Run the benchmark and print its results; return 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as name:
        results, idle, peak = _measure(Path(name))
        read_peak = _measure_largest_response(Path(name))
    print(f"{'':>12} {'requests/s':>10} {'CPU ms':>7} {'x bare':>7} {'p50 ms':>7} {'p99 ms':>7}")
    ratios = {name: result.cpu_ms / results["bare"].cpu_ms for name, result in results.items()}
    for name, result in results.items():
        print(
            f"{name:>12} {result.requests_per_second:>10.0f} {result.cpu_ms:>7.2f}"
            f" {ratios[name]:>7.1f} {result.p50_ms:>7.1f} {result.p99_ms:>7.1f}"
        )
    pods = processes.NAMESPACES * processes.APPS * processes.PODS
    print(
        f"RSS: {idle:.0f} MiB idle, {peak:.0f} MiB at the peak,"
        f" {(peak - idle) * 1024 / pods:.1f} KiB more for each of {pods} pods;"
        f" {read_peak:.0f} MiB at the peak while reading a response of {MAX_RESULT >> 20} MiB"
    )
    limits = (
        ("/version", "x bare", ratios["/version"], MAX_VERSION_RATIO),
        ("autoscaler", "x bare", ratios["autoscaler"], MAX_AUTOSCALER_RATIO),
        ("peak memory", "x idle", peak / idle, MAX_MEMORY_RATIO),
    )
    problems = [
        f"{what}: {ratio:.1f} {unit}, must be below {limit}"
        for what, unit, ratio, limit in limits
        if ratio >= limit
    ]
    summary = "; ".join(f"{what}: {ratio:.1f} {unit}" for what, unit, ratio, _ in limits)
    print("\n".join(problems) or summary)
    return 1 if problems else 0


def _measure(folder: Path) -> tuple[dict[str, Result], float, float]:
    """Return the results by load, and the idle and the peak RSS of the adapter in MiB."""
    proxy = processes.certificates(folder)
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(processes.start(folder, "bare"))
        bare_port = processes.read_result(folder, "bare")
        results = {"bare": asyncio.run(_run_load(folder, proxy, bare, bare_port, ["/"]))}
        prometheus = stack.enter_context(real.run(folder))
        stack.enter_context(processes.start(folder, "kubernetes"))
        processes.read_result(folder, "kubernetes")
        # All series of the preset, so that the relist indexes as much as in production.
        for metric in ("GPU_UTIL", "FB_USED", "FB_FREE", "GPU_TEMP", "POWER_USAGE"):
            prometheus.write(processes.series(f"DCGM_FI_DEV_{metric}"))
        (port,) = free_ports(1)
        flags = processes.flags(folder, prometheus.url, port)
        adapter = stack.enter_context(processes.start_python(folder, "-m", "adapter", *flags))
        metric = f"pods/*/{processes.METRIC}"
        loads = {
            "/version": ["/version"],
            "autoscaler": [
                f"{_GROUP}/namespaces/ns-{namespace}/{metric}?labelSelector=app%3Dapp-{app}"
                for app in range(processes.APPS)
                for namespace in range(processes.NAMESPACES)
            ],
            "namespace": [
                f"{_GROUP}/namespaces/ns-{namespace}/{metric}"
                for namespace in range(processes.NAMESPACES)
            ],
        }
        asyncio.run(_wait_for_values(folder, proxy, port, loads["autoscaler"][0]))
        idle = processes.mebibytes(adapter, "VmRSS")
        for name, paths in loads.items():
            results[name] = asyncio.run(_run_load(folder, proxy, adapter, port, paths))
        return results, idle, processes.mebibytes(adapter, "VmHWM")


def _measure_largest_response(folder: Path) -> float:
    """Return the peak RSS, in MiB, of a process that reads the largest response."""
    with processes.start(folder, "prometheus"), processes.start(folder, "reader"):
        return float(processes.read_result(folder, "reader"))


async def _wait_for_values(folder: Path, proxy: Holder, port: int, path: str) -> None:
    """Wait until the adapter returns a value for each pod of an application."""
    body: object = None
    for _ in range(300):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _Client.connected(folder, proxy, port) as client:
                body = await client.get(path)
                if len(json.loads(body).get("items", ())) == processes.PODS:
                    return
        await asyncio.sleep(0.1)
    log = (folder / "log").read_text()
    raise TimeoutError(f"the adapter has no values; last response: {body!r}\n{log}")


async def _run_load(
    folder: Path, proxy: Holder, pid: int, port: int, paths: Sequence[str]
) -> Result:
    latencies: list[float] = []
    number = 0

    async def send_requests(client: _Client, deadline: float) -> None:
        nonlocal number
        while time.monotonic() < deadline:
            number += 1
            started = time.monotonic()
            await client.get(paths[number % len(paths)])
            latencies.append(time.monotonic() - started)

    async def run_clients(clients: Sequence[_Client], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(send_requests(client, deadline) for client in clients))

    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(_Client.connected(folder, proxy, port))
            for _ in range(CLIENTS)
        ]
        await run_clients(clients, WARM_UP_SECONDS)
        latencies.clear()
        started, cpu_before = time.monotonic(), processes.cpu_seconds(pid)
        await run_clients(clients, SECONDS)
        seconds = time.monotonic() - started
        cpu = processes.cpu_seconds(pid) - cpu_before
    return Result(
        requests_per_second=len(latencies) / seconds,
        cpu_ms=cpu / len(latencies) * 1000,
        p50_ms=statistics.median(latencies) * 1000,
        p99_ms=statistics.quantiles(latencies, n=100)[-1] * 1000,
    )


class _Client:
    """Minimal HTTP/1.1 client on one connection: it shares the CPU with the measured process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, folder: Path, proxy: Holder, port: int):
        context = ssl.create_default_context(cadata=(folder / "tls.crt").read_text())
        proxy.client(context, folder)
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            yield cls(*streams)
        finally:
            streams[1].close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await streams[1].wait_closed()

    async def get(self, path: str) -> bytes:
        """Return the body of a response. Raises RuntimeError unless its status is 200 or 404."""
        fields = f"Host: x\r\nX-Remote-User: {_AUTOSCALER}\r\nX-Remote-Group: system:authenticated"
        self._writer.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.split("\r\n")
        (length,) = (line.split()[1] for line in lines if line.startswith("Content-Length: "))
        body = await self._reader.readexactly(int(length))
        if status.split()[1] not in {"200", "404"}:
            raise RuntimeError(f"{path}: {status} {body[:500]!r}")
        return body


if __name__ == "__main__":
    sys.exit(main())
