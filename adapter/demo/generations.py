"""Series, units and labels of each generation of GPU exporters.

Sources: the counter files and the label code of the exporters, release by release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapter.demo import labels
from adapter.demo.fleet import MEMORY, Gpu, Reading

MIB = 1048576.0


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of an exporter."""

    name: str
    help: str
    value: Callable[[Reading], float]
    whole: bool = False
    """Whether MIG instances lack this metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


_DEV = (
    Series("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda r: r.sm_clock),
    Series("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda r: r.memory_clock),
    Series("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda r: r.temperature),
    Series("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda r: r.power),
    Series("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda r: r.utilization, whole=True),
    Series(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "Memory utilization (in %).",
        lambda r: r.memory_copy,
        whole=True,
    ),
    Series("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", lambda r: r.memory_free),
    Series("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", lambda r: r.memory_used),
)
_PROF = (
    Series(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        lambda r: r.graphics,
    ),
    Series(
        "DCGM_FI_PROF_SM_ACTIVE",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        lambda r: r.sm,
    ),
    Series(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda r: r.tensor,
    ),
    Series(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active.",
        lambda r: r.dram,
    ),
)
_RENAMED = (
    Series("DCGM_FI_DEV_SM_CLOCK_HERTZ", "SM clock frequency (in Hz).", lambda r: r.sm_clock * 1e6),
    Series(
        "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
        "Memory clock frequency (in Hz).",
        lambda r: r.memory_clock * 1e6,
    ),
    Series("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "GPU temperature (in C).", lambda r: r.temperature),
    Series("DCGM_FI_DEV_BOARD_POWER_WATTS", "Board power draw (in W).", lambda r: r.power),
    Series(
        "DCGM_FI_DEV_GPU_UTIL_RATIO", "GPU utilization (0 to 1).", lambda r: r.utilization / 100
    ),
    Series(
        "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        "Memory utilization (0 to 1).",
        lambda r: r.memory_copy / 100,
    ),
    Series(
        "DCGM_FI_DEV_FB_FREE_BYTES",
        "Framebuffer memory free (in bytes).",
        lambda r: r.memory_free * MIB,
    ),
    Series(
        "DCGM_FI_DEV_FB_USED_BYTES",
        "Framebuffer memory used (in bytes).",
        lambda r: r.memory_used * MIB,
    ),
    Series(
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "Graphics engine utilization (0 to 1).",
        lambda r: r.graphics,
    ),
    Series("DCGM_FI_PROF_SM_UTIL_RATIO", "SM utilization (0 to 1).", lambda r: r.sm),
    Series(
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "Tensor pipe utilization (0 to 1).", lambda r: r.tensor
    ),
    Series(
        "DCGM_FI_PROF_DRAM_UTIL_RATIO", "Memory interface utilization (0 to 1).", lambda r: r.dram
    ),
)
_COMPAT = (
    Series("dcgm_sm_clock", "SM clock frequency (in MHz).", lambda r: r.sm_clock),
    Series("dcgm_memory_clock", "Memory clock frequency (in MHz).", lambda r: r.memory_clock),
    Series("dcgm_gpu_temp", "GPU temperature (in C).", lambda r: r.temperature),
    Series("dcgm_power_usage", "Power draw (in W).", lambda r: r.power),
    Series("dcgm_gpu_utilization", "GPU utilization (in %).", lambda r: r.utilization),
    Series("dcgm_mem_copy_utilization", "Memory utilization (in %).", lambda r: r.memory_copy),
    Series("dcgm_fb_free", "Framebuffer memory free (in MiB).", lambda r: r.memory_free),
    Series("dcgm_fb_used", "Framebuffer memory used (in MiB).", lambda r: r.memory_used),
)
_COMPAT_PROF = (
    Series("dcgm_fi_prof_gr_engine_active", "Graphics engine active.", lambda r: r.graphics),
    Series("dcgm_fi_prof_pipe_tensor_active", "Tensor pipe active.", lambda r: r.tensor),
    Series("dcgm_fi_prof_dram_active", "Memory interface active.", lambda r: r.dram),
)
_NVIDIA = (
    Series(
        "nvidia_gpu_duty_cycle", "Percent of time the GPU was processing.", lambda r: r.utilization
    ),
    Series("nvidia_gpu_memory_used_bytes", "Memory used in bytes.", lambda r: r.memory_used * MIB),
    Series("nvidia_gpu_memory_total_bytes", "Total memory in bytes.", lambda _: MEMORY * MIB),
    Series(
        "nvidia_gpu_power_usage_milliwatts", "Power usage in milliwatts.", lambda r: r.power * 1000
    ),
    Series("nvidia_gpu_temperature_celsius", "Temperature in celsius.", lambda r: r.temperature),
)
_GKE = (
    Series(
        "duty_cycle", "Percent of time the accelerator was processing.", lambda r: r.utilization
    ),
    Series("memory_used", "Memory allocated in bytes.", lambda r: r.memory_used * MIB),
    Series("memory_total", "Total memory in bytes.", lambda _: MEMORY * MIB),
)
_HAMI = (
    Series(
        "hami_container_device_utilization_ratio",
        "Container device utilization (in %).",
        lambda r: r.utilization,
    ),
    Series("hami_vgpu_memory_used_bytes", "vGPU memory used.", lambda r: r.memory_used * MIB),
    Series("hami_vgpu_memory_limit_bytes", "vGPU memory limit.", lambda _: MEMORY * MIB),
)
_SMI = (
    Series("nvidia_smi_utilization_gpu_ratio", "utilization.gpu", lambda r: r.utilization / 100),
    Series("nvidia_smi_memory_used_bytes", "memory.used", lambda r: r.memory_used * MIB),
    Series("nvidia_smi_power_draw_watts", "power.draw", lambda r: r.power),
    Series("nvidia_smi_temperature_gpu", "temperature.gpu", lambda r: r.temperature),
)

GENERATIONS: Mapping[str, Generation] = {
    "dcgm": Generation(
        preset="gpu-dcgm", summary="dcgm-exporter 4.8.3", series=_DEV + _PROF, labels=labels.dcgm()
    ),
    "dcgm-4.8": Generation(
        preset="gpu-dcgm",
        summary="dcgm-exporter 3.5 to 4.8.2",
        series=_DEV + _PROF,
        labels=labels.dcgm(hostname="Hostname"),
    ),
    "dcgm-2": Generation(
        preset="gpu-dcgm", summary="dcgm-exporter 2.6", series=_DEV, labels=labels.dcgm2
    ),
    "dcgm-4.9": Generation(
        preset="gpu-dcgm49",
        summary="dcgm-exporter 4.9 with renamed fields",
        series=_RENAMED,
        labels=labels.dcgm(driver="DCGM_FI_SYSTEM_DRIVER_VERSION"),
    ),
    "dcgm-mig": Generation(
        preset="gpu-dcgm-mig",
        summary="dcgm-exporter with MIG instances",
        series=_DEV + _PROF,
        labels=labels.dcgm(),
        mig=True,
    ),
    "dcgm-no-pods": Generation(
        preset="gpu-node",
        summary="dcgm-exporter without Kubernetes mapping",
        series=_DEV + _PROF,
        labels=labels.dcgm(pods=False),
    ),
    "compat": Generation(
        preset="gpu-dcgm-compat",
        summary="dcgm-exporter with the 1.x counter file",
        series=_COMPAT + _COMPAT_PROF,
        labels=labels.dcgm2,
    ),
    "compat-old-namespace": Generation(
        preset="gpu-dcgm1x",
        summary="dcgm-exporter with the 1.x counter file and old label names",
        series=_COMPAT,
        labels=labels.dcgm2_old_namespace,
    ),
    "dcgm-1": Generation(
        preset="gpu-dcgm1x",
        summary="gpu-monitoring-tools 1.x",
        series=_COMPAT,
        labels=labels.dcgm1,
    ),
    "alibaba": Generation(
        preset="gpu-nvidia-alibaba",
        summary="Alibaba's gpu-prometheus-exporter",
        series=_NVIDIA,
        labels=labels.alibaba,
    ),
    "nvidia-gpu": Generation(
        preset="gpu-node",
        summary="nvidia_gpu_prometheus_exporter, without pod labels",
        series=_NVIDIA,
        labels=labels.nvidia_gpu,
    ),
    "gke-plugin": Generation(
        preset="gpu-gke-plugin",
        summary="GKE's device plugin",
        series=_GKE,
        labels=labels.gke,
        idle=False,
    ),
    "hami": Generation(
        preset="gpu-hami",
        summary="HAMi's vGPU monitor",
        series=_HAMI,
        labels=labels.hami,
        idle=False,
    ),
    "nvidia-smi": Generation(
        preset="gpu-node",
        summary="nvidia_gpu_exporter, without pod labels",
        series=_SMI,
        labels=labels.nvidia_smi,
    ),
}
DEFAULT = "dcgm"
