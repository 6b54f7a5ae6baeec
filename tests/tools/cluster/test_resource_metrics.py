"""metrics.k8s.io on a real control plane: kubectl top, and an HPA on CPU, in each version.

The series are those of cAdvisor and node-exporter, written for the pods and nodes that exist.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules import presets
from rules.metrics_apis import USAGE
from tools import quantity
from tools.cluster import cluster, server
from tools.cluster.cluster import Cluster
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for
from tools.waiting import repeated

APP = "web"
V1BETA1, V1 = USAGE.apiservices
PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
RULES = (
    # Loads change within the test, and the HPA controller ignores the first window of a pod.
    presets.text("resource-metrics")
    .replace("window: 3m", "window: 1s")
    .replace(" rate(", " irate(")
)
MANIFEST = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {APP}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      containers:
      - {{name: {APP}, image: example.invalid/web, resources: {{requests: {{cpu: 100m}}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {APP}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {APP}}}
  maxReplicas: 5
  metrics:
  - type: Resource
    resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}
"""


class Exporters:
    """Writes the series of cAdvisor and node-exporter."""

    def __init__(self, c: Cluster) -> None:
        self._cluster = c
        self.cores = 0.04
        """CPU that all pods use together, in equal parts."""
        self._seconds: dict[tuple[str, str], float] = {}
        self._last = time.time()

    def write(self) -> None:
        """Write a sample of each series."""
        now = time.time()
        self._cluster.prometheus.write(self._samples(now - self._last), at=now)
        self._last = now

    def _samples(self, passed: float) -> Iterator[tuple[dict[str, str], float]]:
        pods = [
            pod
            for pod in self._cluster.kubelet.objects.pods
            if pod["status"]["phase"] == "Running"
            and pod["metadata"].get("labels", {}).get("app") == APP
        ]
        for pod in pods:
            name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
            target = {"job": "kubelet", "node": node, "namespace": "default", "pod": name}
            container = {**target, "container": APP, "id": f"/{name}/{APP}"}
            used = self._used("pod", name, passed * self.cores / len(pods))
            yield {"__name__": "container_cpu_usage_seconds_total", **container}, used
            yield {"__name__": "container_memory_working_set_bytes", **container}, 64 * 2**20
        for node in self._cluster.fleet.nodes:
            target = {"job": "node-exporter", "node": node}
            used = self._used("node", node, passed * 1.5)
            user = {"__name__": "node_cpu_seconds_total", "cpu": "0", "mode": "user", **target}
            yield user, used
            yield {"__name__": "node_memory_MemTotal_bytes", **target}, 512 * 2**30
            yield {"__name__": "node_memory_MemAvailable_bytes", **target}, 384 * 2**30

    def _used(self, kind: str, name: str, more: float) -> float:
        self._seconds[kind, name] = self._seconds.get((kind, name), 100.0) + more
        return self._seconds[kind, name]


