"""Alibaba's rules on nvidia_gpu_*: a Pods metric, from nothing to three replicas and back.

The story of "Auto Scaling Kubernetes Clusters Based on GPU Metrics". Its rules and the adapter's
flags are verbatim. Its manifests are in the versions of today's APIs; one command makes what a
script of openssl and cfssl made, and a caBundle takes the place of insecureSkipTLSVerify.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.cluster.server import NAMESPACE
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for
from tests.walkthroughs.story import STEP_TIMEOUT, Story, example, tell

RULES = """\
rules:
- seriesQuery: '{uuid!=""}'
  resources:
    overrides:
      node_name: {resource: "node"}
      pod_name: {resource: "pod"}
      namespace_name: {resource: "namespace"}
  name:
    matches: ^nvidia_gpu_(.*)$
    as: "${1}_over_time"
  metricsQuery: ceil(avg_over_time(<<.Series>>{<<.LabelMatchers>>}[3m]))
- seriesQuery: '{uuid!=""}'
  resources:
    overrides:
      node_name: {resource: "node"}
      pod_name: {resource: "pod"}
      namespace_name: {resource: "namespace"}
  name:
    matches: ^nvidia_gpu_(.*)$
    as: "${1}_current"
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
"""
SECRET = "cm-adapter-serving-certs"
CERTIFICATES = f"gpu-metrics-adapter certs issue --secret-name={SECRET}"
FLAGS = ("--logtostderr=true", "--metrics-relist-interval=1m", "--v=10")

SERVING_YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: fast-style-transfer-serving
  labels:
    app: tensorflow-serving
spec:
  replicas: 1
  selector:
    matchLabels:
      app: tensorflow-serving
  template:
    metadata:
      labels:
        app: tensorflow-serving
    spec:
      containers:
      - name: serving
        image: fast-style-transfer-serving:la_muse
        command: ["python", "app.py"]
        resources:
          limits:
            nvidia.com/gpu: 1
"""
PRESS_YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: fast-style-transfer-press
  labels:
    app: fast-style-transfer-press
spec:
  replicas: 1
  selector:
    matchLabels:
      app: fast-style-transfer-press
  template:
    metadata:
      labels:
        app: fast-style-transfer-press
    spec:
      containers:
      - name: serving
        image: fast-style-transfer-press:v0
        env:
        - name: SERVER_IP
          value: fast-style-transfer-serving
        - name: BATCH_SIZE
          value: "100"
        - name: TOTAL_SIZE
          value: "12000"
