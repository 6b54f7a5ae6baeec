"""Documents of HPAs, scales and pods, as the API server returns them."""

from __future__ import annotations

from typing import Any

from rules.hpa import autoscaler
from rules.hpa.autoscaler import Autoscaler, Pod, Scale
from tools import documents

DEFAULT_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DEFAULT_DOWN = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def pods_metric(target: str = "40", name: str = "duty_cycle_current") -> dict[str, Any]:
    return documents.pods_metric(name, target)


def object_metric(
    kind: str = "Deployment",
    api_version: str = "apps/v1",
    described: str = "cuda-test",
    **target: str,
) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": described}
    metric = {"name": "cuda_test_gpu_avg"}
    source = {"describedObject": reference, "metric": metric, "target": target}
    return {"type": "Object", "object": source}


def external_metric(name: str = "queue_length", **target: str) -> dict[str, Any]:
    metric = {"name": name, "selector": {"matchLabels": {"queue": "a"}}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def resource_metric(name: str = "cpu", container: str = "", **target: Any) -> dict[str, Any]:
    if container:
        source = {"name": name, "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def document(
    *metrics: dict[str, Any],
    name: str = "gpu-hpa",
    namespace: str = "default",
    kind: str = "Deployment",
    target: str = "serving",
    **spec: Any,
) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 10, "metrics": [*metrics], **spec},
        "status": {},
    }


def hpa(
    *metrics: dict[str, Any],
    minimum: int = 1,
    maximum: int = 10,
    up: dict[str, Any] | None = None,
    down: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> Autoscaler:
    spec: dict[str, Any] = {"minReplicas": minimum, "maxReplicas": maximum}
    if up is not None or down is not None:
        spec["behavior"] = {
            "scaleUp": DEFAULT_UP | (up or {}),
            "scaleDown": DEFAULT_DOWN | (down or {}),
        }
    return autoscaler.autoscaler(document(*metrics, **spec) | {"status": status or {}})


def scale(spec: int, status: int | None = None) -> Scale:
    return autoscaler.scale(
        {
            "spec": {"replicas": spec},
            "status": {"replicas": spec if status is None else status, "selector": "app=serving"},
        }
    )


def pod(
    name: str,
    phase: str = "Running",
    *,
    ready: str = "True",
    deleted: bool = False,
    started: str = "2026-01-01T00:00:00Z",
    since: str = "2026-01-01T00:00:05Z",
    requests: dict[str, dict[str, str]] | None = None,
) -> Pod:
    metadata = {"name": name} | ({"deletionTimestamp": started} if deleted else {})
    containers = [
        {"name": container, "resources": {"requests": each}}
        for container, each in (requests or {"serving": {}}).items()
    ]
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    status = {"phase": phase, "startTime": started, "conditions": [condition] if ready else []}
    return autoscaler.pod(
        {"metadata": metadata, "spec": {"containers": containers}, "status": status}
    )


def pods(number: int) -> list[Pod]:
    return [pod(f"p{index}") for index in range(number)]
