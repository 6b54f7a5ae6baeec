"""Answers in every encoding, read by the Go clients of Kubernetes and by the HPA controller."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules.metrics_apis import USAGE
from tools.cluster import server
from tools.cluster.server import Server
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus
from tools.real.prometheus import wait_for

METRIC, EXTERNAL = "gpu_utilization", "queue_length"
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ENCODINGS = (JSON, YAML, PROTOBUF)
CUSTOM = "/apis/custom.metrics.k8s.io"
PODS = "namespaces/default/pods"
EXTERNAL_METRICS = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
RESOURCE_METRICS = "/apis/metrics.k8s.io/{}"
PATHS = (
    "/apis",
    CUSTOM,
    f"{CUSTOM}/v1beta1",
    "/apis/external.metrics.k8s.io/v1beta1",
    *(f"{CUSTOM}/{version}/{PODS}/*/{METRIC}" for version in ("v1beta1", "v1beta2")),
    f"{CUSTOM}/v1beta1/{PODS}/bert-0/{METRIC}?metricLabelSelector=UUID=u,gpu!=1,model",
    f"{CUSTOM}/v1beta2/{PODS}/bert-0/{METRIC}?metricLabelSelector=UUID+in+(u,v)",
    f"{CUSTOM}/v1beta2/{PODS}/*/{METRIC}?labelSelector=app=none",
    f"{CUSTOM}/v1beta2/{PODS}/bert-0/nope",
    f"{CUSTOM}/v1beta2/{PODS}/bert-0/{METRIC}?labelSelector=a===b",
    f"{EXTERNAL_METRICS}/{EXTERNAL}",
    f"{EXTERNAL_METRICS}/nope",
    f"{EXTERNAL_METRICS}/{EXTERNAL}?watch=1",
    f"{EXTERNAL_METRICS}/{EXTERNAL}?resourceVersionMatch=Exact",
    *(
        RESOURCE_METRICS.format(version) + each
        for version in USAGE.versions
        for each in (
            *("", "/nodes", "/nodes/none", "/pods", f"/{PODS}"),
            *(f"/{PODS}/bert-0", f"/{PODS}/none", f"/{PODS}?watch=1"),
        )
    ),
)
AGGREGATED = ";g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"

POD = "/api/v1/namespaces/default/pods/bert-1"

RULES = f"""
rules:
- seriesQuery: gpu_utilization
  resources: {{template: <<.Resource>>}}
  metricsQuery: max(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: {EXTERNAL}
  resources: {{namespaced: false}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (queue, y, yes2, yes10)
resourceRules:
  window: 90s
  cpu: &usage
    containerQuery: sum(used_cores{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    nodeQuery: sum(used_cores{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    resources: {{template: <<.Resource>>}}
    containerLabel: container
  memory:
    <<: *usage
    containerQuery: sum(used_bytes{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
SERIES = f"""\
{METRIC}{{UUID="u",gpu="0",model="a",namespace="default",pod="bert-0"}} 22.5
{METRIC}{{UUID="v",gpu="1",model="b",namespace="default",pod="bert-1"}} 1500
{EXTERNAL}{{queue="no",y="n",yes2="2026-11-20",yes10="a: <b>"}} 1234567890
{EXTERNAL}{{queue="été & 😀",yes2="0x10",yes10=""}} 3
used_cores{{container="main",namespace="default",pod="bert-0"}} 0.25
used_bytes{{container="main",namespace="default",pod="bert-0"}} 1572864
used_bytes{{container="side",namespace="default",pod="bert-0"}} 1500.5
"""
WORKLOAD = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: bert, namespace: default}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: bert}}
  template:
    metadata: {labels: {app: bert}}
    spec: {containers: [{name: main, image: none}]}
---
"""
HPA = f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: bert, namespace: default}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: StatefulSet, name: bert}}
  minReplicas: 2
  maxReplicas: 3
  metrics:
  - type: Pods
    pods: {{metric: {{name: {METRIC}}}, target: {{type: AverageValue, averageValue: 1k}}}}
  - type: External
    external: {{metric: {{name: {EXTERNAL}}}, target: {{type: AverageValue, averageValue: 1G}}}}
"""


@pytest.fixture(scope="module")
def adapter(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The program, with a metric of two pods and an external metric with two series."""
    folder = tmp_path_factory.mktemp("server")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with (
        prometheus.run(folder) as scraped,
        server.installed(control_plane),
        server.with_resource_metrics(control_plane, folder) as overlay,
    ):
        for later in range(0, 900, 120):
            scraped.put(*SERIES.splitlines(), at=time.time() + later)
        flags = (f"--prometheus-url={scraped.url}", f"--config={rules}", "-v=6")
        process = Server(control_plane, folder / "server.log", flags, overlay=overlay)
        control_plane.kubectl("apply", "-f", "-", text=WORKLOAD)
        try:
            wait_for(lambda: control_plane.admin.request("GET", POD).status == 200, "pods exist")
            process.start()
            # Not earlier: the controller would be answered before the first relist.
            control_plane.kubectl("apply", "-f", "-", text=HPA)
            yield process
        finally:
            delete = ("delete", "--wait=false", "--ignore-not-found", "-f", "-")
            control_plane.kubectl(*delete, text=WORKLOAD + HPA)
            process.stop()


def run(reader: Path, *arguments: str | Path) -> list[str]:
    done = subprocess.run([reader, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_go_clients_read_the_same_values_in_protobuf_and_json(adapter, control_plane, reader):
    values = {}
    for encoding in (JSON, PROTOBUF):
        wanted = ("default", METRIC, EXTERNAL)
        lines = run(reader, "values", control_plane.kubeconfig, encoding, *wanted)
        values[encoding] = [json.loads(line) for line in lines]
        assert {each.pop("received") for each in values[encoding]} == {encoding}
        for each in values[encoding]:
            assert each.pop("time") > 0

    found = {(each["group"], each["object"]): each["value"] for each in values[PROTOBUF]}
    assert values[PROTOBUF] == values[JSON]
    assert found["custom.metrics.k8s.io/v1beta1", "bert-0"] == "22500m"
    assert found["custom.metrics.k8s.io/v1beta2", "bert-1"] == "1500"
    assert sorted(value for (group, _), value in found.items() if "external" in group) == [
        "1234567890",
        "3",
    ]
    used = [
        (each["object"], each["metric"], each["value"])
        for each in values[PROTOBUF]
        if each["group"] == "metrics.k8s.io/v1beta1"
    ]
    assert used == [
        ("bert-0/main", "cpu", "250m"),
        ("bert-0/main", "memory", "1536Ki"),
        ("bert-0/side", "cpu", "0"),
        ("bert-0/side", "memory", "1500500m"),
    ]


@pytest.mark.parametrize(
    ("accept", "paths"),
    [
        *((encoding, PATHS) for encoding in ENCODINGS),
        *((e + AGGREGATED.format(v), ("/apis",)) for e in ENCODINGS for v in ("v2", "v2beta1")),
    ],
)
def test_answers_are_encoded_as_by_kubernetes(adapter, control_plane, reader, accept, paths):
    lines = run(reader, "verify", control_plane.kubeconfig, adapter.url, accept, *paths)

    parts = [line.split(" ", 3) for line in lines]
    assert [(path, received, result) for path, _, received, result in parts] == [
        (path, accept, "same") for path in paths
    ]
    assert {status for _, status, *_ in parts} <= {"200", "400", "404", "405", "422"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("encoding", "kind", "path"),
    [
        *((each, "Table", "pods") for each in (JSON, YAML)),
        *((each, "PartialObjectMetadataList", "pods") for each in ENCODINGS),
        *((each, "PartialObjectMetadata", f"{PODS}/bert-0") for each in ENCODINGS),
    ],
)
def test_other_forms_of_resource_metrics_are_encoded_as_by_kubernetes(
    adapter, control_plane, reader, encoding, kind, path, version
):
    accept = f"{encoding};as={kind};v={version};g=meta.k8s.io"
    target = f"{RESOURCE_METRICS.format('v1beta1')}/{path}"

    (line,) = run(reader, "verify", control_plane.kubeconfig, adapter.url, accept, target)

    assert line == f"{target} 200 {encoding} same"


def test_the_hpa_controller_is_answered_in_protobuf(adapter, control_plane):
    controller = r"from kube-controller-manager/.*horizontal-pod-autoscaler.*: (\d+ \S+)"
    requests = rf"GET (/apis/(?:custom|external)\S*/{{}}\S*) {controller}"
    for metric in (METRIC, EXTERNAL):
        pattern = re.compile(requests.format(metric))
        wait_for(lambda each=pattern: each.search(adapter.log), f"the controller requests {metric}")
        answers = {answer for _, answer in pattern.findall(adapter.log)}
        assert answers == {f"200 {PROTOBUF}"}
