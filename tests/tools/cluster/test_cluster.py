from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tools.cluster import cluster
from tools.cluster.cluster import Cluster
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

APP = "sharing"
DUTY = "nvidia_gpu_duty_cycle"
DEPLOYMENT = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {APP}, namespace: default}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      containers:
      - {{name: serving, image: example.invalid/it, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
"""
RULES = f"""
groups:
- name: gpus
  rules:
  - record: busy_gpus
    expr: count({DUTY} > 0)
"""


@pytest.fixture(scope="module")
def c(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster.running(
        control_plane, folder, generation="alibaba", nodes=2, gpus=2, rules_yaml=RULES
    ) as running:
        running.apply(DEPLOYMENT)
        control_plane.kubectl(*wait_ready(2))
        running.wait_scraped()
        yield running
    assert control_plane.admin.get("/api/v1/nodes")["items"] == []
    assert control_plane.admin.get("/api/v1/pods")["items"] == []


def wait_ready(replicas: int) -> tuple[str, ...]:
    condition = f"--for=jsonpath={{.status.readyReplicas}}={replicas}"
    return ("wait", f"deployment/{APP}", condition, "--timeout=20s")


def samples(c: Cluster, query: str) -> list[tuple[dict[str, str], float]]:
    return [(each["metric"], float(each["value"][1])) for each in c.prometheus.query(query)]


def duty_by_pod(c: Cluster) -> dict[str, float]:
    return {labels["pod_name"]: value for labels, value in samples(c, f'{DUTY}{{pod_name!=""}}')}


def pod_duties(c: Cluster) -> list[float]:
    return sorted(duty_by_pod(c).values())


def pod_names(c: Cluster) -> set[str]:
    return {pod.name for pod in c.fleet.pods if pod.app == APP}


def pod_manifest(name: str, *, gpus: int) -> str:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {"name": "it", "image": "example.invalid/it", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def get_pod(c: Cluster, name: str) -> Any:
    return c.control_plane.admin.get(f"/api/v1/namespaces/default/pods/{name}")


def wait_listed(c: Cluster, name: str) -> None:
    """Wait until the simulated kubelet has listed a pod, and so has tried to bind it."""
    wait_for(
        lambda: name in {each["metadata"]["name"] for each in c.kubelet.objects.pods},
        f"the kubelet has listed pod {name}",
    )


def test_ready_pods_share_the_load(c: Cluster) -> None:
    assert len(pod_names(c)) == 2
    c.fleet.set_load(APP, 90)
    wait_for(lambda: pod_duties(c) == [45, 45], "both pods read 45 %")
    assert set(duty_by_pod(c)) == pod_names(c)
    assert [value for labels, value in samples(c, DUTY) if not labels.get("pod_name")] == [0, 0]
    wait_for(
        lambda: [value for _, value in samples(c, "busy_gpus")] == [2],
        "the recording rule counts two busy GPUs",
    )

    c.control_plane.kubectl("scale", f"deployment/{APP}", "--replicas=1")

    wait_for(lambda: pod_duties(c) == [90], "the remaining pod reads 90 %")
    c.fleet.set_load(APP, 250)
    wait_for(lambda: pod_duties(c) == [100], "the pod reads at most 100 %")
    c.fleet.set_load(APP, 0)
    c.control_plane.kubectl("scale", f"deployment/{APP}", "--replicas=2")
    wait_for(lambda: pod_duties(c) == [0, 0], "both pods read 0 %")


def test_kube_state_metrics_has_pods_and_their_owners(c: Cluster) -> None:
    def label_values(query: str) -> set[tuple[str, ...]]:
        """Query `METRIC by LABEL,LABEL`, and return the labels of the samples other than 0."""
        metric, _, names = query.partition(" by ")
        return {
            tuple(labels.get(name, "") for name in names.split(","))
            for labels, value in samples(c, metric)
            if value
        }

    infos = {(each.name, each.node, "ReplicaSet") for each in c.fleet.pods}
    wait_for(
        lambda: (
            label_values(f'kube_pod_info{{pod=~"{APP}-.+"}} by pod,node,created_by_kind') == infos
        ),
        "kube_pod_info has all pods",
    )
    pods = {(name,) for name in pod_names(c)}
    assert label_values(f'kube_pod_labels{{label_app="{APP}"}} by pod') == pods
    running = 'kube_pod_status_phase{phase="Running",namespace="default"}'
    assert label_values(f"{running} by pod") == pods
    owner = f'kube_replicaset_owner{{owner_kind="Deployment",owner_name="{APP}"}}'
    assert len(label_values(f"{owner} by replicaset")) == 1
    deployment = f'{{namespace="default",deployment="{APP}"}}'
    assert samples(c, f"kube_deployment_spec_replicas{deployment}")[0][1] == 2
    wait_for(
        lambda: (
            [v for _, v in samples(c, f"kube_deployment_status_replicas_ready{deployment}")] == [2]
        ),
        "two replicas are ready",
    )


def test_pod_without_gpus_runs_and_pod_with_too_many_stays_pending(c: Cluster) -> None:
    c.apply(pod_manifest("no-gpu", gpus=0) + pod_manifest("greedy", gpus=3))
    c.control_plane.kubectl("wait", "pod/no-gpu", "--for=condition=Ready", "--timeout=20s")
    wait_listed(c, "greedy")

    assert "nodeName" not in get_pod(c, "greedy")["spec"]
    assert get_pod(c, "greedy")["status"]["phase"] == "Pending"
    assert "no-gpu" not in {each.name for each in c.fleet.pods}


def test_pending_pod_gets_gpus_when_another_pod_ends(c: Cluster) -> None:
    c.apply(pod_manifest("first", gpus=1) + pod_manifest("second", gpus=1))
    c.control_plane.kubectl("wait", "pod/first", "--for=condition=Ready", "--timeout=20s")
    c.control_plane.kubectl("wait", "pod/second", "--for=condition=Ready", "--timeout=20s")
    c.apply(pod_manifest("third", gpus=1))
    wait_listed(c, "third")
    assert get_pod(c, "third")["status"]["phase"] == "Pending"

    c.control_plane.kubectl("delete", "pod", "first", "--timeout=10s")

    c.control_plane.kubectl("wait", "pod/third", "--for=condition=Ready", "--timeout=20s")
    assert sum(len(gpus) for gpus in c.fleet.pods.values()) == 4
    c.control_plane.kubectl("delete", "pod", "second", "third", "--timeout=10s")


def test_timeout_of_watch_hpa_has_the_table_and_the_error(c: Cluster) -> None:
    with pytest.raises(
        TimeoutError, match=r'HPA none did not .* within 0.1 s; its states:\nNAME.*\n.*:\n.*"none"'
    ):
        c.watch_hpa("none", until=lambda _: True, seconds=0.1)
