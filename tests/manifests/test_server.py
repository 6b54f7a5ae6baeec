"""The server behind a real aggregator, with only the permissions of the manifests."""

from __future__ import annotations

import base64
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certs import secret
from tools.certificates import INSECURE
from tools.cluster import server
from tools.cluster.server import NAME, NAMESPACE, Server
from tools.control_plane.client import Reply
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import Prometheus, wait_for

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
PODS = f"{GROUP}/namespaces/default/pods/%2A/duty_cycle_current?labelSelector=app%3Dbert"
OUTAGE = float(os.environ.get("OUTAGE", "0"))
"""Minimum outage in seconds; the aggregator needs up to 30 s to notice one."""


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    for later in range(0, 900, 120):
        empty_prometheus.put(
            'DCGM_FI_DEV_GPU_UTIL{UUID="u",namespace="default",pod="bert-0"} 22',
            at=time.time() + later,
        )
    return empty_prometheus


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the manifests, a pod, and a user who may read its metric."""
    with server.installed(control_plane):
        try:
            control_plane.kubectl("apply", "-f", "-", text=OBJECTS)
            yield control_plane
        finally:
            control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", text=OBJECTS)


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


@pytest.fixture
def adapter(cluster: ControlPlane, scraped: Prometheus, tmp_path: Path) -> Iterator[Server]:
    flags = (f"--prometheus-url={scraped.url}", "--preset=gpu-dcgm", "-v=6")
    process = Server(cluster, tmp_path / "server.log", flags)
    yield process
    process.stop()


def start(adapter: Server) -> tuple[float, float]:
    """Start the adapter; return the seconds until Available, from the start and from listening."""
    started = time.monotonic()
    adapter.listen()
    listened = time.monotonic()
    adapter.wait_available()
    now = time.monotonic()
    return round(now - started, 1), round(now - listened, 1)


def get_as(cluster: ControlPlane, user: str, path: str = PODS) -> tuple[int, Any]:
    """Return status and document for `user`, once the aggregator forwards requests."""
    client = cluster.user(user)
    replies: list[Reply] = []

    def forwarded() -> bool:
        replies.append(client.request("GET", path))
        return replies[-1].status != 503

    wait_for(forwarded, f"{path} is forwarded")
    return replies[-1].status, replies[-1].document


def test_the_server_is_available_within_seconds_and_authorizes_users(
    cluster: ControlPlane, adapter: Server
) -> None:
    durations = [start(adapter)]
    status, document = get_as(cluster, "reader")
    wait_for(lambda: "pods: watched, " in adapter.log, "pods are watched")
    watched_status, watched_document = get_as(cluster, "reader")
    status_of_stranger, refusal = get_as(cluster, "stranger")
    stored = cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret.name_of(NAME)}")
    bundles = [
        cluster.admin.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")["spec"]
        for name in adapter.api_services
    ]
    adapter.stop()
    time.sleep(OUTAGE)
    name = adapter.api_services[0]
    wait_for(lambda: not cluster.available(name)[0], "the outage is noticed")
    durations.append(start(adapter))
    status_after_outage, _ = get_as(cluster, "reader")
    adapter.stop()

    log = adapter.log
    values = {item["describedObject"]["name"]: item["value"] for item in document["items"]}
    assert (status, values) == (200, {"bert-0": "22"})
    names = [item["describedObject"]["name"] for item in watched_document["items"]]
    assert (watched_status, names) == (200, ["bert-0"])
    assert (status_of_stranger, refusal["reason"]) == (403, "Forbidden")
    assert refusal["message"].startswith(
        'pods.custom.metrics.k8s.io "*" is forbidden: User "stranger" cannot get resource '
        '"pods/duty_cycle_current" in API group "custom.metrics.k8s.io" in the namespace "default"'
    )
    assert {spec["caBundle"] for spec in bundles} == {stored["data"]["ca.crt"]}
    assert not any(spec.get("insecureSkipTLSVerify") for spec in bundles)
    assert status_after_outage == 200
    print(f"\nseconds until Available (from start, from listening): {durations}; {OUTAGE=} s")
    token = cluster.account_kubeconfig(NAME, NAMESPACE).read_text().split("token")[1]
    assert token.strip('": \n}')[:40] not in log
    assert base64.b64decode(stored["data"]["tls.key"]).decode() not in log


def test_the_cause_of_a_missing_metric_reaches_authorized_users(
    cluster: ControlPlane, adapter: Server
) -> None:
    path = f"{GROUP}/namespaces/default/pods/bert-1/duty_cycle_current"

    adapter.start()
    status, document = get_as(cluster, "reader", path)

    message = "the server could not find the metric duty_cycle_current for pods bert-1"
    assert status == 404
    assert document["message"].startswith(f"{message}: NoObject: ")
    (cause,) = document["details"]["causes"]
    assert cause["reason"] == "NoObject"
    assert (
        f"pods/bert-1/duty_cycle_current in namespace default: NoObject: {cause['message']}"
        in adapter.log
    )
    with pytest.raises(RuntimeError, match="Warning: NoObject: "):
        cluster.kubectl("get", "--raw", path)


def health(adapter: Server) -> str:
    """Return the health checks, as everybody may see them."""
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=INSECURE)
    )
    with opener.open(f"{adapter.url}/readyz?verbose", timeout=60) as response:
        text: str = response.read().decode()
        return text


def test_the_rights_of_the_manifests_suffice_and_missing_ones_are_logged(
    cluster: ControlPlane, adapter: Server
) -> None:
    adapter.start()
    wait_for(lambda: "[+]rights ok: all granted" in health(adapter), "the rights are reviewed")

    assert "the adapter has no permission" not in adapter.log
