"""The metrics of each preset, their units, and where golden.json has the expected values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules import presets


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One API name."""

    unit: str
    golden: str
    """Key of the expected value in golden.json."""
    meaning: str


METRICS: Mapping[str, Metric] = {
    "duty_cycle_current": Metric(
        unit="%",
        golden="duty_cycle_current",
        meaning="average share of time in which the GPU was busy",
    ),
    "memory_used_bytes_current": Metric(
        unit="bytes", golden="memory_used_bytes_current", meaning="sum of used memory"
    ),
    "memory_utilization_current": Metric(
        unit="%",
        golden="memory_utilization_percent",
        meaning="used memory as a share of usable memory",
    ),
    "memory_total_bytes_current": Metric(
        unit="bytes", golden="memory_total_bytes_current", meaning="sum of total memory"
    ),
    "temperature_celsius_current": Metric(
        unit="°C", golden="temperature_celsius_current", meaning="maximum"
    ),
    "power_usage_milliwatts_current": Metric(
        unit="mW", golden="power_usage_milliwatts_current", meaning="sum over boards"
    ),
    "gr_engine_active_current": Metric(
        unit="%",
        golden="gr_engine_active_percent",
        meaning="average activity of the graphics and compute engines",
    ),
    "sm_active_current": Metric(
        unit="%", golden="sm_active_percent", meaning="average activity of the multiprocessors"
    ),
    "tensor_active_current": Metric(
        unit="%", golden="tensor_active_percent", meaning="average activity of the tensor pipes"
    ),
    "dram_active_current": Metric(
        unit="%", golden="dram_active_percent", meaning="average activity of the memory interface"
    ),
}

PRESETS: Mapping[str, tuple[str, ...]] = {
    name: tuple(metric for metric in METRICS if f"as: {metric}" in presets.text(name))
    for name in presets.names()
    if name.startswith("gpu-")
}
"""Names with `_current`; each except memory_utilization also exists with `_over_time`."""

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "c1-2.4.0-default": ("gpu-dcgm",),
    "c2-2.6-default": ("gpu-dcgm",),
    "c3-3.6.1-dcp": ("gpu-dcgm", "gpu-dcgm-prof"),
    "c4-4.8.2-default": ("gpu-dcgm", "gpu-dcgm-prof", "gpu-dcgm-mig"),
    "c4-4.8.2-helm": ("gpu-dcgm", "gpu-dcgm-prof"),
    "c4-4.8.2-sm-uid-podlabels": ("gpu-dcgm", "gpu-dcgm-prof"),
    "c5-4.8.3-hostname": ("gpu-dcgm", "gpu-dcgm-prof"),
    "d1-4.9.0-renamed": ("gpu-dcgm49", "gpu-dcgm-prof"),
    "b0-compat-2.1.8-rc2": ("gpu-dcgm-compat", "gpu-dcgm-prof"),
    "b2-compat-2x": ("gpu-dcgm-compat", "gpu-dcgm-prof"),
    "b3-compat-oldns": ("gpu-dcgm1x", "gpu-dcgm-compat", "gpu-dcgm-prof"),
    "b1-dcgm-1x": ("gpu-dcgm1x", "gpu-dcgm-compat"),
    "a2-alibaba": ("gpu-nvidia-alibaba",),
    "a3-gke-device-plugin": ("gpu-gke-plugin",),
    "e1-hami": ("gpu-hami",),
}
"""Exporter variant -> presets that read it."""

TITLES: Mapping[str, str] = {
    "a1-mindprince": "nvidia_gpu_prometheus_exporter",
    "a2-alibaba": "Alibaba gpu-prometheus-exporter",
    "a3-gke-device-plugin": "GKE device plugin",
    "b0-compat-2.1.8-rc2": "dcgm-exporter 2.4.0-rc.2, 1.x counters",
    "b1-dcgm-1x": "gpu-monitoring-tools 1.x",
    "b2-compat-2x": "dcgm-exporter 2.x and later, 1.x counters",
    "b3-compat-oldns": "the same with `--use-old-namespace`",
    "c1-2.4.0-default": "dcgm-exporter 2.4.0, default counters",
    "c2-2.6-default": "dcgm-exporter 2.6, default counters",
    "c3-3.6.1-dcp": "dcgm-exporter 3.6.1, dcp counters",
    "c4-4.8.2-default": "dcgm-exporter 4.8.2, default counters",
    "c4-4.8.2-helm": "dcgm-exporter 4.8.2, Helm chart",
    "c4-4.8.2-sm-uid-podlabels": "dcgm-exporter 4.8.2, SM_ACTIVE enabled",
    "c5-4.8.3-hostname": "dcgm-exporter 4.8.3",
    "c6-no-k8s": "dcgm-exporter without Kubernetes mapping",
    "c7-mig": "dcgm-exporter on MIG",
    "d1-4.9.0-renamed": "dcgm-exporter 4.9",
    "e1-hami": "HAMi vGPU monitor",
    "e2-nvidia-smi": "nvidia_gpu_exporter",
}
"""Exporter variant -> its title in docs/presets.md."""