"""
SERVING = "fast-style-transfer-serving"
PRESS = "fast-style-transfer-press"

API_SERVICE = "v1beta1.custom.metrics.k8s.io"
GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
TEMPERATURE = f"{GROUP}/namespaces/default/pods/*/temperature_celsius_current"
METRICS = {
    f"{series}_{what}"
    for what in ("current", "over_time")
    for series in (
        "duty_cycle",
        "memory_used_bytes",
        "memory_total_bytes",
        "power_usage_milliwatts",
        "temperature_celsius",
    )
}


def test_alibaba(control_plane: ControlPlane, tmp_path: Path) -> None:
    with cluster.running(control_plane, tmp_path, generation="alibaba", start_seconds=2) as c:
        story = Story(c, hpa=SERVING)
        tell(f"$ {CERTIFICATES} > {SECRET}.yaml")
        story.apply(f"{SECRET}.yaml", certificates())
        pair, authority = mounted(story, tmp_path)
        # Of each node, the exporter also tells how many GPUs it has: a series without a uuid.
        c.prometheus.put(
            *(f'nvidia_gpu_num_devices{{node_name="{node}"}} 4' for node in c.fleet.nodes)
        )
        with c.adapter(*FLAGS, config=RULES, tls=pair, ca=authority) as adapter:
            assert vouched_for(story) == authority
            # The pod labels of idle GPUs are empty, and to Prometheus an empty label is none.
            assert listed(story) == {f"nodes/{metric}" for metric in METRICS}
            with pytest.raises(RuntimeError, match="NotFound") as refused:
                story.kubectl("get", "--raw", TEMPERATURE)
            tell(str(refused.value).partition(": ")[2])

            story.apply("serving.yaml", SERVING_YAML)
            story.ready(SERVING, 1)
            wait_for(lambda: temperatures(c), "the pod's GPU is scraped", seconds=STEP_TIMEOUT)
            # Else it would be found by the relist, which is due within a minute.
            tell("$ kubectl rollout restart deployment gpu-metrics-adapter")
            adapter.stop()
            adapter.start()
            assert listed(story) == {
                f"{resource}/{metric}"
                for resource in ("pods", "nodes", "namespaces")
                for metric in METRICS
            }
            assert answered(story) == temperatures(c)
            story.kubectl("scale", "deployment", SERVING, "--replicas=0")
            wait_for(lambda: not c.fleet.pods, "the pod is gone", seconds=STEP_TIMEOUT)
            assert answered(story) == {}

            story.kubectl("scale", "deployment", SERVING, "--replicas=1")
            story.apply("gpu-hpa.yaml", example("fast-style-transfer"))
            story.settles("0/40", replicas=1)

            story.apply("press.yaml", PRESS_YAML)
            press(story, replicas=1, each=63)
            story.shows("63/40", replicas=(1, 2))
            story.settles("31500m/40", replicas=2)
            # What comes once the press is at its full speed.
            press(story, replicas=1, each=100)
            story.shows("50/40", replicas=(2, 3))
            hpa = story.settles("33333m/40", replicas=3)
            assert hpa.condition("ScalingActive").reason == "ValidMetricFound"
            assert hpa.desired == 3

            story.kubectl("scale", "deployment", PRESS, "--replicas=0")
            press(story, replicas=0, each=100)
            story.shows("0/40", replicas=3)
            hpa = story.settles("0/40", replicas=1)
            assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def certificates() -> str:
    """The Secret that `certs issue` prints."""
    _, *arguments = CERTIFICATES.split()
    command = [sys.executable, "-m", "adapter", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def mounted(story: Story, folder: Path) -> tuple[tuple[Path, Path], bytes]:
    """The certificate and its key as files of a volume, and who issued them."""
    secret = yaml.safe_load(
        story.kubectl("get", "secret", SECRET, f"--namespace={NAMESPACE}", "--output=yaml")
    )
    content = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    pair = folder / "tls.crt", folder / "tls.key"
    for file in pair:
        file.write_bytes(content[file.name])
    return pair, content["ca.crt"]


def vouched_for(story: Story) -> bytes:
    """Whose certificates the aggregator believes, and no others."""
    found = story.kubectl("get", "apiservice", API_SERVICE, "--output=yaml")
    spec = yaml.safe_load(found)["spec"]
    assert "insecureSkipTLSVerify" not in spec
    return base64.b64decode(spec["caBundle"])


def listed(story: Story) -> set[str]:
    """What discovery lists."""
    found = json.loads(story.kubectl("get", "--raw", GROUP))
    return {resource["name"] for resource in found["resources"]}


def answered(story: Story) -> dict[str, float]:
    """The temperature of each pod, as the adapter answers."""
    found = json.loads(story.kubectl("get", "--raw", TEMPERATURE))
    return {item["describedObject"]["name"]: float(item["value"]) for item in found["items"]}


def temperatures(c: Cluster) -> dict[str, float]:
    """The same as Prometheus has it."""
    found = c.prometheus.get("/api/v1/query", query='nvidia_gpu_temperature_celsius{pod_name!=""}')
    return {each["metric"]["pod_name"]: float(each["value"][1]) for each in found["result"]}


def press(story: Story, *, replicas: int, each: float) -> None:
    """Once the press has so many replicas, each of them offers a load, in per cent of a GPU."""
    story.ready(PRESS, replicas)
    story.cluster.fleet.offer("tensorflow-serving", replicas * each)
