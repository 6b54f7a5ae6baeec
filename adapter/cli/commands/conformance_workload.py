"""Objects that `conformance` creates: a namespace, a load, a Deployment and its HPA. Pure.

`conformance_run` creates and deletes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rules import quantity

Document = dict[str, Any]

NAMESPACE = "gpu-metrics-conformance"
LABEL = "gpu-metrics-adapter/conformance"
"""Label of the namespace and all that is in it; its value is the name of the run."""
NAME = "conformance"
"""Name of the ConfigMap, the Deployment and the HPA, and of the container."""
IDLE, BUSY = "0", "100"
"""Levels of the load."""
_FOUND = "accelerator: "
"""Prefix of the lines in which a container's log names the accelerators that it sees."""
_BEGIN = "the load begins"
"""Line after these. Later ones are of the load, and no evidence."""
LEVEL = "level"
"""Key of the ConfigMap, and file in the container, with the level."""
_PORT = 9400
_WINDOW = 30
"""Stabilization window of the scale-down in seconds, instead of five minutes."""
_NVIDIA = "nvidia.com/"
_CUDA_IMAGE = "nvcr.io/nvidia/cuda:12.9.0-devel-ubuntu24.04"
_BUILD = r"""cat >/tmp/load.cu <<'END'
#include <cstdio>
__global__ void work(float *out) {
  float value = threadIdx.x;
  for (int step = 0; step < 200000; step++) value = fmaf(value, 0.999f, 0.5f);
  if (value < 0) *out = value;
}
int main() {
  float *out;
  if (cudaMalloc(&out, sizeof(float)) != cudaSuccess) return puts("no CUDA device"), 1;
  for (;;) {
    work<<<4096, 256>>>(out);
    if (cudaDeviceSynchronize() != cudaSuccess) return puts("the kernel failed"), 1;
  }
}
END
nvcc -o /tmp/load /tmp/load.cu
"""
_SCRIPT = """{{ nvidia-smi -L | grep UUID || ls -d /dev/nvidia[0-9]* /dev/kfd /dev/dri/renderD* \
/dev/accel* /dev/davinci[0-9]* /dev/neuron* /dev/vfio/[0-9]*; }} 2>/dev/null | sed 's/^/{found}/'
echo {begin}
{build}while :; do
  if [ "$(cat /load/level)" = {idle} ]; then sleep 1; else timeout 20 {command}; sleep 0.2; fi
done
"""
"""Keeps one accelerator busy while the load is not idle. Without nvidia-smi, device files show that
the container has an accelerator."""
_PYTHON = "/opt/gpu-metrics-adapter/bin/python"
_STAND_IN = """\
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(f"{os.environ['SERIES']} {open('/load/level').read()}\\n".encode())
    def log_message(self, *_):
        pass
ThreadingHTTPServer(("", int(os.environ["PORT"])), Page).serve_forever()
"""
_SERIES = {
    "gpu": "0",
    "UUID": "stand-in-$(POD)",
    "modelName": "stand-in",
    "container": NAME,
    "namespace": NAMESPACE,
    "pod": "$(POD)",
}
"""Labels of the stand-in, which reports the level of the load as dcgm-exporter reports the
utilization of a GPU. Kubernetes fills in the name of the pod."""

_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NOT_ROOT = {"runAsNonRoot": True, "runAsUser": 65532}
"""What the Pod Security Standard "restricted" requires."""

RESOURCES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "google.com/tpu",
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "gpu.intel.com/i915",
    "huawei.com/Ascend910",
    "aws.amazon.com/neuron",
)
"""Extended resources of accelerators, by which a node is found to have some."""

