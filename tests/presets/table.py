"""What every preset gives: each API name, its unit, and where golden.json has the truth of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One API name."""

    unit: str
    golden: str
    """The key of a pod in golden.json."""


METRICS: Mapping[str, Metric] = {
    "duty_cycle_current": Metric(unit="%", golden="duty_cycle_current"),
    "memory_used_bytes_current": Metric(unit="bytes", golden="memory_used_bytes_current"),
    "memory_utilization_current": Metric(unit="%", golden="memory_utilization_percent"),
    "memory_total_bytes_current": Metric(unit="bytes", golden="memory_total_bytes_current"),
    "temperature_celsius_current": Metric(unit="°C", golden="temperature_celsius_current"),
    "power_usage_milliwatts_current": Metric(unit="mW", golden="power_usage_milliwatts_current"),
    "gr_engine_active_current": Metric(unit="%", golden="gr_engine_active_percent"),
    "sm_active_current": Metric(unit="%", golden="sm_active_percent"),
    "tensor_active_current": Metric(unit="%", golden="tensor_active_percent"),
    "dram_active_current": Metric(unit="%", golden="dram_active_percent"),
    "DCGM_FI_DEV_GPU_UTIL": Metric(unit="% (sum)", golden="duty_cycle_sum"),
}

_COMMON = (
    "duty_cycle_current",
    "memory_used_bytes_current",
    "memory_utilization_current",
    "temperature_celsius_current",
    "power_usage_milliwatts_current",
)
_TOTAL = (*_COMMON, "memory_total_bytes_current")
_WITHOUT_SENSORS = _TOTAL[:3]

PRESETS: Mapping[str, tuple[str, ...]] = {
    "gpu-dcgm": _COMMON,
    "gpu-dcgm-compat": _COMMON,
    "gpu-dcgm-mig": _COMMON,
    "gpu-dcgm-prof": (
        "gr_engine_active_current",
        "sm_active_current",
        "tensor_active_current",
        "dram_active_current",
    ),
    "gpu-dcgm1x": _COMMON,
    "gpu-dcgm49": _COMMON,
    "gpu-gke-plugin": (*_WITHOUT_SENSORS, "memory_total_bytes_current"),
    "gpu-hami": _WITHOUT_SENSORS,
    "gpu-node": _TOTAL,
    "gpu-nvidia-alibaba": _TOTAL,
}
"""The names that end in `_current`; each has its twin in `_over_time`, memory_utilization excepted."""
