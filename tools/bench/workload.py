"""Autoscalers, pods and series of a benchmark. Pure; `api_server` and `testbed` serve them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
METRIC = "duty_cycle_current"
LABEL = "app"
"""Label that the selector of each autoscaler compares."""

RULES = """\
rules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}'
  resources:
    overrides:
      exported_namespace: {resource: namespace}
      exported_pod: {resource: pod}
  name: {as: duty_cycle_current}
  metricsQuery: |-
    avg by (<<.GroupBy>>) (
      max by (<<.GroupBy>>,UUID) (<<.Series>>{<<.LabelMatchers>>} <= 100)) + 0.0005
"""
"""The metric of the preset gpu-dcgm in the language of prometheus-adapter, for a peer."""

_SERIES = ("GPU_UTIL", "FB_USED", "FB_FREE", "GPU_TEMP", "POWER_USAGE")
"""All series of the preset, so that a relist indexes as much as in production."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """Number of autoscalers, of pods (evenly among the autoscalers) and of namespaces."""

    autoscalers: int
    pods: int
    namespaces: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse AUTOSCALERSxPODSxNAMESPACES. Raises ValueError."""
        autoscalers, pods, namespaces = map(int, text.split("x"))
        return cls(autoscalers=autoscalers, pods=pods, namespaces=namespaces)

    def __str__(self) -> str:
        return f"{self.autoscalers}x{self.pods}x{self.namespaces}"

    @property
    def pods_per_app(self) -> int:
        """Pods of one application, which one autoscaler scales."""
        return self.pods // self.autoscalers

    def apps(self) -> Iterator[tuple[str, str]]:
        """Yield the namespace and the name of each application."""
        for number in range(self.autoscalers):
            yield f"team-{number % self.namespaces}", f"inference-{number}"

    def paths(self, metric: str = METRIC) -> list[str]:
        """Return what the HPA controller requests for each autoscaler."""
        return [
            f"{GROUP}/namespaces/{namespace}/pods/%2A/{metric}?labelSelector={LABEL}%3D{app}"
            for namespace, app in self.apps()
        ]

    def pod_names(self, app: str) -> list[str]:
        """Return the names of the pods of an application."""
        return [f"{app}-5c9f7b6d4c-x{number:04x}" for number in range(self.pods_per_app)]

    def all_pod_names(self) -> Iterator[str]:
        """Yield the names of the pods of all applications."""
        for _, app in self.apps():
            yield from self.pod_names(app)

    def series(self, value: float | None = None) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the series of each pod's GPU, with the labels of dcgm-exporter, and `value`.

        Without `value`, pods have different values.
        """
        pods = (
            (namespace, app, pod) for namespace, app in self.apps() for pod in self.pod_names(app)
        )
        for number, (namespace, app, pod) in enumerate(pods):
            labels = {
                "exported_namespace": namespace,
                "exported_pod": pod,
                "exported_container": "server",
                "namespace": "gpu-operator",
                "pod": f"dcgm-exporter-{number // 8}",
                "gpu": str(number % 8),
                "UUID": f"GPU-a1002f3a-6c1d-4e5b-9f00-{number:012x}",
                "device": f"nvidia{number % 8}",
                "modelName": "NVIDIA A100-SXM4-80GB",
                "Hostname": f"gpu-node-{number // 8}",
                "app": app,
            }
            current = float(number % 100) if value is None else value
            for name in _SERIES:
                yield {"__name__": f"DCGM_FI_DEV_{name}", **labels}, current


def pod(namespace: str, app: str, name: str, number: int) -> dict[str, Any]:
    """Return a running pod as the API server serves it, about 3 kB of JSON."""
    container = {"name": "server", "image": "registry.example.com/inference:1.0.1"}
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app}-5c9f7b6d4c-",
            "namespace": namespace,
            "uid": f"b2003f3a-6c1d-4e5b-9f00-{number:012x}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-20T20:25:37Z",
            "labels": {
                LABEL: app,
                "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "5c9f7b6d4c",
            },
            "annotations": {"checksum/config": "0" * 64},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-5c9f7b6d4c"}
            ],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"x" * 1200: {}}}}],
        },
        "spec": {
            "nodeName": f"gpu-node-{number // 8}",
            "containers": [
                {
                    **container,
                    "env": [{"name": f"SETTING_{n}", "value": "value"} for n in range(8)],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-11-20T20:25:37Z",
            "conditions": [{"type": each, "status": "True"} for each in conditions],
            "containerStatuses": [{**container, "ready": True, "restartCount": 0}],
        },
    }
