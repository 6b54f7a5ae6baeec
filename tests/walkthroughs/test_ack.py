"""ACK's BERT service: a Pods metric at the edge of the tolerance, and why a target is <unknown>.

The story of its guide to scaling by GPU metrics, with its Deployment, and our preset in place of
its chart's rules. Then the guide's one frequent question, "TARGETS is UNKNOWN", case by case.
"""

from __future__ import annotations

import json
import re
from itertools import starmap
from pathlib import Path

import pytest

from rules import quantity
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.cluster.hpa import HEADER, Hpa, Table
from tests.cluster.server import Server
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.story import STEP_TIMEOUT, Story, example, tell

BERT = "bert-intent-detection"
BERT_YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: bert-intent-detection
spec:
  replicas: 1
  selector:
    matchLabels:
      app: bert-intent-detection
  template:
    metadata:
      labels:
        app: bert-intent-detection
    spec:
      containers:
      - name: bert-container
        image: bert-intent-detection:1.0.1
        ports:
        - containerPort: 80
        resources:
          limits:
            nvidia.com/gpu: 1
---
apiVersion: v1
kind: Service
metadata:
  labels:
    run: bert-intent-detection
  name: bert-intent-detection-svc
spec:
  ports:
  - port: 8500
    targetPort: 80
  selector:
    app: bert-intent-detection
  type: LoadBalancer
"""
SERIES = {
    "duty_cycle_current": "nvidia_gpu_duty_cycle",
    "memory_used_bytes_current": "nvidia_gpu_memory_used_bytes",
    "temperature_celsius_current": "nvidia_gpu_temperature_celsius",
    "power_usage_milliwatts_current": "nvidia_gpu_power_usage_milliwatts",
}
"""The four metrics of the document, and what each is made of."""

EXACT_TOLERANCE = (1, 33)
"""Since this minor release ten per cent above the target is within the tolerance; it was not."""

OWN_RULES = """\
rules:
# This exporter has no series of it.
- seriesQuery: nvidia_gpu_fanspeed_percent
  resources: {overrides: {namespace_name: {resource: namespace}, pod_name: {resource: pod}}}
  name: {as: fanspeed_percent_current}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
# These are the labels of another exporter.
- seriesQuery: nvidia_gpu_temperature_celsius
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: gpu_temperature}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
UNKNOWN = {
    "NoRule": "num_devices_current",
    "WrongName": "nvidia_gpu_duty_cycle",
    "NoSeries": "fanspeed_percent_current",
    "LabelsMissing": "gpu_temperature",
    "NoSample": "duty_cycle_current",
}
"""Each way to ask in vain, with a metric of which it is true; the last of a pod without a GPU."""

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
PODS = f"{GROUP}/namespaces/default/pods/*"


