"""The server itself behind a real aggregator: with the rights of manifests/base and no others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter import identity
from tests.control_plane.plane import ControlPlane
from tests.manifests.test_manifests import MANIFESTS, NAME, NAMESPACE
from tests.real import prometheus
from tests.real.prometheus import Prometheus, wait_for

API_SERVICES = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
ASKED = f"{GROUP}/namespaces/default/pods/%2A/duty_cycle_current?labelSelector=app%3Dbert"
_LISTENING = "serving on"
OUTAGE = float(os.environ.get("OUTAGE", "0"))
"""Seconds without a server, at least; the aggregator needs up to 30 s to see that it is gone."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as server:
        for later in range(0, 900, 120):
            server.put(
                'DCGM_FI_DEV_GPU_UTIL{UUID="u",namespace="default",pod="bert-0"} 22',
                at=time.time() + later,
            )
        yield server


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, port: int) -> Iterator[ControlPlane]:
    """manifests/base, with this machine as the Service, a pod, and one who may read its metric."""
    base = MANIFESTS / "base"
    try:
        control_plane.kubectl("apply", "--warnings-as-errors", "-k", base)
        control_plane.local_service(NAME, NAMESPACE)
        for name in API_SERVICES:
            patch = f'{{"spec":{{"service":{{"port":{port}}}}}}}'
            control_plane.kubectl("patch", "apiservice", name, "--type=merge", "-p", patch)
        control_plane.kubectl("apply", "-f", "-", text=OBJECTS)
        yield control_plane
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", text=OBJECTS)
        control_plane.kubectl("delete", "--ignore-not-found", "--timeout=60s", "-k", base)


OBJECTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: bert, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: bert-0, namespace: default, labels: {app: bert}}
spec:
  serviceAccountName: bert
  automountServiceAccountToken: false
  containers: [{name: serving, image: example.invalid/bert}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: duty-cycle-reader, namespace: default}
rules:
- apiGroups: [custom.metrics.k8s.io]
  resources: [pods/duty_cycle_current]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: duty-cycle-reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: duty-cycle-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
"""


@contextlib.asynccontextmanager
async def serving(
    cluster: ControlPlane, scraped: Prometheus, port: int, log: Path
) -> AsyncIterator[tuple[float, float]]:
    """The program, as a process with its ServiceAccount's token: when it began, and listened."""
    kubeconfig = cluster.account_kubeconfig(NAME, NAMESPACE)
    before = _times_listening(log)
    with log.open("ab") as output:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "adapter", f"--secure-port={port}"),
            *(f"--lister-kubeconfig={kubeconfig}", f"--service-namespace={NAMESPACE}"),
            *(f"--prometheus-url={scraped.url}", "--preset=gpu-dcgm", "-v=6"),
            stderr=output,
        )
    try:
        async with asyncio.timeout(30):
            while _times_listening(log) == before:  # noqa: ASYNC110 - a file tells it
                await asyncio.sleep(0.02)
        yield began, time.monotonic()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


def _times_listening(log: Path) -> int:
    return log.read_text().count(_LISTENING) if log.exists() else 0


def _since(moments: tuple[float, float], then: float) -> tuple[float, float]:
    began, listened = moments
    return round(then - began, 1), round(then - listened, 1)


async def available(cluster: ControlPlane) -> float:
    """When both APIServices are Available."""
    for name in API_SERVICES:
        await asyncio.to_thread(cluster.wait_available, name, seconds=40)
    return time.monotonic()


async def answered(cluster: ControlPlane, user: str, path: str = ASKED) -> tuple[int, Any]:
    """What the aggregator answers to a user, once it passes requests on."""
    client = cluster.user(user)
    deadline = time.monotonic() + 20
    while True:
        reply = await asyncio.to_thread(client.request, "GET", path)
        if reply.status != 503 or time.monotonic() > deadline:
            return reply.status, reply.document
        await asyncio.sleep(0.2)


async def test_server_is_available_at_once_also_after_an_outage_and_lets_in_who_may(
    cluster: ControlPlane, scraped: Prometheus, port: int, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    took = []

    async with serving(cluster, scraped, port, log) as moments:
        took.append(_since(moments, await available(cluster)))
        status, document = await answered(cluster, "reader")
        refused, refusal = await answered(cluster, "stranger")
        secret = cluster.admin.get(
            f"/api/v1/namespaces/{NAMESPACE}/secrets/{identity.secret_name(NAME)}"
        )
        bundles = [
            cluster.admin.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")["spec"]
            for name in API_SERVICES
        ]
    await asyncio.sleep(OUTAGE)
    await asyncio.to_thread(
        wait_for, lambda: not cluster.available(API_SERVICES[0])[0], "the loss is seen", seconds=60
    )
    async with serving(cluster, scraped, port, log) as moments:
        took.append(_since(moments, await available(cluster)))
        again, _ = await answered(cluster, "reader")

    said = log.read_text()
    values = {item["describedObject"]["name"]: item["value"] for item in document["items"]}
    assert (status, values) == (200, {"bert-0": "22"})
    assert (refused, refusal["reason"]) == (403, "Forbidden")
    assert refusal["message"].startswith(
        'pods.custom.metrics.k8s.io "*" is forbidden: User "stranger" cannot get resource '
        '"pods/duty_cycle_current" in API group "custom.metrics.k8s.io" in the namespace "default"'
    )
    assert {spec["caBundle"] for spec in bundles} == {secret["data"]["ca.crt"]}
    assert not any(spec.get("insecureSkipTLSVerify") for spec in bundles)
    assert again == 200
    print(f"\nAvailable after (start, listening): {took[0]}; after {OUTAGE} s of outage: {took[1]}")
    # Of the start, most is the interpreter's on a busy machine; what is ours is from listening on.
    assert max(listening for _, listening in took) < 3, said
    token = cluster.account_kubeconfig(NAME, NAMESPACE).read_text().split("token")[1]
    assert token.strip('": \n}')[:40] not in said
    assert base64.b64decode(secret["data"]["tls.key"]).decode() not in said


async def test_who_may_have_a_metric_is_told_through_the_aggregator_why_it_is_missing(
    cluster: ControlPlane, scraped: Prometheus, port: int, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    path = f"{GROUP}/namespaces/default/pods/bert-1/duty_cycle_current"

    async with serving(cluster, scraped, port, log):
        await available(cluster)
        status, document = await answered(cluster, "reader", path)

    message = "the server could not find the metric duty_cycle_current for pods bert-1"
    assert (status, document["message"]) == (404, message)
    (cause,) = document["details"]["causes"]
    assert cause["reason"] == "NoObject"
    assert (
        f"pods/bert-1/duty_cycle_current in namespace default: no object: {cause['message']}"
        in (log.read_text())
    )
