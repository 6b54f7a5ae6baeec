"""The server itself behind a real aggregator: with the rights of the manifests and no others."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.tls import serving_certificate
from tests.cluster import server
from tests.cluster.server import NAME, NAMESPACE, Server
from tests.control_plane.plane import ControlPlane
from tests.real import prometheus
from tests.real.prometheus import Prometheus, wait_for

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
ASKED = f"{GROUP}/namespaces/default/pods/%2A/duty_cycle_current?labelSelector=app%3Dbert"
OUTAGE = float(os.environ.get("OUTAGE", "0"))
"""Seconds without a server, at least; the aggregator needs up to 30 s to see that it is gone."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as found:
        for later in range(0, 900, 120):
            found.put(
                'DCGM_FI_DEV_GPU_UTIL{UUID="u",namespace="default",pod="bert-0"} 22',
                at=time.time() + later,
            )
        yield found


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The manifests, with this machine as the Service, a pod, and one who may read its metric."""
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
    found = Server(cluster, tmp_path / "server.log", flags)
    yield found
    found.stop()


def start(adapter: Server) -> tuple[float, float]:
    """How long it was Available after its start, and after it listened."""
    began = time.monotonic()
    adapter.listen()
    listened = time.monotonic()
    adapter.wait_available()
    now = time.monotonic()
    return round(now - began, 1), round(now - listened, 1)


def answered(cluster: ControlPlane, user: str, path: str = ASKED) -> tuple[int, Any]:
    """What the aggregator answers to a user, once it passes requests on."""
    client = cluster.user(user)
    deadline = time.monotonic() + 20
    while True:
        reply = client.request("GET", path)
        if reply.status != 503 or time.monotonic() > deadline:
            return reply.status, reply.document
        time.sleep(0.2)


def test_server_is_available_at_once_also_after_an_outage_and_lets_in_who_may(
    cluster: ControlPlane, adapter: Server
) -> None:
    took = [start(adapter)]
    status, document = answered(cluster, "reader")
    refused, refusal = answered(cluster, "stranger")
    secret = cluster.admin.get(
        f"/api/v1/namespaces/{NAMESPACE}/secrets/{serving_certificate.secret_name(NAME)}"
    )
    bundles = [
        cluster.admin.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")["spec"]
        for name in adapter.api_services
    ]
    adapter.stop()
    time.sleep(OUTAGE)
    some = adapter.api_services[0]
    wait_for(lambda: not cluster.available(some)[0], "the loss is seen", seconds=60)
    took.append(start(adapter))
    again, _ = answered(cluster, "reader")
    adapter.stop()

    said = adapter.log
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


def test_who_may_have_a_metric_is_told_through_the_aggregator_why_it_is_missing(
    cluster: ControlPlane, adapter: Server
) -> None:
    path = f"{GROUP}/namespaces/default/pods/bert-1/duty_cycle_current"

    adapter.start()
    status, document = answered(cluster, "reader", path)

    message = "the server could not find the metric duty_cycle_current for pods bert-1"
    assert (status, document["message"]) == (404, message)
    (cause,) = document["details"]["causes"]
    assert cause["reason"] == "NoSample"
    assert (
        f"pods/bert-1/duty_cycle_current in namespace default: NoSample: {cause['message']}"
        in adapter.log
    )