def test_ack(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(control_plane, tmp_path, generation="alibaba", start_seconds=2) as c:
        story = Story(c, hpa=BERT)
        story.apply("bert-intent-detection.yaml", BERT_YAML)
        story.ready(BERT, 1)
        wait_for(
            lambda: scraped(c, "nvidia_gpu_duty_cycle"), "its GPU is scraped", seconds=STEP_TIMEOUT
        )
        with c.adapter("--preset=gpu-nvidia-alibaba", config=OWN_RULES) as adapter:
            story.apply("gpu-hpa.yaml", example(BERT))
            story.settles("0/20", replicas=1)
            scales_out(story)
            answers_its_four_metrics(story)
            scales_in(story)
            tells_why_a_target_is_unknown(story, adapter)


def scales_out(story: Story) -> None:
    offer = story.cluster.fleet.offer
    tell('$ hey -n 10000 -c 100 "http://101.200.88.51:8500/predict?query=music" &')
    offer(BERT, 22)
    version = story.cluster.plane.programs.version
    if tuple(map(int, version.split(".")[:2])) < EXACT_TOLERANCE:
        story.shows("22/20", replicas=(1, 2))
        story.settles("11/20", replicas=2)
    else:
        story.shows("22/20", replicas=1)
        hpa = story.stays("22/20", replicas=1, seconds=4)
        assert hpa.desired == 1
        tell('$ hey -n 1000 -c 5 "http://101.200.88.51:8500/predict?query=music" &')
        offer(BERT, 23)
        story.shows("23/20", replicas=(1, 2))
        story.settles("11500m/20", replicas=2)


def scales_in(story: Story) -> None:
    tell("$ kill $(jobs -p)")
    story.cluster.fleet.offer(BERT, 0)
    story.shows("0/20", replicas=2)
    hpa = story.settles("0/20", replicas=1)
    assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def answers_its_four_metrics(story: Story) -> None:
    found = json.loads(story.kubectl("get", "--raw", GROUP))
    assert {f"pods/{metric}" for metric in SERIES} <= {each["name"] for each in found["resources"]}
    for metric, series in SERIES.items():
        answer = json.loads(story.kubectl("get", "--raw", f"{PODS}/{metric}"))
        values = {
            each["describedObject"]["name"]: float(quantity.parse(each["value"]))
            for each in answer["items"]
        }
        tell(", ".join(f"{name} {value:.10g}" for name, value in values.items()))
        assert values == pytest.approx(scraped(story.cluster, series), abs=0.001)


def tells_why_a_target_is_unknown(story: Story, adapter: Server) -> None:
    story.apply("unknown.yaml", "---\n".join(starmap(asking, UNKNOWN.items())))
    table = Table()
    said = {}
    for why in UNKNOWN:
        hpa = story.cluster.watch_hpa(name(why), until=has_failed, seconds=STEP_TIMEOUT)
        table.add(hpa)
        said[why] = hpa.condition("ScalingActive").message
    tell(f"$ kubectl get hpa\n{table}")
    assert {row[HEADER.index("TARGETS")] for row in table.rows} == {"<unknown>/20"}
    for why, metric in UNKNOWN.items():
        tell(f"$ kubectl describe hpa {name(why)}\n  {said[why]}")
        if why == "NoSample":
            assert said[why].endswith("no metrics returned from custom metrics API")
        else:
            assert said[why].endswith(f"the server could not find the metric {metric} for pods")
            assert reasons(story, metric) == [why]
        tell(f"$ kubectl logs deployment/gpu-metrics-adapter | grep {metric}")
        *_, line = (each for each in adapter.log.splitlines() if f"/{metric} in" in each)
        tell(f"  {line}")
        assert f"pods/{metric} in namespace default: {why}: " in line


def has_failed(hpa: Hpa) -> bool:
    return hpa.condition("ScalingActive").reason == "FailedGetPodsMetric"


def reasons(story: Story, metric: str) -> list[str]:
    """Those of the causes that an answer names, beside the words that everybody is told."""
    answer = story.cluster.plane.admin.request("GET", f"{PODS}/{metric}").document
    return [cause["reason"] for cause in answer["details"]["causes"]]


def name(why: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", why).lower()


def asking(why: str, metric: str) -> str:
    """A Deployment, and an HPA that asks for `metric` of its pods."""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name(why)}}}
spec:
  selector: {{matchLabels: {{app: {name(why)}}}}}
  template:
    metadata: {{labels: {{app: {name(why)}}}}}
    spec:
      containers:
      - name: serving
        image: example.invalid/serving
        resources: {{limits: {{nvidia.com/gpu: {int(why != "NoSample")}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name(why)}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name(why)}}}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods:
      metric: {{name: {metric}}}
      target: {{type: AverageValue, averageValue: "20"}}
"""


def scraped(c: Cluster, series: str) -> dict[str, float]:
    """The value of each pod, as Prometheus has it."""
    found = c.prometheus.get("/api/v1/query", query=f'{series}{{pod_name!=""}}')
    return {each["metric"]["pod_name"]: float(each["value"][1]) for each in found["result"]}
