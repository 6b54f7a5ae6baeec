"""Processes of the benchmark `load`; `python -m tests.bench.processes NAME FOLDER` is one of them.

Each writes its port, or its result, into the folder. Measurements of processes are here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiohttp import test_utils, web
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import settings
from adapter.app import sources
from adapter.clients.prometheus import MAX_RESULT
from adapter.tls import context
from certs.bundle import Bundle
from certs.issue import issue_temporary
from tests.certificates import Holder
from tests.fakes import kubernetes
from tests.real import prometheus as real

NAMESPACES, APPS, PODS = 4, 50, 10
"""Namespaces, applications per namespace, and pods per application."""
METRIC = "duty_cycle_current"

_BODY = b"x" * 2000


def certificates(folder: Path) -> Holder:
    """Write the request-header CA and a serving certificate; return the front proxy's one."""
    now = dt.datetime.now(dt.UTC)
    proxy_ca = Holder("front-proxy-ca", ca=True, now=now)
    usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    (folder / "proxy-ca.crt").write_bytes(proxy_ca.pem)
    serving = issue_temporary(("127.0.0.1",), now=now)
    (folder / "tls.crt").write_bytes(serving.chain_pem)
    (folder / "tls.key").write_bytes(serving.key_pem)
    return Holder("front-proxy-client", proxy_ca, usages=usages, now=now)


def flags(folder: Path, prometheus: str, port: int) -> Sequence[str]:
    """Return the adapter's flags: those of the Deployment."""
    return (
        f"--prometheus-url={prometheus}",
        "--preset=gpu-dcgm",
        f"--lister-kubeconfig={folder / 'kubeconfig'}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )


def series(metric: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield one series per pod, with the labels of dcgm-exporter."""
    for number, (namespace, app, pod) in enumerate(pods()):
        yield (
            {
                "__name__": metric,
                "exported_namespace": namespace,
                "exported_pod": pod,
                "exported_container": "server",
                "namespace": "gpu-operator",
                "pod": f"dcgm-exporter-{number % 250}",
                "gpu": str(number % 8),
                "UUID": f"GPU-a1002f3a-6c1d-4e5b-9f00-{number:012x}",
                "device": f"nvidia{number % 8}",
                "modelName": "NVIDIA A100-SXM4-80GB",
                "Hostname": f"gpu-node-{number % 250}",
                "app": app,
            },
            float(number % 100),
        )


def pods() -> Iterator[tuple[str, str, str]]:
    """Yield the namespace, application and name of each pod."""
    for namespace in range(NAMESPACES):
        for app in range(APPS):
            for pod in range(PODS):
                yield f"ns-{namespace}", f"app-{app}", f"app-{app}-5c9f7b6d4c-x7k{pod}q"


def trust(folder: Path) -> dict[str, str]:
    """Return the data of extension-apiserver-authentication for these certificates."""
    return {
        "requestheader-client-ca-file": (folder / "proxy-ca.crt").read_text(),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


async def _fake_kubernetes(folder: Path) -> None:
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    cluster.put(*kubernetes.TRUST, data=trust(folder))
    for namespace, app, pod in pods():
        cluster.add("pods", namespace, pod, labels={"app": app}, phase="Running")
    fake = test_utils.TestServer(cluster.app())
    await fake.start_server()
    kubernetes.kubeconfig(folder, fake)
    write_result(folder, "kubernetes", fake.port or 0)
    await asyncio.Event().wait()


async def _bare_aiohttp(folder: Path) -> None:
    """Serve one constant response with aiohttp's low-level server and the adapter's TLS."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    bundle = Bundle.parse(certificate.read_bytes(), key.read_bytes())
    proxy_ca = ssl.PEM_cert_to_DER_cert((folder / "proxy-ca.crt").read_text())

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=_BODY)

    runner = web.ServerRunner(web.Server(respond))
    await runner.setup()
    tls_context = context.context(bundle, client_cas=proxy_ca)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls_context)
    await site.start()
    write_result(folder, "bare", runner.addresses[0][1])
    await asyncio.Event().wait()


async def _fake_prometheus(folder: Path) -> None:
    """Serve a query response of the largest size that the adapter accepts."""
    samples = ",".join(
        json.dumps({"metric": labels, "value": [1.0, str(value)]})
        for labels, value in series(METRIC)
    )
    head, tail = '{"status":"success","data":{"resultType":"vector","result":[', "]}}"
    repetitions = (MAX_RESULT - len(head) - len(tail)) // (len(samples) + 1)
    body = f"{head}{','.join([samples] * repetitions)}{tail}".encode()

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    fake = test_utils.RawTestServer(respond)
    await fake.start_server()
    write_result(folder, "prometheus", fake.port or 0)
    await asyncio.Event().wait()


async def _reader(folder: Path) -> None:
    """Read that response once with the adapter's client; the result is the peak RSS in MiB."""
    port = read_result(folder, "prometheus")
    options = settings.parse((f"--prometheus-url=http://127.0.0.1:{port}",))
    async with sources.connect_prometheus(options.prometheus) as prometheus:
        await prometheus.query("up")
    write_result(folder, "reader", round(mebibytes(os.getpid(), "VmHWM")))
    await asyncio.Event().wait()


_PROCESSES = {
    "bare": _bare_aiohttp,
    "kubernetes": _fake_kubernetes,
    "prometheus": _fake_prometheus,
    "reader": _reader,
}


def write_result(folder: Path, name: str, number: int) -> None:
    """Write the port or the result of this process, for `read_result`."""
    partial = folder / f"{name}.partial"
    partial.write_text(str(number))
    partial.rename(folder / f"{name}.result")


def read_result(folder: Path, name: str) -> int:
    """Wait for the port or the result of a process, and return it."""
    file = folder / f"{name}.result"
    real.wait_for(file.exists, f"the process {name} has a result", seconds=60)
    return int(file.read_text())


def start(folder: Path, name: str) -> contextlib.AbstractContextManager[int]:
    """Run one of these processes until the context ends; its value is the process id."""
    return start_python(folder, "-m", "tests.bench.processes", name, str(folder))


@contextlib.contextmanager
def start_python(folder: Path, *arguments: str, source: Path | None = None) -> Iterator[int]:
    """Run a Python process until the context ends; its value is the process id.

    `source` is the checkout whose modules it imports, by default this one.
    """
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *arguments], stderr=log, stdout=log, cwd=source)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def mebibytes(pid: int, field: str) -> float:
    """Return a size in /proc/PID/status, such as VmRSS, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return user plus system time: fields 14 and 15 of /proc/PID/stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asyncio.run(_PROCESSES[sys.argv[1]](Path(sys.argv[2])))
