"""ACK's BERT service: a Pods metric at the edge of the tolerance, and why a target is <unknown>.

The story of its guide to scaling by GPU metrics, with its Deployment, and the preset in place of the
rules of its chart. The guide's one frequent question, what to do about UNKNOWN, it answers in part.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rules import quantity
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.cluster.hpa import Hpa, Table
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.story import PATIENCE, Story, example, tell

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
        image: registry.cn-beijing.aliyuncs.com/yukong/bert-intent-detection:1.0.1
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
_NOT_FOUND = "the server could not find the metric {} for pods"
UNKNOWN = {
    "no-rule": ("num_devices_current", _NOT_FOUND),
    "wrong-name": ("nvidia_gpu_duty_cycle", _NOT_FOUND),
    "no-series": ("fanspeed_percent_current", _NOT_FOUND),
    "labels-missing": ("gpu_temperature", _NOT_FOUND),
    "no-gpu": ("duty_cycle_current", "no metrics returned from custom metrics API"),
}
"""Each way to be told nothing, with a metric of which that is true, and what Kubernetes says."""

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
PODS = f"{GROUP}/namespaces/default/pods/*"


def test_ack(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(control_plane, tmp_path, generation="alibaba", start_seconds=3) as c:
        story = Story(c, hpa=BERT)
        story.apply("bert-intent-detection.yaml", BERT_YAML)
        story.ready(BERT, 1)
        wait_for(
            lambda: scraped(c, "nvidia_gpu_duty_cycle"), "its GPU is scraped", seconds=PATIENCE
        )
        with c.adapter("--preset=gpu-nvidia-alibaba", config=OWN_RULES):
            story.apply("gpu-hpa.yaml", example(BERT))
            story.settles("0/20", replicas=1)
            scales_out(story)
            answers_its_four_metrics(story)
            scales_in(story)
            tells_why_a_target_is_unknown(story)


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
        hpa = story.stays("22/20", replicas=1, seconds=5)
        assert hpa.desired == 1
        tell("$ hey -n 1000 -c 5 http://101.200.88.51:8500/predict?query=music &")
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
        assert values == pytest.approx(scraped(story.cluster, series), abs=0.5)


def tells_why_a_target_is_unknown(story: Story) -> None:
    c, table = story.cluster, Table()
    story.apply("unknown.yaml", "---\n".join(map(asking, UNKNOWN)))
    told = {}
    for name in UNKNOWN:
        hpa = c.watch_hpa(name, until=_has_failed, seconds=PATIENCE)
        told[name] = hpa.condition("ScalingActive").message
        table.add(hpa)
    tell(f"$ kubectl get hpa\n{table}")
    for name, (metric, words) in UNKNOWN.items():
        tell(f"{name}: {told[name]}")
        assert told[name].endswith(words.format(metric))


def _has_failed(hpa: Hpa) -> bool:
    return hpa.condition("ScalingActive").reason == "FailedGetPodsMetric"


def asking(name: str) -> str:
    """A Deployment, with a GPU if need be, and an HPA that asks for its metric."""
    metric, _ = UNKNOWN[name]
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: serving
        image: example.invalid/serving
        resources: {{limits: {{nvidia.com/gpu: {int(name != "no-gpu")}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
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
