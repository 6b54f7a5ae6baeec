"""One GPU a node, known by its node alone: the mean over a Deployment's nodes, which was left open.

The story of an earlier state of ashrafgt/k8s-gpu-hpa, whose exporter could not tell pods on GKE.
Its values file had the first rule here, for the nodes; the second, for which it had "TODO", is the
one that manifests/examples/cuda-test-by-node.yaml recommends. (It also announced a rule of type
`resource`. What resource metrics there are is Kubernetes' to say: CPU and memory, and no GPU.)
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from adapter.demo import labels
from adapter.demo.generations import GENERATIONS
from rules import quantity
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.cuda_test import BUSY, CUDA_TEST, DEPLOYMENT_YAML
from tests.walkthroughs.story import STEP_TIMEOUT, Story, advised, example, tell

NO_PODS = dataclasses.replace(
    GENERATIONS["compat"], labels=lambda gpu: labels.dcgm2(dataclasses.replace(gpu, pod=None))
)
"""Whoever has a GPU, its pod labels are empty, as if nobody had it."""

BY_NODE = "cuda-test-by-node"
RULES = """\
rules:
- seriesQuery: '{__name__=~"^dcgm_gpu_utilization$"}'
  resources:
    template: <<.Resource>>
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""

SHARED_PODS = (
    ("ReplicaSet", "trainer-7d9c6b5f4", "2p8wq", "shared-a", "Running"),
    ("ReplicaSet", "trainer-7d9c6b5f4", "x6k4d", "shared-a", "Running"),
    ("ReplicaSet", "trainer-58f7d6c9b", "m4z7s", "shared-b", "Running"),
    ("ReplicaSet", "trainer-58f7d6c9b", "evict", "shared-c", "Failed"),
    ("StatefulSet", "trainer", "0", "shared-c", "Running"),
)
"""Pods of a namespace `shared`: what made each, by what name, their own, their nodes and phases."""

SHARED_NODES = {"shared-a": 90, "shared-b": 30, "shared-c": 0}
"""What the GPU of each of their nodes does."""

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
NODES = f"{GROUP}/nodes/*/dcgm_gpu_utilization"
AVERAGE = GROUP + "/namespaces/{}/deployments.apps/{}/node_gpu_utilization_avg"


def test_nodes(control_plane: ControlPlane, tmp_path: Path) -> None:
    text = yaml.safe_dump(
        {"rules": yaml.safe_load(RULES)["rules"] + advised(BY_NODE)["rules"]}, sort_keys=False
    )
    with cluster.running(
        control_plane, tmp_path, generation=NO_PODS, nodes=4, gpus=1, start_seconds=1
    ) as c:
        story = Story(c, hpa=BY_NODE)
        assert checked(text, tmp_path) == "0 errors, 0 warnings"
        story.apply("cuda-test-deployment.yaml", DEPLOYMENT_YAML)
        story.ready(CUDA_TEST, 1)
        wait_for(lambda: scraped(c, "kube_replicaset_owner"), "it is scraped", seconds=STEP_TIMEOUT)
        share_nodes(c)
        with c.adapter(config=text):
            knows_every_node(story)
            counts_each_node_once(story)
            story.apply("cuda-test-hpa.yaml", example(BY_NODE))
            story.settles("0/3", replicas=1)

            tell(f"$ {BUSY}")
            c.fleet.offer(CUDA_TEST, 12)
            story.shows("12/3", replicas=(1, 2))
            hpa = story.settles("6/3", replicas=2)
            # These would be four pods, of which there may be two.
            assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
            hosts = {pod.node for pod in c.fleet.pods}
            wait_for(lambda: busy(c) == hosts, "both nodes are scraped", seconds=STEP_TIMEOUT)
            assert answered(story, NODES) == {n: 6 * (n in hosts) for n in c.fleet.nodes}

            tell("$ kill $(jobs -p)")
            c.fleet.offer(CUDA_TEST, 0)
            story.shows("0/3", replicas=2)
            hpa = story.settles("0/3", replicas=1)
            assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def knows_every_node(story: Story) -> None:
    assert answered(story, NODES) == dict.fromkeys(story.cluster.fleet.nodes, 0)


def counts_each_node_once(story: Story) -> None:
    """Nor does a node count that only has pods which ended, or those of another kind of owner."""
    tell("Of a namespace `shared`, Prometheus has:")
    for kind, owner, suffix, node, phase in SHARED_PODS:
        tell(f"  {f'{owner}-{suffix}':<26}{kind:<13}{phase:<9}{node}  {SHARED_NODES[node]} %")
    assert answered(story, AVERAGE.format("shared", "trainer")) == {"trainer": 60}
    assert answered(story, AVERAGE.format("default", CUDA_TEST)) == {CUDA_TEST: 0}


def checked(text: str, folder: Path) -> str:
    """What `gpu-metrics-adapter check` says of these rules."""
    file = folder / "rules.yaml"
    file.write_text(text)
    tell("$ gpu-metrics-adapter check rules.yaml")
    command = [sys.executable, "-m", "adapter", "check", str(file)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()
    tell(found)
    return found


def share_nodes(c: Cluster) -> None:
    """Namespace `shared`, as Prometheus would have it."""
    lines = [f'dcgm_gpu_utilization{{node="{n}"}} {value}' for n, value in SHARED_NODES.items()]
    for kind, owner, suffix, node, phase in SHARED_PODS:
        pod = f'namespace="shared",pod="{owner}-{suffix}"'
        made = f'created_by_kind="{kind}",created_by_name="{owner}"'
        lines.append(f'kube_pod_info{{{pod},node="{node}",{made}}} 1')
        lines.append(f'kube_pod_status_phase{{{pod},phase="{phase}"}} 1')
        if kind == "ReplicaSet":
            owned = 'owner_kind="Deployment",owner_name="trainer"'
            owners = f'{{namespace="shared",replicaset="{owner}",{owned}}}'
            lines.append(f"kube_replicaset_owner{owners} 1")
    c.prometheus.put(*dict.fromkeys(lines))


def answered(story: Story, path: str) -> dict[str, float]:
    """The value of each object, as the adapter answers."""
    found = json.loads(story.kubectl("get", "--raw", path))
    values = {
        each["describedObject"]["name"]: float(quantity.parse(each["value"]))
        for each in found["items"]
    }
    tell(", ".join(f"{name} {value:g}" for name, value in values.items()))
    return values


def busy(c: Cluster) -> set[str]:
    """The nodes whose GPU has something to do."""
    found = scraped(c, 'dcgm_gpu_utilization{UUID!=""} > 0')
    return {each["metric"]["node"] for each in found}


def scraped(c: Cluster, query: str) -> list[Any]:
    """The series, as Prometheus has them."""
    found: list[Any] = c.prometheus.get("/api/v1/query", query=query)["result"]
    return found