LACKING: Mapping[str, frozenset[str]] = {
    "c1-2.4.0-default": frozenset({"duty_cycle_current"}),
    "d1-4.9.0-renamed": frozenset({"sm_active_current"}),
    "c3-3.6.1-dcp": frozenset({"sm_active_current"}),
    "c4-4.8.2-default": frozenset({"sm_active_current"}),
    "c4-4.8.2-helm": frozenset({"sm_active_current"}),
    "c5-4.8.3-hostname": frozenset({"sm_active_current"}),
    "b0-compat-2.1.8-rc2": frozenset({"sm_active_current"}),
    "b2-compat-2x": frozenset({"sm_active_current"}),
    "b3-compat-oldns": frozenset({"sm_active_current"}),
}
"""Exporter variant -> metrics that it does not report."""

NODES: Mapping[str, tuple[str, ...]] = {
    "c1-2.4.0-default": (),
    "c2-2.6-default": ("bare",),
    "b0-compat-2.1.8-rc2": ("bare",),
    "b1-dcgm-1x": ("bare",),
    "b2-compat-2x": ("bare",),
    "b3-compat-oldns": ("bare",),
    "a3-gke-device-plugin": (),
    "e1-hami": (),
}
"""Exporter variant -> schemes in which series name their node; all schemes if absent."""

SERVER_METRICS: Mapping[str, tuple[str, str]] = {
    "requests_waiting_current": ("requests", "sum of the requests that wait"),
    "requests_running_current": ("requests", "sum of the requests in the running batches"),
    "requests_active_current": ("requests", "sum of both"),
    "kv_cache_utilization_current": ("%", "used KV cache of the fullest engine"),
    "prompt_tokens_per_second_over_time": ("tokens/s", "sum, mean of two minutes"),
    "generation_tokens_per_second_over_time": ("tokens/s", "sum, mean of two minutes"),
    "requests_per_second_over_time": ("requests/s", "sum, mean of two minutes"),
    "time_to_first_token_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "inter_token_latency_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "request_latency_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "queue_time_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "queue_time_average_milliseconds_over_time": ("ms", "mean of five minutes"),
}
"""API names of the presets for model servers -> unit, and value for an object."""

_WAITING, _RUNNING, _ACTIVE, _KV, _PROMPT, _GENERATION, _REQUESTS, *_TIMES = SERVER_METRICS
_FIRST, _BETWEEN, _WHOLE, _QUEUE_P95, _QUEUE_MEAN = _TIMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A model server and release: tests/fixtures/servers has its exposition."""

    title: str
    preset: str
    lacking: frozenset[str] = frozenset()
    """Metrics that it does not report."""


SERVERS: Mapping[str, Server] = {
    "vllm": Server(title="vLLM 0.12 or later", preset="inference-vllm"),
    "vllm-0.10": Server(title="vLLM 0.9.2 to 0.11", preset="inference-vllm"),
    "vllm-0.8": Server(title="vLLM 0.8, also its v0 engine", preset="inference-vllm"),
    "sglang": Server(title="SGLang", preset="inference-sglang"),
    "tgi": Server(
        title="Text Generation Inference 3",
        preset="inference-tgi",
        lacking=frozenset({_FIRST}),
    ),
    "tei": Server(
        title="Text Embeddings Inference",
        preset="inference-tei",
        lacking=frozenset({_RUNNING, _ACTIVE, _KV, _GENERATION, _FIRST, _BETWEEN}),
    ),
    "triton": Server(
        title="Triton with histograms",
        preset="inference-triton",
        lacking=frozenset(
            {_RUNNING, _ACTIVE, _KV, _PROMPT, _GENERATION, _BETWEEN, _WHOLE, _QUEUE_P95}
        ),
    ),
    "triton-trtllm": Server(
        title="Triton with TensorRT-LLM",
        preset="inference-triton",
        lacking=frozenset({_PROMPT, _GENERATION, _FIRST, _BETWEEN, _WHOLE, _QUEUE_P95}),
    ),
    "triton-vllm": Server(
        title="Triton with vLLM",
        preset="inference-triton",
        lacking=frozenset({_QUEUE_P95}),
    ),
    "nim": Server(
        title="NIM for LLMs 1.x",
        preset="inference-nim",
        lacking=frozenset({_QUEUE_P95, _QUEUE_MEAN}),
    ),
    "lmdeploy": Server(title="LMDeploy 0.10 or later", preset="inference-lmdeploy"),
    "lmdeploy-0.9.2": Server(
        title="LMDeploy 0.9.2", preset="inference-lmdeploy", lacking=frozenset({_REQUESTS})
    ),
    "trtllm": Server(title="trtllm-serve", preset="inference-trtllm"),
    "llamacpp": Server(
        title="llama.cpp",
        preset="inference-llamacpp",
        lacking=frozenset({_KV, _REQUESTS, *_TIMES}),
    ),
}
"""Fixture -> server."""
