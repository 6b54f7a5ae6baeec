"""Recording rule cuda_test_gpu_avg: an Object metric of a Deployment, with the default rules.

Follows "HPA using GPU metrics" of ashrafgt/k8s-gpu-hpa. Its recording rule joins pods by name; the
one here, from manifests/examples/cuda-test.yaml, also by namespace. The manifests use current API
versions. The adapter needs no rule for this metric: the preset `prometheus-adapter` contains the
default rules of the original.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.walkthroughs.cuda_test import CUDA_TEST, DEPLOYMENT_YAML, LOAD_COMMAND
from tools.cluster import cluster
from tools.cluster.walkthrough import (
    STEP_TIMEOUT,
    Walkthrough,
    echo,
    example,
    recommended_config,
)
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

METRIC = "cuda_test_gpu_avg"
RULES = {"groups": [{"name": "gpu-rule-group", "rules": [recommended_config(CUDA_TEST)]}]}

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
        walkthrough = Walkthrough(c, hpa=CUDA_TEST)
        # The rule has no result while there is no pod.
        c.wait_scraped()
        assert recorded_series(walkthrough) == []
        walkthrough.apply("cuda-test-deployment.yaml", DEPLOYMENT_YAML)
        walkthrough.wait_ready(CUDA_TEST, 1)
        wait_for(
            lambda: recorded_series(walkthrough), "the rule has a sample", seconds=STEP_TIMEOUT
        )
        (series,) = recorded_series(walkthrough)
        echo(f"$ curl localhost:9090/api/v1/query?query={METRIC}\n{json.dumps(series)}")
        assert series == {"__name__": METRIC, "namespace": "default", "deployment": CUDA_TEST}
        with c.adapter("--preset=prometheus-adapter"):
            resources = {
                each for each in walkthrough.resources(GROUP) if each.endswith(f"/{METRIC}")
            }
            assert resources == {f"deployments.apps/{METRIC}", f"namespaces/{METRIC}"}
            walkthrough.apply("cuda-test-hpa.yaml", example(CUDA_TEST))
            walkthrough.wait_until_settled("0/5", replicas=1)
            check_metric(walkthrough)
            check_scale_out(walkthrough)
            walkthrough.check_scale_in(CUDA_TEST, "0/5", replicas=3)
            check_unknown_without_a_pod(walkthrough)


def check_metric(walkthrough: Walkthrough) -> None:
    (item,) = walkthrough.get_raw(OBJECT)["items"]
    echo(json.dumps(item))
    assert item["describedObject"] == {
        "kind": "Deployment",
        "namespace": "default",
        "name": CUDA_TEST,
        "apiVersion": "apps/v1",
    }
    assert (item["metricName"], item["value"]) == (METRIC, "0")


def check_scale_out(walkthrough: Walkthrough) -> None:
    set_load = walkthrough.cluster.fleet.set_load
    echo(f"$ {LOAD_COMMAND}")
    set_load(CUDA_TEST, 12)
    walkthrough.wait_for_row("12/5", replicas=(1, 3))
    walkthrough.wait_until_settled("4/5", replicas=3)
    echo(f"$ {LOAD_COMMAND}")
    set_load(CUDA_TEST, 23)
    # The metric requires five replicas; maxReplicas is three.
    hpa = walkthrough.wait_for_row("7666m/5", replicas=3)
    assert hpa.desired_replicas == 3
    assert hpa.condition("ScalingLimited").reason == "TooManyReplicas"
    set_load(CUDA_TEST, 15)
    hpa = walkthrough.wait_for_row("5/5", replicas=3)
    assert hpa.desired_replicas == 3
    assert hpa.condition("ScalingLimited").reason == "DesiredWithinRange"


def check_unknown_without_a_pod(walkthrough: Walkthrough) -> None:
    walkthrough.cluster.kubelet.start_seconds = 3600
    walkthrough.kubectl("delete", "pods", f"--selector=app={CUDA_TEST}")
    hpa = walkthrough.wait_for_row("<unknown>/5", replicas=1)
    active = hpa.condition("ScalingActive")
    echo(active.message)
    assert active.reason == "FailedGetObjectMetric"
    assert METRIC in active.message
    walkthrough.cluster.kubelet.start_seconds = 1
    walkthrough.kubectl("delete", "pods", f"--selector=app={CUDA_TEST}")
    hpa = walkthrough.wait_until_settled("0/5", replicas=1)
    assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def recorded_series(walkthrough: Walkthrough) -> list[Any]:
    """Return the labels of the series that the rule records now."""
    return [each["metric"] for each in walkthrough.cluster.prometheus.query(METRIC)]
