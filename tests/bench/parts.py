"""The processes of the benchmark `load`: `python -m tests.bench.parts PART FOLDER` is one."""

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
from adapter.clients.prometheus import LIMIT
from adapter.http import responses
from adapter.http import server as serving
from adapter.tls import context as tls
from certs.bundle import Bundle
from tests.certificates import Holder
from tests.fakes import kubernetes
from tests.real import prometheus as real

NAMESPACES, APPS, PODS = 4, 50, 10
"""Pods of each application, and applications of each namespace."""
METRIC = "duty_cycle_current"

_BODY = b"x" * 2000


def certificates(folder: Path) -> Holder:
    """A front proxy's; what the servers need of it and of their own is written down."""
    now = dt.datetime.now(dt.UTC)
    authority = Holder("front-proxy-ca", ca=True, now=now)
    usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    (folder / "proxy-ca.crt").write_bytes(authority.pem)
    own = tls.temporary_bundle("127.0.0.1", now=now)
    (folder / "tls.crt").write_bytes(own.chain_pem)
    (folder / "tls.key").write_bytes(own.key_pem)
    return Holder("front-proxy-client", authority, usages=usages, now=now)


def flags(folder: Path, prometheus: str, port: int) -> Sequence[str]:
    """As the Deployment has it, but for the pace of questions to Kubernetes."""
    return (
        f"--prometheus-url={prometheus}",
        "--preset=gpu-dcgm",
        f"--lister-kubeconfig={folder / 'kubeconfig'}",
        "--client-qps=10000",
        "--client-burst=10000",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )


def series(metric: str) -> Iterator[tuple[dict[str, str], float]]:
    for number, (space, application, pod) in enumerate(pods()):
        yield (
            {
                "__name__": metric,
                "exported_namespace": space,
                "exported_pod": pod,
                "exported_container": "server",
                "namespace": "gpu-operator",
                "pod": f"dcgm-exporter-{number % 250}",
                "gpu": str(number % 8),
                "UUID": f"GPU-a1002f3a-6c1d-4e5b-9f00-{number:012x}",
                "device": f"nvidia{number % 8}",
                "modelName": "NVIDIA A100-SXM4-80GB",
                "Hostname": f"gpu-node-{number % 250}",
                "app": application,
            },
            float(number % 100),
        )


def pods() -> Iterator[tuple[str, str, str]]:
    for space in range(NAMESPACES):
        for number in range(APPS):
            for pod in range(PODS):
                yield f"ns-{space}", f"app-{number}", f"app-{number}-5c9f7b6d4c-x7k{pod}q"


async def _kubernetes(folder: Path) -> None:
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    authority = (folder / "proxy-ca.crt").read_text()
    data = {
        "requestheader-client-ca-file": authority,
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    cluster.put(*kubernetes.TRUST, data=data)
    for space, application, pod in pods():
        cluster.add("pods", space, pod, labels={"app": application}, phase="Running")
    server = test_utils.TestServer(cluster.app())
    await server.start_server()
    kubernetes.kubeconfig(folder, server)
    _tell(folder, "kubernetes", server.port or 0)
    await asyncio.Event().wait()


async def _bare(folder: Path) -> None:
    """aiohttp's low-level server, with one answer for all."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    bundle = Bundle.parse(certificate.read_bytes(), key.read_bytes())
    authority = ssl.PEM_cert_to_DER_cert((folder / "proxy-ca.crt").read_text())

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return responses.Response(body=_BODY)

    runner = serving.runner(answer)
    await runner.setup()
    context = tls.context(bundle, client_cas=authority)
    site = serving.Site(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    _tell(folder, "bare", site.port)
    await asyncio.Event().wait()


async def _great(folder: Path) -> None:
    """A Prometheus whose every answer has as many samples as one may have."""
    samples = ",".join(
        json.dumps({"metric": labels, "value": [1.0, str(value)]})
        for labels, value in series(METRIC)
    )
    head, tail = '{"status":"success","data":{"resultType":"vector","result":[', "]}}"
    times = (LIMIT - len(head) - len(tail)) // (len(samples) + 1)
    body = f"{head}{','.join([samples] * times)}{tail}".encode()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    server = test_utils.RawTestServer(answer)
    await server.start_server()
    _tell(folder, "great", server.port or 0)
    await asyncio.Event().wait()


async def _reader(folder: Path) -> None:
    """What the adapter is made of asks once, and tells its greatest size."""
    asked = settings.parse((f"--prometheus-url=http://127.0.0.1:{told(folder, 'great')}",))
    async with sources.connect_prometheus(asked.prometheus) as prometheus:
        await prometheus.query("great")
    _tell(folder, "reader", round(mebibytes(os.getpid(), "VmHWM")))
    await asyncio.Event().wait()


PARTS = {"bare": _bare, "kubernetes": _kubernetes, "great": _great, "reader": _reader}


def _tell(folder: Path, part: str, number: int) -> None:
    """A part's port, or what it found."""
    whole = folder / f"{part}.part"
    whole.write_text(str(number))
    whole.rename(folder / f"{part}.told")


def told(folder: Path, part: str) -> int:
    file = folder / f"{part}.told"
    real.wait_for(file.exists, f"the part {part} tells what it does", seconds=60)
    return int(file.read_text())


def part(folder: Path, name: str) -> contextlib.AbstractContextManager[int]:
    """The id of one of the processes here."""
    return process(folder, "-m", "tests.bench.parts", name, str(folder))


@contextlib.contextmanager
def process(folder: Path, *arguments: str) -> Iterator[int]:
    """The id of a Python process, which ends with the block."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *arguments], stderr=log, stdout=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def mebibytes(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    asyncio.run(PARTS[sys.argv[1]](Path(sys.argv[2])))
