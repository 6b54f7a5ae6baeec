from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import cluster, hpa
from tests.cluster.cluster import Cluster
from tests.cluster.hpa import HEADER, Table
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for

APP = "sharing"
DUTY = "nvidia_gpu_duty_cycle"
ASKED = (
    "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/%2A/duty_cycle_current"
    f"?labelSelector=app%3D{APP}"
)
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
HPA = f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {APP}, namespace: default}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {APP}}}
  maxReplicas: 2
  metrics:
  - type: Pods
    pods:
      metric: {{name: duty_cycle_current}}
      target: {{type: AverageValue, averageValue: 40}}
"""
MAXPODS = HEADER.index("MAXPODS")
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
        control_plane.kubectl(*ready(2))
        running.wait_scraped()
        yield running
    assert control_plane.admin.get("/api/v1/nodes")["items"] == []
    assert control_plane.admin.get("/api/v1/pods")["items"] == []


def ready(replicas: int) -> tuple[str, ...]:
    told = f"--for=jsonpath={{.status.readyReplicas}}={replicas}"
    return ("wait", f"deployment/{APP}", told, "--timeout=20s")


def samples(c: Cluster, query: str) -> list[tuple[dict[str, str], float]]:
    found = c.prometheus.get("/api/v1/query", query=query)["result"]
    return [(each["metric"], float(each["value"][1])) for each in found]


def by_pod(c: Cluster) -> dict[str, float]:
    found = samples(c, f'{DUTY}{{pod_name!=""}}')
    return {labels["pod_name"]: value for labels, value in found}


def shares(c: Cluster) -> list[float]:
    return sorted(by_pod(c).values())


def names(c: Cluster) -> set[str]:
    return {pod.name for pod in c.fleet.pods if pod.app == APP}


def pod(name: str, *, gpus: int) -> str:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {"name": "it", "image": "example.invalid/it", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def seen(c: Cluster, name: str) -> Any:
    return c.plane.admin.get(f"/api/v1/namespaces/default/pods/{name}")


def considered(c: Cluster, name: str) -> None:
    """Wait until the kubelet has tried to bind a pod."""
    wait_for(lambda: name in {each["metadata"]["name"] for each in c.kubelet.view.pods}, name)


def test_nodes_tell_their_gpus_and_are_ready(c: Cluster) -> None:
    found = c.plane.kubectl("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=0")
    nodes = c.plane.admin.get("/api/v1/nodes")["items"]

    assert found.count("condition met") == 2
    assert [each["status"]["allocatable"]["nvidia.com/gpu"] for each in nodes] == ["2", "2"]


def test_load_is_shared_by_the_pods_that_are_ready(c: Cluster) -> None:
    assert len(names(c)) == 2
    c.fleet.offer(APP, 90)
    wait_for(lambda: shares(c) == [45, 45], "both have their half")
    assert set(by_pod(c)) == names(c)
    assert [value for labels, value in samples(c, DUTY) if not labels.get("pod_name")] == [0, 0]
    wait_for(lambda: [value for _, value in samples(c, "busy_gpus")] == [2], "a rule sees them")

    c.plane.kubectl("scale", f"deployment/{APP}", "--replicas=1")

    wait_for(lambda: shares(c) == [90], "one has it all")
    c.fleet.offer(APP, 250)
    wait_for(lambda: shares(c) == [100], "no GPU does more than it can")
    c.fleet.offer(APP, 0)
    c.plane.kubectl("scale", f"deployment/{APP}", "--replicas=2")
    wait_for(lambda: shares(c) == [0, 0], "both rest")


def test_kube_state_metrics_tells_of_pods_and_their_owners(c: Cluster) -> None:
    def told(query: str) -> set[tuple[str, ...]]:
        metric, _, labels = query.partition(" by ")
        return {
            tuple(found.get(name, "") for name in labels.split(","))
            for found, value in samples(c, metric)
            if value
        }

    nodes = {(each.name, each.node, "ReplicaSet") for each in c.fleet.pods}
    wait_for(
        lambda: told(f'kube_pod_info{{pod=~"{APP}-.+"}} by pod,node,created_by_kind') == nodes,
        "the pods are told",
    )
    pods = {(name,) for name in names(c)}
    assert told(f'kube_pod_labels{{label_app="{APP}"}} by pod') == pods
    running = 'kube_pod_status_phase{phase="Running",namespace="default"}'
    assert told(f"{running} by pod") == pods
    owned = f'kube_replicaset_owner{{owner_kind="Deployment",owner_name="{APP}"}}'
    assert len(told(f"{owned} by replicaset")) == 1
    of = f'{{namespace="default",deployment="{APP}"}}'
    assert samples(c, f"kube_deployment_spec_replicas{of}")[0][1] == 2
    wait_for(
        lambda: [v for _, v in samples(c, f"kube_deployment_status_replicas_ready{of}")] == [2],
        "they are ready",
    )


def test_pod_without_gpus_runs_anywhere_and_one_that_asks_for_too_many_nowhere(c: Cluster) -> None:
    c.apply(pod("modest", gpus=0) + pod("greedy", gpus=3))
    c.plane.kubectl("wait", "pod/modest", "--for=condition=Ready", "--timeout=20s")
    considered(c, "greedy")

    assert "nodeName" not in seen(c, "greedy")["spec"]
    assert seen(c, "greedy")["status"]["phase"] == "Pending"
    assert "modest" not in {each.name for each in c.fleet.pods}


def test_pod_gets_its_gpus_once_another_one_ends(c: Cluster) -> None:
    c.apply(pod("first", gpus=1) + pod("second", gpus=1))
    c.plane.kubectl("wait", "pod/first", "--for=condition=Ready", "--timeout=20s")
    c.plane.kubectl("wait", "pod/second", "--for=condition=Ready", "--timeout=20s")
    c.apply(pod("third", gpus=1))
    considered(c, "third")
    assert seen(c, "third")["status"]["phase"] == "Pending"

    c.plane.kubectl("delete", "pod", "first", "--timeout=10s")

    c.plane.kubectl("wait", "pod/third", "--for=condition=Ready", "--timeout=20s")
    assert sum(len(gpus) for gpus in c.fleet.pods.values()) == 4
    c.plane.kubectl("delete", "pod", "second", "third", "--timeout=10s")


def test_pods_are_served_again_after_an_outage(c: Cluster) -> None:
    c.plane.apiserver.kill()
    try:
        wait_for(lambda: c.kubelet.problem, "the outage is noticed")
        assert names(c) <= by_pod(c).keys()
    finally:
        c.plane.apiserver.start()
    wait_for(lambda: c.kubelet.problem is None, "it is over")

    c.apply(pod("late", gpus=1))

    c.plane.kubectl("wait", "pod/late", "--for=condition=Ready", "--timeout=20s")


def test_adapter_answers_with_what_the_gpus_read_and_the_autoscaler_believes_it(
    c: Cluster,
) -> None:
    table = Table()
    c.fleet.offer(APP, 100)
    c.apply(HPA)
    with c.adapter("--preset=gpu-nvidia-alibaba", "--metrics-relist-interval=2s") as adapter:
        items = json.loads(c.plane.kubectl("get", "--raw", ASKED))["items"]
        found = c.watch_hpa(APP, until=lambda hpa: hpa.metrics == ["50"], table=table)
        assert "serving on" in adapter.log
    c.plane.kubectl("delete", "hpa", APP)

    assert {each["describedObject"]["name"] for each in items} == names(c)
    assert {each["value"] for each in items} == {"50"}
    assert found.condition("ScalingActive").reason == "ValidMetricFound"
    assert found.row().split()[:3] == [APP, f"Deployment/{APP}", "50/40"]
    assert str(table).splitlines()[0].split()[0] == "NAME"


def test_no_state_of_an_hpa_is_left_out_however_short(c: Cluster) -> None:
    c.apply(HPA.replace(f"{{name: {APP}, namespace", "{name: brief, namespace"))
    with contextlib.closing(hpa.states(c.plane.admin, "brief")) as states:
        assert next(states).cells[MAXPODS] == "2"
        for most in (3, 4, 5):
            patch = json.dumps({"spec": {"maxReplicas": most}})
            c.plane.kubectl("patch", "hpa", "brief", "--patch", patch)
        seen = [state.cells[MAXPODS] for state in itertools.takewhile(below_five, states)]
        c.plane.kubectl("delete", "hpa", "brief")

        assert list(dict.fromkeys(["2", *seen])) == ["2", "3", "4"]
        assert {state.cells[MAXPODS] for state in states} <= {"5"}


def below_five(found: hpa.Hpa) -> bool:
    return found.cells[MAXPODS] != "5"


def test_hpa_that_does_not_come_to_pass_is_told(c: Cluster) -> None:
    with pytest.raises(
        TimeoutError, match=r'not within 0.1 s; none has been\nNAME.*\nand now\n.*"none"'
    ):
        c.watch_hpa("none", until=lambda _: True, seconds=0.1)
