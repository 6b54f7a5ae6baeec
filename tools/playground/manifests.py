"""Manifests of the playground: BERT, its load generator and its HPA.

No image is ever pulled: the simulated kubelet reports the pods as Running, and the simulated fleet
reports the load of their GPUs.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tools import documents

BERT = "bert-intent-detection"
LOAD = "bert-load"
LOAD_PER_REPLICA = 15.0
"""Load of each ready replica of LOAD, in per cent of one GPU."""

SERVER_METRICS = (("requests_waiting_current", "5"), ("kv_cache_utilization_current", "80"))
"""Metrics of model servers, and their targets."""

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / f"{BERT}.yaml"
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 15}}
"""Replaces the default window of five minutes, so that a scale-down can be watched."""


def bert() -> str:
    """Return the Deployment of the ACK walkthrough, whose pods have one GPU each."""
    container = {
        "name": "bert-container",
        "image": "bert-intent-detection:1.0.1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return _deployment(BERT, replicas=1, container=container)


def load(replicas: int) -> str:
    """Return the Deployment of the load generator, which stands for requests sent to BERT."""
    container = {
        "name": "hey",
        "image": "williamyeh/hey",
        "args": ["-z", "24h", "-c", "100", f"http://{BERT}-svc:8500/predict?query=music"],
    }
    return _deployment(LOAD, replicas=replicas, container=container)


def hpa(*, server: bool) -> str:
    """Return manifests/examples/bert-intent-detection.yaml with another `behavior`.

    With `server`, it follows the requests that wait in the model servers, and their KV cache.
    """
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["behavior"] = BEHAVIOR
    if server:
        document["spec"]["metrics"] = [documents.pods_metric(*each) for each in SERVER_METRICS]
    return yaml.safe_dump(document, sort_keys=False)


def _deployment(name: str, *, replicas: int, container: documents.Document) -> str:
    pod = {"containers": [container]}
    return yaml.safe_dump(documents.workload("Deployment", name, pod, replicas=replicas))
