"""What requests cost the adapter, as a process with 2 000 pods behind it.

    python -m tests.bench.load

It is asked as the aggregator asks: over TLS, by a front proxy's certificate, for an autoscaler.
Behind it are a fake Kubernetes, in a process of its own, and a real Prometheus that has a GPU's
series for each pod. Four loads follow each other, each from so many clients that one is always
waiting: the bare handler of aiohttp over the same TLS, which is the measure of the others;
`/version`, for what every request passes; one application's metric, as an autoscaler asks for it;
and that of a namespace's 500 pods at once. CPU and memory are those of the process that answers,
as the kernel counts them; how many requests a second there are, and how soon each is answered,
depends on what else the machine does. At last the greatest answer that Prometheus may give is read
by a process like the adapter's. Fails unless what every request passes costs less than `FRAME` bare
handlers, an autoscaler's question less than `QUESTION`, and the peak of memory under load is less
than `GROWTH` times that of the idle process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from adapter.clients.prometheus import LIMIT
from tests.bench import parts
from tests.certificates import Holder
from tests.control_plane.daemon import free_ports
from tests.real import prometheus as real

FRAME, QUESTION, GROWTH = 4, 40, 2
SECONDS, WARM_UP = 3.0, 1.0
CLIENTS = 8

_GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
_AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one load."""

    requests: float
    """A second."""
    cpu: float
    """Milliseconds of the answering process for one request."""
    median: float
    slowest: float
    """Milliseconds until the answer, of half of all requests and of 99 of 100."""


def main(_: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        rows, idle, peak = _measured(Path(name))
        greatest = _greatest(Path(name))
    print(f"{'':>12} {'requests/s':>10} {'CPU ms':>7} {'x bare':>7} {'p50 ms':>7} {'p99 ms':>7}")
    ratios = {name: row.cpu / rows["bare"].cpu for name, row in rows.items()}
    for name, row in rows.items():
        print(
            f"{name:>12} {row.requests:>10.0f} {row.cpu:>7.2f} {ratios[name]:>7.1f}"
            f" {row.median:>7.1f} {row.slowest:>7.1f}"
        )
    pods = parts.NAMESPACES * parts.APPS * parts.PODS
    print(
        f"RSS: {idle:.0f} MiB idle, {peak:.0f} MiB at the peak,"
        f" {(peak - idle) * 1024 / pods:.1f} KiB more for each of {pods} pods;"
        f" {greatest:.0f} MiB at the peak of reading an answer of {LIMIT >> 20} MiB"
    )
    claims = (
        ("/version", "bare handlers", ratios["/version"], FRAME),
        ("autoscaler", "bare handlers", ratios["autoscaler"], QUESTION),
        ("the peak of memory", "times the idle process", peak / idle, GROWTH),
    )
    problems = [
        f"{what}: {found:.1f} {of}, not less than {most}"
        for what, of, found, most in claims
        if found >= most
    ]
    print("\n".join(problems) or "; ".join(f"{w}: {f:.1f} {o}" for w, o, f, _ in claims))
    return 1 if problems else 0


def _measured(folder: Path) -> tuple[dict[str, Row], float, float]:
    """The rows by load, and MiB of the adapter before and at most."""
    proxy = parts.certificates(folder)
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(parts.part(folder, "bare"))
        rows = {"bare": asyncio.run(_load(folder, proxy, bare, parts.told(folder, "bare"), ["/"]))}
        prometheus = stack.enter_context(real.run(folder))
        stack.enter_context(parts.part(folder, "kubernetes"))
        parts.told(folder, "kubernetes")
        # All that the presets ask for must be there, for the relist to hold what it would.
        for metric in ("GPU_UTIL", "FB_USED", "FB_FREE", "GPU_TEMP", "POWER_USAGE"):
            prometheus.write(parts.series(f"DCGM_FI_DEV_{metric}"))
        (port,) = free_ports(1)
        adapter = stack.enter_context(
            parts.process(folder, "-m", "adapter", *parts.flags(folder, prometheus.url, port))
        )
        loads = {
            "/version": ["/version"],
            "autoscaler": [
                f"{_GROUP}/namespaces/ns-{space}/pods/*/{parts.METRIC}?labelSelector=app%3Dapp-{app}"
                for app in range(parts.APPS)
                for space in range(parts.NAMESPACES)
            ],
            "namespace": [
                f"{_GROUP}/namespaces/ns-{space}/pods/*/{parts.METRIC}"
                for space in range(parts.NAMESPACES)
            ],
        }
        asyncio.run(_answers(folder, proxy, port, loads["autoscaler"][0]))
        idle = parts.mebibytes(adapter, "VmRSS")
        for name, paths in loads.items():
            rows[name] = asyncio.run(_load(folder, proxy, adapter, port, paths))
        return rows, idle, parts.mebibytes(adapter, "VmHWM")


def _greatest(folder: Path) -> float:
    """MiB at most of a process that reads the greatest answer."""
    with parts.part(folder, "great"), parts.part(folder, "reader"):
        return float(parts.told(folder, "reader"))


# The load


async def _answers(folder: Path, proxy: Holder, port: int, path: str) -> None:
    """Return once the adapter has a value for everybody whom `path` asks for."""
    found: object = None
    for _ in range(300):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _Client.connected(folder, proxy, port) as client:
                found = await client.ask(path)
                if len(json.loads(found).get("items", ())) == parts.PODS:
                    return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{found!r}\n{(folder / 'log').read_text()}")


async def _load(folder: Path, proxy: Holder, pid: int, port: int, paths: Sequence[str]) -> Row:
    took: list[float] = []
    number = 0

    async def ask(client: _Client, until: float) -> None:
        nonlocal number
        while time.monotonic() < until:
            number += 1
            began = time.monotonic()
            await client.ask(paths[number % len(paths)])
            took.append(time.monotonic() - began)

    async def all_ask(clients: Sequence[_Client], seconds: float) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(ask(client, until) for client in clients))

    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(_Client.connected(folder, proxy, port))
            for _ in range(CLIENTS)
        ]
        await all_ask(clients, WARM_UP)
        took.clear()
        began, before = time.monotonic(), _cpu_seconds(pid)
        await all_ask(clients, SECONDS)
        seconds, cpu = time.monotonic() - began, _cpu_seconds(pid) - before
    return Row(
        requests=len(took) / seconds,
        cpu=cpu / len(took) * 1000,
        median=statistics.median(took) * 1000,
        slowest=statistics.quantiles(took, n=100)[-1] * 1000,
    )


class _Client:
    """One connection; cheap, for it is on the same machine as what it measures."""

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

    async def ask(self, path: str) -> bytes:
        """The body of the answer. Raises RuntimeError unless it is a good one."""
        fields = f"Host: x\r\nX-Remote-User: {_AUTOSCALER}\r\nX-Remote-Group: system:authenticated"
        self._writer.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.split("\r\n")
        (length,) = (line.split()[1] for line in lines if line.startswith("Content-Length: "))
        body = await self._reader.readexactly(int(length))
        if status.split()[1] not in {"200", "404"}:
            raise RuntimeError(f"{path}: {status} {body[:500]!r}")
        return body


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process: fields 14 and 15 of /proc/PID/stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