def test_kubectl_top_and_an_hpa_on_cpu_work_once_the_component_is_applied(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        c = stack.enter_context(
            cluster.running(control_plane, tmp_path, generation="alibaba", nodes=2)
        )
        exporters = Exporters(c)
        stack.enter_context(repeated(exporters.write, every=0.5))
        c.apply(MANIFEST)
        check_another_server_is_left_alone(c)
        with (
            server.with_resource_metrics(control_plane, tmp_path) as overlay,
            c.adapter(config=RULES, overlay=overlay),
        ):
            check_both_versions(c)
            with without(c, V1):
                check_top(c)
                check_hpa(c, exporters)
            with without(c, V1BETA1):
                check_v1_alone(c)


def check_another_server_is_left_alone(c: Cluster) -> None:
    """Without the component, the APIService may be that of metrics-server."""
    control_plane = c.control_plane
    control_plane.api_service(V1BETA1, service="metrics-server", namespace="kube-system", port=4443)
    with c.adapter(config=RULES) as adapter:
        found = control_plane.admin.get(f"{PATH}/{V1BETA1}")
        log = adapter.log

    assert found["spec"]["service"]["name"] == "metrics-server"
    assert "caBundle" not in found["spec"]
    assert "annotations" not in found["metadata"]
    assert V1BETA1 not in log


@contextlib.contextmanager
def without(c: Cluster, name: str) -> Iterator[None]:
    """Delete an APIService, and create it again at the end of the context."""
    admin = c.control_plane.admin
    document = admin.get(f"{PATH}/{name}")
    admin.call("DELETE", f"{PATH}/{name}")
    yield
    kept = {key: document[key] for key in ("apiVersion", "kind", "spec")}
    admin.call("POST", PATH, {**kept, "metadata": {"name": name}})
    c.control_plane.wait_available(name)


def check_both_versions(c: Cluster) -> None:
    """Clients that choose by discovery use v1."""
    group = c.control_plane.admin.get(f"/apis/{USAGE.name}")
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    wait_for(lambda: usage(c, "v1beta1"), "the pod has usage")
    assert usage(c, "v1").keys() == usage(c, "v1beta1").keys()
    check_table(c)


def usage(c: Cluster, version: str) -> dict[str, Any]:
    """Return the containers of each pod."""
    path = f"{USAGE.path(version)}/namespaces/default/pods"
    found = c.control_plane.admin.get(path)
    assert found["apiVersion"] == USAGE.group_version(version)
    return {each["metadata"]["name"]: each["containers"] for each in found["items"]}


def check_table(c: Cluster) -> None:
    header, row = c.control_plane.kubectl("get", "pods.metrics.k8s.io").splitlines()
    assert header.split() == ["NAME", "CPU", "MEMORY", "WINDOW"]
    assert row.split()[2:] == ["64Mi", "1s"]


def check_v1_alone(c: Cluster) -> None:
    """`kubectl top` reads v1 from Kubernetes 1.37 on; its HPA controller reads v1beta1 only."""
    assert usage(c, "v1")
    kubectl = json.loads(c.control_plane.kubectl("version", "--client", "--output=json"))
    minor = int(kubectl["clientVersion"]["minor"].rstrip("+"))
    assert bool(top(c, "pods") and top(c, "nodes")) is (minor >= 37)
    message = "the server could not find the requested resource (get pods.metrics.k8s.io)"
    # While the API server notices that the version is gone, it answers otherwise.
    lost = c.watch_hpa(APP, until=lambda hpa: message in hpa.condition("ScalingActive").message)
    assert lost.condition("ScalingActive").status == "False"


def check_top(c: Cluster) -> None:
    wait_for(lambda: len(top(c, "pods")) == 1, "kubectl top pods shows the pod")
    ((name, cpu, memory),) = top(c, "pods")
    assert name.startswith(f"{APP}-")
    assert quantity.parse(cpu) == pytest.approx(0.04, abs=0.002)
    assert memory == "64Mi"
    nodes = top(c, "nodes")
    assert [(node, percent, memory) for node, _, _, memory, percent in nodes] == [
        (node, "25%", "131072Mi") for node in c.fleet.nodes
    ]
    assert [float(quantity.parse(cpu)) for _, cpu, *_ in nodes] == pytest.approx(
        [1.5] * 2, abs=0.01
    )


def top(c: Cluster, kind: str) -> list[list[str]]:
    """Return the rows of `kubectl top`; empty if it fails, as while there are no metrics."""
    try:
        text = c.control_plane.kubectl("top", kind, "--no-headers")
    except RuntimeError:
        return []
    return [line.split() for line in text.splitlines()]


def check_hpa(c: Cluster, exporters: Exporters) -> None:
    """40 % of the request is below the target; 140 % needs three pods."""
    c.watch_hpa(APP, until=lambda hpa: hpa.condition("ScalingActive").status == "True")
    exporters.cores = 0.14
    scaled = c.watch_hpa(APP, until=lambda hpa: hpa.current_replicas == 3)
    assert scaled.condition("ScalingActive").reason == "ValidMetricFound"
    c.watch_hpa(APP, until=lambda hpa: utilization(hpa.document) in (46, 47))


def utilization(hpa: dict[str, Any]) -> int | None:
    """Return the average utilization in the status of an HPA on CPU."""
    metrics = hpa.get("status", {}).get("currentMetrics") or [{}]
    return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")
