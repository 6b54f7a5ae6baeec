"""Generations of GPU exporters: the series and labels that identify them, and their presets.

`GENERATIONS` is sorted from new to old, which is the order in which presets are combined. Its
sources are the counter files and label code of each exporter release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROFILING = "gpu-dcgm-prof"
MIG = "gpu-dcgm-mig"
NODE = "gpu-node"
OLD_NAMES = "gpu-dcgm1x"

POD_LABELS = ("exported_pod", "pod_name", "pod")
"""Labels that name a pod, in the presets' order of preference."""

_ALIBABA = frozenset({"pod_name", "namespace_name", "node_name", "allocate_mode"})
_DCGM_NODES = ("node", "hostname", "Hostname")
NODE_LABELS = (*_DCGM_NODES, "instance")
"""Labels that name a node in the preset `NODE`, in order of preference."""
OLD_NAMES_NODE_LABELS = ("node",)
"""Labels that name a node in the preset `OLD_NAMES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Exporters and releases with the same series names."""

    name: str
    title: str
    preset: str
    """Preset for series that name pods; empty if none reads them."""
    podless_preset: str = ""
    """Preset for series that do not name pods; empty for the same preset."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` -> the series that it needs, in `preset`."""
    profiling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` -> the series that it needs, in the preset `PROFILING`."""
    other_series: tuple[str, ...] = ()
    """Further series that identify the generation."""
    required_labels: frozenset[str] = frozenset()
    """Series count only with one of these labels, where names are ambiguous; empty for all."""
    excluded_labels: frozenset[str] = frozenset()
    """Series with one of these labels belong to another generation."""
    node_labels: tuple[str, ...] = ()
    """Labels that name a node in `preset`, in order of preference."""

    @property
    def series(self) -> frozenset[str]:
        """Return the names of all series that identify the generation or that presets read."""
        return needed(self.fields) | needed(self.profiling) | frozenset(self.other_series)


def needed(fields: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return all series of `Generation.fields` or `Generation.profiling`."""
    return frozenset[str]().union(*fields.values())


_NVIDIA_GPU_FIELDS = {
    "duty_cycle": ("nvidia_gpu_duty_cycle",),
    "memory_used_bytes": ("nvidia_gpu_memory_used_bytes",),
    "memory_utilization": (
        "nvidia_gpu_memory_used_bytes",
        "nvidia_gpu_memory_total_bytes",
    ),
    "memory_total_bytes": ("nvidia_gpu_memory_total_bytes",),
    "temperature_celsius": ("nvidia_gpu_temperature_celsius",),
    "power_usage_milliwatts": ("nvidia_gpu_power_usage_milliwatts",),
}

GENERATIONS = (
    Generation(
        name="hami",
        title="HAMi's vGPU monitor (hami_*)",
        preset="gpu-hami",
        fields={
            "duty_cycle": ("hami_container_device_utilization_ratio",),
            "memory_used_bytes": ("hami_vgpu_memory_used_bytes",),
            "memory_utilization": ("hami_vgpu_memory_used_bytes", "hami_vgpu_memory_limit_bytes"),
        },
    ),
    Generation(
        name="hami-old",
        title="HAMi's vGPU monitor under its old names",
        preset="",
        other_series=("Device_utilization_desc_of_container", "vGPU_device_memory_usage_in_bytes"),
    ),
    Generation(
        name="dcgm49",
        title="dcgm-exporter 4.9 or later (DCGM_FI_*_RATIO, _BYTES)",
        preset="gpu-dcgm49",
        fields={
            "duty_cycle": ("DCGM_FI_DEV_GPU_UTIL_RATIO",),
            "memory_used_bytes": ("DCGM_FI_DEV_FB_USED_BYTES",),
            "memory_utilization": ("DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_FREE_BYTES"),
            "temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS",),
            "power_usage_milliwatts": ("DCGM_FI_DEV_BOARD_POWER_WATTS",),
        },
        profiling={
            "gr_engine_active": ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",),
            "sm_active": ("DCGM_FI_PROF_SM_UTIL_RATIO",),
            "tensor_active": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO",),
            "dram_active": ("DCGM_FI_PROF_DRAM_UTIL_RATIO",),
        },
        other_series=("DCGM_FI_DEV_SM_CLOCK_HERTZ", "DCGM_FI_DEV_XID_ERROR"),
        node_labels=_DCGM_NODES,
    ),
    Generation(
        name="dcgm",
        title="dcgm-exporter 2.x to 4.8 (DCGM_FI_*)",
        preset="gpu-dcgm",
        podless_preset=NODE,
        fields={
            "duty_cycle": ("DCGM_FI_DEV_GPU_UTIL",),
            "memory_used_bytes": ("DCGM_FI_DEV_FB_USED",),
            "memory_utilization": ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
            "temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP",),
            "power_usage_milliwatts": ("DCGM_FI_DEV_POWER_USAGE",),
        },
        profiling={
            "gr_engine_active": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
            "sm_active": ("DCGM_FI_PROF_SM_ACTIVE",),
            "tensor_active": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",),
            "dram_active": ("DCGM_FI_PROF_DRAM_ACTIVE",),
        },
        other_series=(
            "DCGM_FI_DEV_SM_CLOCK",
            "DCGM_FI_DEV_MEM_COPY_UTIL",
            "DCGM_FI_DEV_XID_ERRORS",
        ),
        node_labels=_DCGM_NODES,
    ),
    Generation(
        name="dcgm-compat",
        title="dcgm-exporter with the counter file of its 1.x versions, or 1.x itself (dcgm_*)",
        preset="gpu-dcgm-compat",
        fields={
            "duty_cycle": ("dcgm_gpu_utilization",),
            "memory_used_bytes": ("dcgm_fb_used",),
            "memory_utilization": ("dcgm_fb_used", "dcgm_fb_free"),
            "temperature_celsius": ("dcgm_gpu_temp",),
            "power_usage_milliwatts": ("dcgm_power_usage",),
        },
        profiling={
            "gr_engine_active": ("dcgm_fi_prof_gr_engine_active",),
            "tensor_active": ("dcgm_fi_prof_pipe_tensor_active",),
            "dram_active": ("dcgm_fi_prof_dram_active",),
        },
        other_series=("dcgm_sm_clock", "dcgm_mem_copy_utilization", "dcgm_xid_errors"),
        node_labels=_DCGM_NODES,
    ),
    Generation(
        name="gke-plugin",
        title="GKE's device plugin (duty_cycle, memory_used, memory_total)",
        preset="gpu-gke-plugin",
        fields={
            "duty_cycle": ("duty_cycle",),
            "memory_used_bytes": ("memory_used",),
            "memory_utilization": ("memory_used", "memory_total"),
            "memory_total_bytes": ("memory_total",),
        },
        other_series=("duty_cycle_gpu_node",),
        required_labels=frozenset({"accelerator_id"}),
    ),
    Generation(
        name="nvidia-alibaba",
        title="Alibaba's gpu-prometheus-exporter (nvidia_gpu_*)",
        preset="gpu-nvidia-alibaba",
        fields=_NVIDIA_GPU_FIELDS,
        required_labels=_ALIBABA,
        node_labels=("node_name",),
    ),
    Generation(
        name="nvidia",
        title="nvidia_gpu_prometheus_exporter (nvidia_gpu_*)",
        preset=NODE,
        fields=_NVIDIA_GPU_FIELDS,
        excluded_labels=_ALIBABA,
        node_labels=NODE_LABELS,
    ),
    Generation(
        name="nvidia-smi",
        title="nvidia_gpu_exporter (nvidia_smi_*)",
        preset=NODE,
        fields={
            "duty_cycle": ("nvidia_smi_utilization_gpu_ratio",),
            "memory_used_bytes": ("nvidia_smi_memory_used_bytes",),
            "temperature_celsius": ("nvidia_smi_temperature_gpu",),
            "power_usage_milliwatts": ("nvidia_smi_power_draw_watts",),
        },
        node_labels=NODE_LABELS,
    ),
)

SERIES = tuple(sorted(frozenset[str]().union(*(each.series for each in GENERATIONS))))
"""All series that identify a generation or that presets read."""

LABELS = tuple(
    sorted(
        {
            *POD_LABELS,
            *NODE_LABELS,
            *(
                label
                for each in GENERATIONS
                for label in (*each.node_labels, *each.required_labels)
            ),
            *("UUID", "uuid", "pci_bus_id"),  # exporter release, and its spelling of the GPU
            *("GPU_I_PROFILE", "vgpu", "dra_claim_name"),  # sharing of GPUs
        }
    )
)
"""All labels that matter to the detection."""
