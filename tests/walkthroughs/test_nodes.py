"""GPU series with a node label only: the mean over the nodes of a Deployment, as an Object metric.

Follows an early version of ashrafgt/k8s-gpu-hpa, whose exporter did not know pods on GKE. Its
values file contains the first rule below, which is for nodes. For the second it has a "TODO"; that
rule is the one in manifests/examples/cuda-test-by-node.yaml. The file also plans a rule of type
`resource`, which cannot exist: resource metrics are CPU and memory only.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import yaml

from adapter.cli.demo.generations import GENERATIONS
from tests.walkthroughs.cuda_test import CUDA_TEST, DEPLOYMENT_YAML, LOAD_COMMAND
from tools.cluster import cluster
from tools.cluster.cluster import Cluster
from tools.cluster.walkthrough import (
    STEP_TIMEOUT,
    Walkthrough,
    echo,
    example,
    recommended_config,
)
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

NO_PODS = dataclasses.replace(
    GENERATIONS["compat"],
    gpu_labels={**GENERATIONS["compat"].gpu_labels, "namespace": "", "pod": "", "container": ""},
    pod_labels=(),
)
"""Exporter whose pod labels are always empty."""

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
"""Pods of namespace `shared`: kind and name of the owner, suffix of the pod, node and phase."""

SHARED_NODES = {"shared-a": 90, "shared-b": 30, "shared-c": 0}
"""Utilisation in per cent of the GPU of each of these nodes."""

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
NODES = f"{GROUP}/nodes/*/dcgm_gpu_utilization"
AVERAGE = GROUP + "/namespaces/{}/deployments.apps/{}/node_gpu_utilization_avg"


def test_nodes(control_plane: ControlPlane, tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES)["rules"] + recommended_config(BY_NODE)["rules"]
    text = yaml.safe_dump({"rules": rules}, sort_keys=False)
    with cluster.running(
        control_plane, tmp_path, generation=NO_PODS, nodes=4, gpus=1, start_seconds=1
    ) as c:
        walkthrough = Walkthrough(c, hpa=BY_NODE)
        assert check_rules(text, tmp_path) == "0 errors, 0 warnings"
        walkthrough.apply("cuda-test-deployment.yaml", DEPLOYMENT_YAML)
        walkthrough.wait_ready(CUDA_TEST, 1)
        wait_for(
            lambda: c.prometheus.query("kube_replicaset_owner"),
            "kube-state-metrics is scraped",
            seconds=STEP_TIMEOUT,
        )
        write_shared_namespace(c)
        with c.adapter(config=text):
            check_node_metric(walkthrough)
            check_each_node_counts_once(walkthrough)
            walkthrough.apply("cuda-test-hpa.yaml", example(BY_NODE))
            walkthrough.wait_until_settled("0/3", replicas=1)

            echo(f"$ {LOAD_COMMAND}")
            c.fleet.set_load(CUDA_TEST, 12)
            walkthrough.wait_for_row("12/3", replicas=(1, 2))
            hpa = walkthrough.wait_until_settled("6/3", replicas=2)
            # The metric requires four replicas; maxReplicas is two.
            assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
            used_nodes = {pod.node for pod in c.fleet.pods}
            wait_for(
                lambda: busy_nodes(c) == used_nodes, "both nodes are scraped", seconds=STEP_TIMEOUT
            )
            walkthrough.wait_for_values(
                NODES, {node: 6 * (node in used_nodes) for node in c.fleet.nodes}
            )

            node = min(used_nodes)
            value = f"has the value 6 for {node}"
            code, _ = walkthrough.explain(f"nodes/{node}", "dcgm_gpu_utilization", until=value)
            assert code == 0

            walkthrough.check_scale_in(CUDA_TEST, "0/3", replicas=2)


def check_node_metric(walkthrough: Walkthrough) -> None:
    walkthrough.wait_for_values(NODES, dict.fromkeys(walkthrough.cluster.fleet.nodes, 0))


def check_each_node_counts_once(walkthrough: Walkthrough) -> None:
    """Check that several pods on a node count once, and other owners and ended pods not at all."""
    echo("Prometheus has these pods of namespace `shared` (owner kind, phase, node, utilisation):")
    for kind, owner, suffix, node, phase in SHARED_PODS:
        echo(f"  {f'{owner}-{suffix}':<26}{kind:<13}{phase:<9}{node}  {SHARED_NODES[node]} %")
    walkthrough.wait_for_values(AVERAGE.format("shared", "trainer"), {"trainer": 60})
    walkthrough.wait_for_values(AVERAGE.format("default", CUDA_TEST), {CUDA_TEST: 0})


def check_rules(text: str, folder: Path) -> str:
    """Run `gpu-metrics-adapter check` on rules and return its output."""
    file = folder / "rules.yaml"
    file.write_text(text)
    echo("$ gpu-metrics-adapter check rules.yaml")
    command = [sys.executable, "-m", "adapter", "check", str(file)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()
    echo(output)
    return output


def write_shared_namespace(c: Cluster) -> None:
    """Write the series of namespace `shared` to Prometheus."""
    lines = [f'dcgm_gpu_utilization{{node="{n}"}} {value}' for n, value in SHARED_NODES.items()]
    for kind, owner, suffix, node, phase in SHARED_PODS:
        pod = f'namespace="shared",pod="{owner}-{suffix}"'
        created_by = f'created_by_kind="{kind}",created_by_name="{owner}"'
        lines.append(f'kube_pod_info{{{pod},node="{node}",{created_by}}} 1')
        lines.append(f'kube_pod_status_phase{{{pod},phase="{phase}"}} 1')
        if kind == "ReplicaSet":
            owner_labels = 'owner_kind="Deployment",owner_name="trainer"'
            labels_text = f'{{namespace="shared",replicaset="{owner}",{owner_labels}}}'
            lines.append(f"kube_replicaset_owner{labels_text} 1")
    c.prometheus.put(*dict.fromkeys(lines))


def busy_nodes(c: Cluster) -> set[str]:
    """Return the nodes whose GPU is not idle."""
    samples = c.prometheus.query('dcgm_gpu_utilization{UUID!=""} > 0')
    return {each["metric"]["node"] for each in samples}
