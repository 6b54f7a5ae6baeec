"""An arbitrary query, here an average over pods, as an External metric: up to twelve replicas.

The story of a guide to KEDA, without KEDA, by the rule that manifests/examples/external-query.yaml
recommends. The guide's query, avg(DCGM_FI_DEV_GPU_UTIL{pod_name=~"NAME-.*"}), finds nothing: the
label is `pod` (and its version of the exporter has no GPU_UTIL among its default counters). With
that label it also takes the pods of a Deployment NAME-b. And KEDA compares an AverageValue unless
told otherwise, which divides the average by the replicas once more: as it never is more than 100,
a target of 70 could never ask for more than two. A Value is compared as it is.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules import quantity
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.cluster.hpa import HEADER
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.story import STEP_TIMEOUT, Story, advised, example, tell

MODEL, SIBLING = "model-server", "model-server-b"
METRIC = "model_server_gpu_utilization"
BUSY = 100 / 70
"""How many times its replicas a Deployment needs while their GPUs have more to do than they can."""

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
ASKED = f"{GROUP}/namespaces/default/{METRIC}"
CONFIG = yaml.safe_dump(advised("external-query"))


def test_arbitrary_query(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(control_plane, tmp_path, generation="dcgm", nodes=4, gpus=4) as c:
        story = Story(c, hpa=MODEL)
        for name in (MODEL, SIBLING):
            story.apply(f"{name}.yaml", deployment(name))
        for name in (MODEL, SIBLING):
            story.ready(name, 1)
        c.fleet.offer(SIBLING, 40)
        with c.adapter(config=CONFIG):
            assert [each["name"] for each in got(story, GROUP)["resources"]] == [METRIC]
            wait_for(lambda: averages(c, "pod") == [20], "both are scraped", seconds=STEP_TIMEOUT)
            assert averages(c, "pod_name") == []
            assert answered(story) == 0
            story.apply("model-server-hpa.yaml", example("external-query"))
            story.settles("0/70", replicas=1)
            scales_out(story)
            assert answered(story) == 85
            both = pytest.approx([(12 * 85 + 40) / 13])
            wait_for(lambda: averages(c, "pod") == both, "all are scraped", seconds=STEP_TIMEOUT)
            scales_in(story)


def scales_out(story: Story) -> None:
    tell(f"$ hey -z 10m -c 1000 http://{MODEL}:8501/v1/models/{MODEL} &")
    idle = len(story.table.rows)
    story.cluster.fleet.offer(MODEL, 1020)
    story.shows("100/70", replicas=(1, 2))
    hpa = story.settles("85/70", replicas=12)
    assert hpa.desired == 12
    assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
    rows = [dict(zip(HEADER, row, strict=True)) for row in story.table.rows[idle:]]
    assert {row["TARGETS"] for row in rows if int(row["REPLICAS"]) <= 8} == {"100/70"}
    # As a rule 1, 2, 3, 5, 8 and 12: what is ready is what counts, so there may be more steps.
    steps = [int(row["REPLICAS"]) for row in rows]
    for before, after in itertools.pairwise(steps):
        assert before <= after <= math.ceil(before * BUSY)


def scales_in(story: Story) -> None:
    tell("$ kill $(jobs -p)")
    story.cluster.fleet.offer(MODEL, 0)
    story.shows("0/70", replicas=12)
    hpa = story.settles("0/70", replicas=1)
    assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def deployment(name: str) -> str:
    """A Deployment of one pod that has a GPU."""
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


def got(story: Story, path: str) -> Any:
    return json.loads(story.kubectl("get", "--raw", path))


def answered(story: Story) -> float:
    """The one value, as the adapter answers."""
    (item,) = got(story, ASKED)["items"]
    tell(json.dumps(item))
    return float(quantity.parse(item["value"]))


def averages(c: Cluster, label: str) -> list[float]:
    """What the guide's query gives, if `label` were the one that has the pod's name."""
    query = f'avg(DCGM_FI_DEV_GPU_UTIL{{{label}=~"{MODEL}-.*"}})'
    found = c.prometheus.get("/api/v1/query", query=query)["result"]
    return [float(each["value"][1]) for each in found]
