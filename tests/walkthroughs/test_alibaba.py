"""Alibaba's rules for nvidia_gpu_*: a Pods metric, from no pod to three replicas and back.

Follows "Auto Scaling Kubernetes Clusters Based on GPU Metrics". The rules and the flags of the
adapter are unchanged. The manifests use current API versions. `certs issue` replaces the guide's
script of openssl and cfssl, and a caBundle replaces insecureSkipTLSVerify.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.cluster import cluster
from tools.cluster.server import NAMESPACE
from tools.cluster.walkthrough import STEP_TIMEOUT, Walkthrough, echo, example, pod_values
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

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
TEMPERATURE_SERIES = "nvidia_gpu_temperature_celsius"
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
        walkthrough = Walkthrough(c, hpa=SERVING)
        echo(f"$ {CERTIFICATES} > {SECRET}.yaml")
        walkthrough.apply(f"{SECRET}.yaml", issue_certificates())
        tls, ca = mount_secret(walkthrough, tmp_path)
        # The exporter also has the number of GPUs of each node: a series without a uuid.
        c.prometheus.put(
            *(f'nvidia_gpu_num_devices{{node_name="{node}"}} 4' for node in c.fleet.nodes)
        )
        with c.adapter(*FLAGS, config=RULES, tls=tls, ca=ca) as adapter:
            assert ca_bundle(walkthrough) == ca
            # Idle GPUs have empty pod labels, which Prometheus treats as missing.
            assert walkthrough.resources(GROUP) == {f"nodes/{metric}" for metric in METRICS}
            with pytest.raises(RuntimeError, match="NotFound") as error:
                walkthrough.kubectl("get", "--raw", TEMPERATURE)
            echo(str(error.value).partition(": ")[2])

            walkthrough.apply("serving.yaml", SERVING_YAML)
            walkthrough.wait_ready(SERVING, 1)
            scraped: dict[str, float] = {}
            wait_for(
                lambda: scraped.update(pod_values(c, TEMPERATURE_SERIES)) or scraped,
                "the pod's GPU is scraped",
                seconds=STEP_TIMEOUT,
            )
            # Without a restart, the metric is listed at the next relist, within a minute.
            echo("$ kubectl rollout restart deployment gpu-metrics-adapter")
            adapter.stop()
            adapter.start()
            assert walkthrough.resources(GROUP) == {
                f"{resource}/{metric}"
                for resource in ("pods", "nodes", "namespaces")
                for metric in METRICS
            }
            walkthrough.wait_for_values(TEMPERATURE, scraped)
            walkthrough.kubectl("scale", "deployment", SERVING, "--replicas=0")
            wait_for(lambda: not c.fleet.pods, "the pod is deleted", seconds=STEP_TIMEOUT)
            walkthrough.wait_for_values(TEMPERATURE, {})

            walkthrough.kubectl("scale", "deployment", SERVING, "--replicas=1")
            walkthrough.apply("gpu-hpa.yaml", example("fast-style-transfer"))
            walkthrough.wait_until_settled("0/40", replicas=1)

            walkthrough.apply("press.yaml", PRESS_YAML)
            set_press_load(walkthrough, replicas=1, each=63)
            walkthrough.wait_for_row("63/40", replicas=(1, 2))
            walkthrough.wait_until_settled("31500m/40", replicas=2)
            # The load generator reaches its full rate.
            set_press_load(walkthrough, replicas=1, each=100)
            walkthrough.wait_for_row("50/40", replicas=(2, 3))
            hpa = walkthrough.wait_until_settled("33333m/40", replicas=3)
            assert hpa.condition("ScalingActive").reason == "ValidMetricFound"
            assert hpa.desired_replicas == 3

            walkthrough.kubectl("scale", "deployment", PRESS, "--replicas=0")
            set_press_load(walkthrough, replicas=0, each=100)
            walkthrough.wait_for_row("0/40", replicas=3)
            hpa = walkthrough.wait_until_settled("0/40", replicas=1)
            assert hpa.condition("ScalingActive").reason == "ValidMetricFound"


def issue_certificates() -> str:
    """Return the Secret that `certs issue` prints."""
    _, *arguments = CERTIFICATES.split()
    command = [sys.executable, "-m", "adapter", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def mount_secret(walkthrough: Walkthrough, folder: Path) -> tuple[tuple[Path, Path], bytes]:
    """Write certificate and key of the Secret to files; return their paths and the CA (PEM)."""
    secret = yaml.safe_load(
        walkthrough.kubectl("get", "secret", SECRET, f"--namespace={NAMESPACE}", "--output=yaml")
    )
    content = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    tls = folder / "tls.crt", folder / "tls.key"
    for file in tls:
        file.write_bytes(content[file.name])
    return tls, content["ca.crt"]


def ca_bundle(walkthrough: Walkthrough) -> bytes:
    """Return the caBundle of the APIService."""
    text = walkthrough.kubectl("get", "apiservice", API_SERVICE, "--output=yaml")
    spec = yaml.safe_load(text)["spec"]
    assert "insecureSkipTLSVerify" not in spec
    return base64.b64decode(spec["caBundle"])


def set_press_load(walkthrough: Walkthrough, *, replicas: int, each: float) -> None:
    """Wait for the replicas of the load generator; each offers `each` per cent of a GPU."""
    walkthrough.wait_ready(PRESS, replicas)
    walkthrough.cluster.fleet.set_load("tensorflow-serving", replicas * each)