PATHS: Mapping[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "HorizontalPodAutoscaler": (
        f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    ),
}
"""Kind -> path of its collection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What runs, and what its HPA follows."""

    run: str
    """Name of the run."""
    image: str
    resource: str = ""
    """Extended resource of which each pod has one; empty for a stand-in."""
    command: str = ""
    """Shell command that keeps the accelerator busy; empty for the CUDA kernel."""
    metric: str
    target: str
    maximum: int

    def documents(self) -> Sequence[Document]:
        """Return the objects in the order in which they are created."""
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": {LABEL: self.run}},
            "template": {"metadata": self._template(), "spec": self._pod()},
        }
        return [
            self._object("v1", "Namespace", NAMESPACE),
            self._object("v1", "ConfigMap", NAME, data={LEVEL: IDLE}),
            self._object("apps/v1", "Deployment", NAME, spec=spec),
            self._object("autoscaling/v2", "HorizontalPodAutoscaler", NAME, spec=self._hpa()),
        ]

    def _object(self, version: str, kind: str, name: str, **content: object) -> Document:
        metadata = {"name": name, "labels": {LABEL: self.run}}
        if kind != "Namespace":
            metadata["namespace"] = NAMESPACE
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}

    def _template(self) -> Document:
        metadata: Document = {"labels": {LABEL: self.run}}
        if not self.resource:
            notes = {"prometheus.io/scrape": "true", "prometheus.io/port": str(_PORT)}
            metadata["annotations"] = notes
            # By this label, presets find the pods of dcgm-exporter.
            metadata["labels"]["app.kubernetes.io/name"] = "dcgm-exporter"
        return metadata

    def _pod(self) -> Document:
        return {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            # Nodes with accelerators often have a taint.
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
            "containers": [self._container()],
            "volumes": [
                {"name": "load", "configMap": {"name": NAME}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }

    def _container(self) -> Document:
        container: Document = {
            "name": NAME,
            "image": self.image,
            # The devices of other vendors may be root's.
            "securityContext": _RESTRICTED | ({} if self.command else _NOT_ROOT),
            "volumeMounts": [
                {"name": "load", "mountPath": "/load"},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a path in the pod
            ],
        }
        if self.resource:
            build, command = ("", self.command) if self.command else (_BUILD, "/tmp/load")  # noqa: S108 - a path in the pod
            script = _SCRIPT.format(
                found=_FOUND, begin=_BEGIN, build=build, idle=IDLE, command=command
            )
            return {
                **container,
                "command": ["/bin/sh", "-c", script],
                "resources": {"limits": {self.resource: 1}},
            }
        labels = ",".join(f'{name}="{value}"' for name, value in _SERIES.items())
        return {
            **container,
            "command": [_PYTHON, "-c", _STAND_IN],
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "PORT", "value": str(_PORT)},
                {"name": "SERIES", "value": f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}"},
            ],
            "ports": [{"name": "metrics", "containerPort": _PORT}],
            "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
        }

    def _hpa(self) -> Document:
        target = {"type": "AverageValue", "averageValue": self.target}
        pods = {"metric": {"name": self.metric}, "target": target}
        return {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": 1,
            "maxReplicas": self.maximum,
            "metrics": [{"type": "Pods", "pods": pods}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": _WINDOW}},
        }


def level(text: str) -> Document:
    """Return the patch of the ConfigMap that sets the load."""
    return {"data": {LEVEL: text}}


def image_for(resource: str) -> str:
    """Return the image whose load is built in for a resource; empty if there is none."""
    return _CUDA_IMAGE if resource.startswith(_NVIDIA) else ""


def offered(nodes: Iterable[Mapping[str, Any]], resource: str = "") -> tuple[str, dict[str, int]]:
    """Return the first resource of accelerators that a node offers, and how many each node has.

    Only `resource` counts, unless it is empty.
    """
    allocatable = {
        each["metadata"]["name"]: (each.get("status") or {}).get("allocatable") or {}
        for each in nodes
    }
    for name in (resource,) if resource else RESOURCES:
        found = {
            node: number
            for node, has in allocatable.items()
            if (number := quantity.parse(has.get(name, "0")) // 1000)
        }
        if found:
            return name, found
    return "", {}


def seen(log: str) -> Iterator[str]:
    """Yield the accelerators that a container's log names before its load begins."""
    lines = itertools.takewhile(lambda line: line != _BEGIN, log.splitlines())
    return (line.removeprefix(_FOUND) for line in lines if line.startswith(_FOUND))
