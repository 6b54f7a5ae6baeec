"""What the playground puts into its cluster: BERT, whoever asks it, and BERT's autoscaler.

Nothing of it is ever pulled or run: the kubelet's shadow says that it runs, and the fleet how busy
its GPUs are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

BERT = "bert-intent-detection"
LOAD = "bert-load"
EACH = 15.0
"""What each ready replica of LOAD offers, in per cent of one GPU."""

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / f"{BERT}.yaml"
PATIENCE = {"scaleDown": {"stabilizationWindowSeconds": 15}}
"""Instead of the five minutes for which a load that is gone might come back."""


def bert() -> str:
    """The Deployment of the reference walkthrough: each pod has a GPU."""
    container = {
        "name": "bert-container",
        "image": "bert-intent-detection:1.0.1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return _deployment(BERT, replicas=1, container=container)


def load(replicas: int) -> str:
    """A Deployment whose replicas ask BERT, as the walkthrough does with `hey`."""
    container = {
        "name": "hey",
        "image": "williamyeh/hey",
        "args": ["-z", "24h", "-c", "100", f"http://{BERT}-svc:8500/predict?query=music"],
    }
    return _deployment(LOAD, replicas=replicas, container=container)


def hpa() -> str:
    """manifests/examples/bert-intent-detection.yaml, but for its `behavior`."""
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["behavior"] = PATIENCE
    return yaml.safe_dump(document, sort_keys=False)


def _deployment(name: str, *, replicas: int, container: dict[str, Any]) -> str:
    labels = {"app": name}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
