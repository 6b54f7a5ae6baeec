"""Series, units and labels of each generation of GPU exporters, also with model servers.

Sources: the counter files and the label code of the exporters, release by release. `series.csv` has
the series: what each reports is a reading of the GPU times a factor.
"""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from adapter.cli.demo import labels, serving
from adapter.cli.demo.fleet import Gpu, Reading


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of an exporter."""

    name: str
    help: str
    reading: str
    """Field of Reading."""
    factor: float
    whole: bool
    """Whether MIG instances lack this metric."""

    def value(self, reading: Reading) -> float:
        """Return the value in the unit of the exporter."""
        number: float = getattr(reading, self.reading)
        return number * self.factor


@dataclass(frozen=True, slots=True)
class Generation:
    """Exporters with the same series and labels."""

    preset: str
    """Preset with the rules for these series."""
    summary: str
    series: tuple[Series, ...]
    labels: Callable[[Gpu], Mapping[str, str]]
    mig: bool = False
    """Whether some GPUs of the fleet are split into MIG instances."""
    idle: bool = True
    """Whether idle GPUs are reported."""
    server: serving.Server | None = None
    """Model server in each pod, which exposes metrics of its own."""


def _series(*exporters: str) -> tuple[Series, ...]:
    """Return the series of some exporters, in the order of the file."""
    text = importlib.resources.files(__package__).joinpath("series.csv").read_text(encoding="utf-8")
    return tuple(
        Series(
            row["series"], row["help"], row["reading"], float(row["factor"]), bool(row["not_mig"])
        )
        for row in csv.DictReader(text.splitlines())
        if row["exporter"] in exporters
    )


_EXPORTERS: Mapping[str, Generation] = {
    "dcgm": Generation(
        "gpu-dcgm", "dcgm-exporter 4.8.3", _series("dcgm", "dcgm-prof"), labels.dcgm()
    ),
    "dcgm-4.8": Generation(
        "gpu-dcgm",
        "dcgm-exporter 3.5 to 4.8.2",
        _series("dcgm", "dcgm-prof"),
        labels.dcgm(hostname="Hostname"),
    ),
    "dcgm-2": Generation("gpu-dcgm", "dcgm-exporter 2.6", _series("dcgm"), labels.dcgm2),
    "dcgm-4.9": Generation(
        "gpu-dcgm49",
        "dcgm-exporter 4.9 with renamed fields",
        _series("dcgm-renamed"),
        labels.dcgm(driver="DCGM_FI_SYSTEM_DRIVER_VERSION"),
    ),
    "dcgm-mig": Generation(
        "gpu-dcgm-mig",
        "dcgm-exporter with MIG instances",
        _series("dcgm", "dcgm-prof"),
        labels.dcgm(),
        mig=True,
    ),
    "dcgm-no-pods": Generation(
        "gpu-node",
        "dcgm-exporter without Kubernetes mapping",
        _series("dcgm", "dcgm-prof"),
        labels.dcgm(pods=False),
    ),
    "compat": Generation(
        "gpu-dcgm-compat",
        "dcgm-exporter with the 1.x counter file",
        _series("compat", "compat-prof"),
        labels.dcgm2,
    ),
    "compat-old-namespace": Generation(
        "gpu-dcgm1x",
        "dcgm-exporter with the 1.x counter file and old label names",
        _series("compat"),
        labels.dcgm2_old_namespace,
    ),
    "dcgm-1": Generation("gpu-dcgm1x", "gpu-monitoring-tools 1.x", _series("compat"), labels.dcgm1),
    "alibaba": Generation(
        "gpu-nvidia-alibaba",
        "Alibaba's gpu-prometheus-exporter",
        _series("nvidia-gpu"),
        labels.alibaba,
    ),
    "nvidia-gpu": Generation(
        "gpu-node",
        "nvidia_gpu_prometheus_exporter, without pod labels",
        _series("nvidia-gpu"),
        labels.nvidia_gpu,
    ),
    "gke-plugin": Generation(
        "gpu-gke-plugin", "GKE's device plugin", _series("gke"), labels.gke, idle=False
    ),
    "hami": Generation("gpu-hami", "HAMi's vGPU monitor", _series("hami"), labels.hami, idle=False),
    "nvidia-smi": Generation(
        "gpu-node",
        "nvidia_gpu_exporter, without pod labels",
        _series("nvidia-smi"),
        labels.nvidia_smi,
    ),
}
GENERATIONS: Mapping[str, Generation] = {
    **_EXPORTERS,
    **{
        name: replace(
            _EXPORTERS["dcgm"], server=server, summary=f"dcgm-exporter 4.8.3, {server.title}"
        )
        for name, server in serving.SERVERS.items()
    },
}
DEFAULT = "dcgm"
MEASURED = Generation(
    "gpu-dcgm", "dcgm-exporter 4.8.3, with readings of NVML", _series("dcgm"), labels.dcgm()
)
"""For real GPUs: without the profiling fields, which NVML does not have."""
