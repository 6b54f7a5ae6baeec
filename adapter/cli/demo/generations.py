"""Labels and series of each generation of GPU exporters, also with model servers.

Sources: the counter files and the label code of the exporters, release by release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from adapter.cli.demo import series, serving
from adapter.cli.demo.fleet import Gpu, GpuReading
from adapter.cli.demo.series import MIG_INSTANCE, DemoSeries

_POD = ("namespace", "pod", "container")
_OLD_NAMES = ("pod_namespace", "pod_name", "container_name")


@dataclass(frozen=True, slots=True)
class DemoGeneration:
    """Exporters with the same series and labels."""

    preset: str
    """Preset with the rules for these series."""
    summary: str
    series: tuple[DemoSeries, ...]
    gpu_labels: Mapping[str, str]
    """Label -> its text for a GPU, with the fields of `_fields` in braces."""
    pod_labels: tuple[str, ...] = _POD
    """Labels for the namespace, the name and the container of the pod that uses a GPU."""
    idle: Literal["unlabelled", "empty labels", "unreported"] = "unlabelled"
    """How GPUs without a pod are reported."""
    mig: bool = False
    """Whether some GPUs of the fleet are split into MIG instances."""
    server: serving.DemoServer | None = None
    """Model server in each pod, which exposes metrics of its own."""

    def labels(self, gpu: Gpu) -> Mapping[str, str]:
        """Return the labels with which the exporter identifies a GPU and its pod."""
        fields = _fields(gpu)
        labels = {name: text.format_map(fields) for name, text in self.gpu_labels.items()}
        if gpu.instance is not None:
            labels |= {"GPU_I_PROFILE": "1g.18gb", MIG_INSTANCE: str(gpu.instance)}
        if gpu.pod is not None:
            texts = (gpu.pod.namespace, gpu.pod.name, gpu.pod.container)
            labels.update(zip(self.pod_labels, texts, strict=False))
        elif self.idle == "empty labels":
            labels |= dict.fromkeys(self.pod_labels, "")
        return labels

    def render(self, readings: Iterable[tuple[Gpu, GpuReading]]) -> str:
        """Return the exposition of one node's exporter."""
        sources = [
            (reading, self.labels(gpu))
            for gpu, reading in readings
            if gpu.pod is not None or self.idle != "unreported"
        ]
        return series.render(self.series, sources)


def _fields(gpu: Gpu) -> Mapping[str, str | int]:
    return {
        "index": gpu.index,
        "uuid": gpu.board.uuid,
        "bare_uuid": gpu.board.uuid.removeprefix("GPU-"),
        "bus": gpu.board.pci_bus_id,
        "model": gpu.board.model,
        "driver": gpu.board.driver,
        "node": gpu.node,
        "exporter_pod": f"dcgm-exporter-{gpu.node.rpartition('-')[2]}",
        "mode": "none" if gpu.pod is None else "exclusive",
    }


_GPU = {"gpu": "{index}", "UUID": "{uuid}", "device": "nvidia{index}", "modelName": "{model}"}
_BOARD = {**_GPU, "pci_bus_id": "{bus}"}
_NODE = {"hostname": "{node}"}
_DRIVER = {"DCGM_FI_DRIVER_VERSION": "{driver}"}
_EXPORTER_POD = {"Hostname": "{exporter_pod}"}
_LOWER_CASE = {"gpu": "{index}", "uuid": "{uuid}"}
_NVIDIA_GPU = {"minor_number": "{index}", "name": "{model}", "uuid": "{uuid}"}
_DCGM = DemoGeneration(
    "gpu-dcgm",
    "dcgm-exporter 4.8.3",
    series.of("dcgm", "dcgm-prof"),
    {**_BOARD, **_NODE, **_DRIVER},
)
_COMPAT = DemoGeneration(
    "gpu-dcgm-compat",
    "dcgm-exporter with the 1.x counter file",
    series.of("compat", "compat-prof"),
    {**_GPU, **_EXPORTER_POD},
    idle="empty labels",
)
_SERVERS = {
    name: replace(_DCGM, server=server, summary=f"{_DCGM.summary}, {server.title}")
    for name, server in serving.SERVERS.items()
}
GENERATIONS: Mapping[str, DemoGeneration] = {
    "dcgm": _DCGM,
    "dcgm-4.8": replace(
        _DCGM,
        summary="dcgm-exporter 3.5 to 4.8.2",
        gpu_labels={**_BOARD, "Hostname": "{node}", **_DRIVER},
    ),
    "dcgm-2": replace(
        _COMPAT, preset="gpu-dcgm", summary="dcgm-exporter 2.6", series=series.of("dcgm")
    ),
    "dcgm-4.9": DemoGeneration(
        "gpu-dcgm49",
        "dcgm-exporter 4.9 with renamed fields",
        series.of("dcgm-renamed"),
        {**_BOARD, **_NODE, "DCGM_FI_SYSTEM_DRIVER_VERSION": "{driver}"},
    ),
    "dcgm-mig": replace(
        _DCGM, preset="gpu-dcgm-mig", summary="dcgm-exporter with MIG instances", mig=True
    ),
    "dcgm-no-pods": replace(
        _DCGM,
        preset="gpu-node",
        summary="dcgm-exporter without Kubernetes mapping",
        pod_labels=(),
    ),
    "compat": _COMPAT,
    "compat-old-namespace": DemoGeneration(
        "gpu-dcgm1x",
        "dcgm-exporter with the 1.x counter file and old label names",
        series.of("compat"),
        {**_LOWER_CASE, "device": "nvidia{index}", "modelName": "{model}", **_EXPORTER_POD},
        _OLD_NAMES,
    ),
    "dcgm-1": DemoGeneration(
        "gpu-dcgm1x", "gpu-monitoring-tools 1.x", series.of("compat"), _LOWER_CASE, _OLD_NAMES
    ),
    "alibaba": DemoGeneration(
        "gpu-nvidia-alibaba",
        "Alibaba's gpu-prometheus-exporter",
        series.of("nvidia-gpu"),
        {**_NVIDIA_GPU, "allocate_mode": "{mode}", "node_name": "{node}"},
        ("namespace_name", "pod_name", "container_name"),
        idle="empty labels",
    ),
    "nvidia-gpu": DemoGeneration(
        "gpu-node",
        "nvidia_gpu_prometheus_exporter, without pod labels",
        series.of("nvidia-gpu"),
        _NVIDIA_GPU,
        pod_labels=(),
    ),
    "gke-plugin": DemoGeneration(
        "gpu-gke-plugin",
        "GKE's device plugin",
        series.of("gke"),
        {"accelerator_id": "{uuid}", "make": "nvidia", "model": "{model}"},
        idle="unreported",
    ),
    "hami": DemoGeneration(
        "gpu-hami",
        "HAMi's vGPU monitor",
        series.of("hami"),
        {"device_uuid": "{uuid}", "vdevice_index": "0"},
        idle="unreported",
    ),
    "nvidia-smi": DemoGeneration(
        "gpu-node",
        "nvidia_gpu_exporter, without pod labels",
        series.of("nvidia-smi"),
        {"uuid": "{bare_uuid}"},
        pod_labels=(),
    ),
    **_SERVERS,
}
DEFAULT = "dcgm"
MEASURED = replace(
    _DCGM, summary="dcgm-exporter 4.8.3, with readings of NVML", series=series.of("dcgm")
)
"""For real GPUs: without the profiling fields, which NVML does not have."""
