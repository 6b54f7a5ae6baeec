"""A recording rule, cuda_test_gpu_avg: an Object metric on a Deployment, with default rules alone.

The story of "HPA using GPU metrics" of ashrafgt/k8s-gpu-hpa. Its rule joined pods by their names
alone; ours, the one that manifests/examples/cuda-test.yaml recommends, by their namespaces too. The
manifests are in the versions of today's APIs. The adapter is told of a Prometheus and of nothing
else that is of this case: `prometheus-adapter` is the preset of the original's default rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import cluster
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.cuda_test import BUSY, CUDA_TEST, DEPLOYMENT_YAML
from tests.walkthroughs.story import STEP_TIMEOUT, Story, advised, example, tell

METRIC = "cuda_test_gpu_avg"
RULES = {"groups": [{"name": "gpu-rule-group", "rules": [advised(CUDA_TEST)]}]}

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
OBJECT = f"{GROUP}/namespaces/default/deployments.apps/{CUDA_TEST}/{METRIC}"


def test_recording_rule(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(
        control_plane,
        tmp_path,
        generation="compat",
        rules_yaml=yaml.safe_dump(RULES),
        start_seconds=1,
    ) as c:
        story = Story(c, hpa=CUDA_TEST)
        # Without a pod the rule finds nothing, so the metric is there only once the pod is.
        c.wait_scraped()
        assert recorded(story) == []
        story.apply("cuda-test-deployment.yaml", DEPLOYMENT_YAML)
        story.ready(CUDA_TEST, 1)
        wait_for(lambda: recorded(story), "the rule has its first sample", seconds=STEP_TIMEOUT)
        (series,) = recorded(story)
        tell(f"$ curl localhost:9090/api/v1/query?query={METRIC}\n{json.dumps(series)}")
        assert series == {"__name__": METRIC, "namespace": "default", "deployment": CUDA_TEST}
        with c.adapter("--preset=prometheus-adapter"):
            assert listed(story) == {f"deployments.apps/{METRIC}", f"namespaces/{METRIC}"}
            story.apply("cuda-test-hpa.yaml", example(CUDA_TEST))
            story.settles("0/5", replicas=1)
            answers_for_the_deployment(story)
            scales_out(story)
            scales_in(story)
            knows_nothing_without_a_pod(story)


def answers_for_the_deployment(story: Story) -> None:
    (item,) = json.loads(story.kubectl("get", "--raw", OBJECT))["items"]
    tell(json.dumps(item))
    assert item["describedObject"] == {
        "kind": "Deployment",
        "namespace": "default",
        "name": CUDA_TEST,
        "apiVersion": "apps/v1",
    }
    assert (item["metricName"], item["value"]) == (METRIC, "0")


def scales_out(story: Story) -> None:
    offer = story.cluster.fleet.offer
    tell(f"$ {BUSY}")
    offer(CUDA_TEST, 12)
    story.shows("12/5", replicas=(1, 3))
    story.settles("4/5", replicas=3)
    tell(f"$ {BUSY}")
    offer(CUDA_TEST, 23)
    # These would be five pods, of which there may be three.
    hpa = story.shows("7666m/5", replicas=3)
    assert hpa.desired == 3
    assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
    offer(CUDA_TEST, 15)
    hpa = story.shows("5/5", replicas=3)
    assert hpa.desired == 3
    assert hpa.condition("ScalingLimited").reason == "DesiredWithinRange"


def scales_in(story: Story) -> None:
    tell("$ kill $(jobs -p)")
    story.cluster.fleet.offer(CUDA_TEST, 0)
    story.shows("0/5", replicas=3)
    hpa = story.settles("0/5", replicas=1)
    assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def knows_nothing_without_a_pod(story: Story) -> None:
    # Long enough that the controller looks at least once, whatever else the machine has to do.
    story.cluster.kubelet.start_seconds = 5
    story.kubectl("delete", "pods", f"--selector=app={CUDA_TEST}")
    hpa = story.shows("<unknown>/5", replicas=1)
    active = hpa.condition("ScalingActive")
    tell(active.message)
    assert active.reason == "FailedGetObjectMetric"
    assert METRIC in active.message
    hpa = story.settles("0/5", replicas=1)
    assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def listed(story: Story) -> set[str]:
    """What discovery lists of the metric."""
    found = json.loads(story.kubectl("get", "--raw", GROUP))
    names = {resource["name"] for resource in found["resources"]}
    return {name for name in names if name.endswith(f"/{METRIC}")}


def recorded(story: Story) -> list[Any]:
    """The labels of what the rule has recorded, as of now."""
    found = story.cluster.prometheus.get("/api/v1/query", query=METRIC)
    return [each["metric"] for each in found["result"]]
