"""Arbitrary query (an average over pods) as an External metric: up to twelve replicas.

Follows a guide to KEDA, but without KEDA: with the rule in manifests/examples/external-query.yaml.
The guide's query, avg(DCGM_FI_DEV_GPU_UTIL{pod_name=~"NAME-.*"}), has no result, because the label
is `pod` (and the guide's version of the exporter does not export GPU_UTIL by default). With the
right label it would also include the pods of a Deployment NAME-b. KEDA's default target type,
AverageValue, would divide this average by the number of replicas: as it is at most 100, a target of
70 could never lead to more than two replicas. The HPA here has a target of type Value.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import yaml

from tools import quantity
from tools.cluster import cluster
from tools.cluster.cluster import Cluster
from tools.cluster.hpa import HEADER
from tools.cluster.walkthrough import (
    STEP_TIMEOUT,
    Walkthrough,
    echo,
    example,
    recommended_config,
)
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

MODEL, SIBLING = "model-server", "model-server-b"
METRIC = "model_server_gpu_utilization"
MAX_GROWTH = 100 / 70
"""Largest factor of one scale-up: all GPUs at 100 %, and a target of 70 %."""

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
METRIC_PATH = f"{GROUP}/namespaces/default/{METRIC}"
CONFIG = yaml.safe_dump(recommended_config("external-query"))


def test_arbitrary_query(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(control_plane, tmp_path, generation="dcgm", nodes=4, gpus=4) as c:
        walkthrough = Walkthrough(c, hpa=MODEL)
        for name in (MODEL, SIBLING):
            walkthrough.apply(f"{name}.yaml", deployment(name))
        for name in (MODEL, SIBLING):
            walkthrough.wait_ready(name, 1)
        c.fleet.set_load(SIBLING, 40)
        with c.adapter(config=CONFIG):
            assert walkthrough.resources(GROUP) == {METRIC}
            wait_for(
                lambda: averages(c, "pod") == [20],
                "both Deployments are scraped",
                seconds=STEP_TIMEOUT,
            )
            assert averages(c, "pod_name") == []
            assert metric_value(walkthrough) == 0
            walkthrough.apply("model-server-hpa.yaml", example("external-query"))
            walkthrough.wait_until_settled("0/70", replicas=1)
            check_scale_out(walkthrough)
            assert metric_value(walkthrough) == 85
            check_explained(walkthrough)
            average_of_both = pytest.approx([(12 * 85 + 40) / 13])
            wait_for(
                lambda: averages(c, "pod") == average_of_both,
                "all pods are scraped",
                seconds=STEP_TIMEOUT,
            )
            walkthrough.check_scale_in(MODEL, "0/70", replicas=12)


def check_scale_out(walkthrough: Walkthrough) -> None:
    echo(f"$ hey -z 10m -c 1000 http://{MODEL}:8501/v1/models/{MODEL} &")
    first_row = len(walkthrough.table.rows)
    walkthrough.cluster.fleet.set_load(MODEL, 1020)
    walkthrough.wait_for_row("100/70", replicas=(1, 2))
    hpa = walkthrough.wait_until_settled("85/70", replicas=12)
    assert hpa.desired_replicas == 12
    assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
    rows = [dict(zip(HEADER, row, strict=True)) for row in walkthrough.table.rows[first_row:]]
    assert {row["TARGETS"] for row in rows if int(row["REPLICAS"]) <= 8} == {"100/70"}
    # Usually 1, 2, 3, 5, 8 and 12. The controller counts only ready pods, so there may be more.
    steps = [int(row["REPLICAS"]) for row in rows]
    for before, after in itertools.pairwise(steps):
        assert before <= after <= math.ceil(before * MAX_GROWTH)


def check_explained(walkthrough: Walkthrough) -> None:
    value = f"external metric {METRIC} in namespace default has the value 85"
    code, _ = walkthrough.explain("default", METRIC, until=value)
    assert code == 0
    limited = "limited by maxReplicas: the metrics recommend 15"
    code, line = walkthrough.explain("hpa", f"default/{MODEL}", until=limited)
    assert code == 0
    assert "keeps 12 replicas" in line


def deployment(name: str) -> str:
    """Return a Deployment of one pod with one GPU."""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 1
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
      - name: serving
        image: tensorflow/serving:latest-gpu
        resources:
          limits:
            nvidia.com/gpu: 1
"""


def metric_value(walkthrough: Walkthrough) -> float:
    """Return the single value of the metric from the adapter."""
    (item,) = walkthrough.get_raw(METRIC_PATH)["items"]
    echo(json.dumps(item))
    return float(quantity.parse(item["value"]))


def averages(c: Cluster, label: str) -> list[float]:
    """Return the result of the guide's query with `label` as the pod label."""
    samples = c.prometheus.query(f'avg(DCGM_FI_DEV_GPU_UTIL{{{label}=~"{MODEL}-.*"}})')
    return [float(each["value"][1]) for each in samples]
