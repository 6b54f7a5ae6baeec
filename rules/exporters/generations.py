"""Generations of GPU exporters, model servers and gateways: their series, labels and presets.

`GENERATIONS` is sorted from new to old, which is the order in which presets are combined. Its
sources are the counter files and label code of each exporter release, and the metrics code of each
model server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

PROFILING = "gpu-dcgm-prof"
MIG = "gpu-dcgm-mig"
NODE = "gpu-node"
OLD_NAMES = "gpu-dcgm1x"
HAMI_OLD = "hami-old"
"""Generation whose series HAMI reports beside its new ones, which suffice."""

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
    """Exporters, model servers or gateways, and releases with the same series names."""

    name: str
    title: str
    preset: str
    """Preset for series that name pods; empty if none reads them."""
    podless_preset: str = ""
    """Preset for series that do not name pods; empty for the same preset."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` or `_over_time` -> the series that it needs, in `preset`.

    A histogram is named by its `_count`, which has the fewest series.
    """
    profiling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` -> the series that it needs, in the preset `PROFILING`."""
    other_series: tuple[str, ...] = ()
    """Further series that identify the generation."""
    required_labels: frozenset[str] = frozenset()
    """Series count only with one of these labels, where names are ambiguous; empty for all."""
    matcher: str = ""
    """Only series that it matches count, where names and labels are ambiguous; empty for all."""
    own_series: frozenset[str] = frozenset()
    """Those that no server with `rival` reports; others of these names are then the rival's."""
    rival: str = ""
    """A series that only another server with the same names reports; empty without one."""
    excluded_labels: frozenset[str] = frozenset()
    """Series with one of these labels belong to another generation."""
    node_labels: tuple[str, ...] = ()
    """Labels that name a node in `preset`, in order of preference."""
    server: bool = False
    """Whether it is a model server or gateway: its series belong to the pod that is scraped."""
    external: bool = False
    """Whether it is a gateway: its metrics are external ones, of a namespace and not of a pod."""
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Series -> its names in other releases, which `preset` reads as well."""
    late: bool = False
    """Whether series of requests appear with the first request."""
    advice: str = ""
    """How to get series that are missing; without a preset, why none reads them."""
    repeats: str = ""
    """What to do about series that it repeats from servers; empty if it repeats none."""

    @property
    def is_unread(self) -> bool:
        """Whether no preset reads it, and `advice` says so."""
        return not self.preset and bool(self.advice)

    @property
    def series(self) -> frozenset[str]:
        """Return the names of all series that identify the generation or that presets read."""
        return (
            needed(self.fields)
            | needed(self.profiling)
            | needed(self.other_names)
            | frozenset(self.other_series)
        )


def needed(fields: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return all series of `Generation.fields`, `profiling` or `other_names`."""
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


def _unread(
    name: str, title: str, *series: str, server: bool = False, labels: str = "", matcher: str = ""
) -> Generation:
    """Return a generation that no preset reads; `series` are some of its series."""
    return Generation(
        name=name,
        title=title,
        preset="",
        other_series=series,
        required_labels=frozenset(labels.split()),
        matcher=matcher,
        server=server,
        advice="no preset reads these series. Write rules for them, and load them with --config",
    )


_OTHER_ACCELERATORS = (
    _unread(
        "amd",
        "AMD's device-metrics-exporter (gpu_gfx_activity)",
        *("gpu_gfx_activity", "amd_gpu_gfx_activity", "GPU_GFX_ACTIVITY", "gpu_used_vram"),
    ),
    _unread("amd-smi", "AMD's amd_smi_exporter (amd_gpu_*)", "amd_gpu_use_percent"),
    _unread(
        "gaudi",
        "Intel Gaudi's exporter (habanalabs_*)",
        *("habanalabs_utilization", "habanalabs_memory_used_bytes"),
    ),
    _unread(
        "neuron",
        "AWS's neuron-monitor (neuroncore_*)",
        *("neuroncore_utilization_ratio", "neuron_runtime_memory_used_bytes"),
    ),
    _unread(
        "intel-xpum",
        "Intel's XPU Manager (xpum_*)",
        *("xpum_engine_ratio", "xpum_engine_group_ratio", "xpum_memory_used_bytes"),
    ),
    _unread("intel-xpumd", "Intel's xpumd 2 (hw_gpu_*)", "hw_gpu_utilization_ratio"),
    _unread(
        "ascend",
        "Ascend's npu-exporter (npu_chip_info_*)",
        *("npu_chip_info_utilization", "container_npu_utilization"),
    ),
    _unread("cambricon", "Cambricon's mlu-exporter (mlu_*)", "mlu_utilization"),
    _unread("enflame", "Enflame's gcu-exporter (enflame_gcu_*)", "enflame_gcu_usage"),
    _unread("furiosa", "Furiosa's exporter (furiosa_npu_*)", "furiosa_npu_core_utilization"),
    _unread("hygon", "Hygon's dcu-exporter (dcu_*)", "dcu_utilizationrate", "dcu_usedmemory_bytes"),
    _unread("iluvatar", "Iluvatar's ix-exporter (ix_*)", "ix_gpu_utilization", "ix_mem_used"),
    _unread("metax", "MetaX's mx-exporter (mx_*)", "mx_gpu_usage"),
)
_OTHER_SERVERS = (
    _unread(
        "mindie",
        "MindIE (npu_cache_usage_perc)",
        *("npu_cache_usage_perc", "failed_request_perc"),
        server=True,
        labels="model_name",
    ),
    _unread(
        "ray-vllm",
        "vLLM in Ray (ray_vllm_*)",
        *("ray_vllm_num_requests_waiting", "ray_vllm_num_requests_running"),
        *("ray_vllm:num_requests_waiting", "ray_vllm:num_requests_running"),
        server=True,
    ),
    _unread(
        "ray-serve", "Ray Serve (ray_serve_*)", "ray_serve_deployment_queued_queries", server=True
    ),
    _unread(
        "dynamo",
        "NVIDIA Dynamo (dynamo_*)",
        *("dynamo_frontend_inflight_requests", "dynamo_component_inflight_requests"),
        server=True,
    ),
    _unread(
        "jetstream",
        "JetStream (jetstream_*)",
        *("jetstream_prefill_backlog_size", "jetstream_slots_used_percentage"),
        server=True,
    ),
    _unread(
        "torchserve",
        "TorchServe (ts_*)",
        *("ts_inference_requests_total", "ts_queue_latency_microseconds"),
        server=True,
    ),
    _unread(
        "kthena",
        "kthena's router (kthena_router_*)",
        "kthena_router_active_downstream_requests",
        server=True,
    ),
)

_LOAD = ("requests_waiting", "requests_running", "requests_active")
_TOKENS = ("prompt_tokens_per_second", "generation_tokens_per_second")
_REQUESTS = "requests_per_second"
_FIRST = "time_to_first_token_p95_milliseconds"
_BETWEEN = "inter_token_latency_p95_milliseconds"
_WHOLE = "request_latency_p95_milliseconds"
_QUEUE = ("queue_time_p95_milliseconds", "queue_time_average_milliseconds")


def _of_load(waiting: str, running: str) -> Mapping[str, tuple[str, ...]]:
    return dict(zip(_LOAD, ((waiting,), (running,), (running,)), strict=True))


def _like_vllm(prefix: str, *, kv_cache: str, between: str) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of a server whose series are named as those of vLLM, with `prefix`."""
    return {
        **_of_load(f"{prefix}num_requests_waiting", f"{prefix}num_requests_running"),
        "kv_cache_utilization": (prefix + kv_cache,),
        _TOKENS[0]: (f"{prefix}prompt_tokens_total",),
        _TOKENS[1]: (f"{prefix}generation_tokens_total",),
        _REQUESTS: (f"{prefix}request_success_total",),
        _FIRST: (f"{prefix}time_to_first_token_seconds_count",),
        _BETWEEN: (f"{prefix}{between}_count",),
        _WHOLE: (f"{prefix}e2e_request_latency_seconds_count",),
        **dict.fromkeys(_QUEUE, (f"{prefix}request_queue_time_seconds_count",)),
    }


_SGLANG: Mapping[str, tuple[str, ...]] = {
    **_of_load("sglang:num_queue_reqs", "sglang:num_running_reqs"),
    "kv_cache_utilization": ("sglang:token_usage",),
    _TOKENS[0]: ("sglang:prompt_tokens_total",),
    _TOKENS[1]: ("sglang:generation_tokens_total",),
    _REQUESTS: ("sglang:num_requests_total",),
    _FIRST: ("sglang:time_to_first_token_seconds_count",),
    _BETWEEN: ("sglang:inter_token_latency_seconds_count",),
    _WHOLE: ("sglang:e2e_request_latency_seconds_count",),
    **dict.fromkeys(_QUEUE, ("sglang:queue_time_seconds_count",)),
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
        name=HAMI_OLD,
        title="HAMi's vGPU monitor under its old names",
        preset="",
        other_series=("Device_utilization_desc_of_container", "vGPU_device_memory_usage_in_bytes"),
        advice="no preset reads these series. Later HAMi versions also report `hami_*`, which "
        "gpu-hami reads",
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
        matcher='make="nvidia"',
    ),
    _unread(
        "gke-tpu",
        "GKE's device plugin for TPUs (make=cloud-tpu)",
        *("duty_cycle", "memory_used", "memory_total", "duty_cycle_node", "tensorcore_utilization"),
        labels="accelerator_id",
        matcher='make="cloud-tpu"',
    ),
    *_OTHER_ACCELERATORS,
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
    Generation(
        name="vllm",
        title="vLLM (vllm:*)",
        preset="inference-vllm",
        server=True,
        fields=_like_vllm(
            "vllm:", kv_cache="kv_cache_usage_perc", between="inter_token_latency_seconds"
        ),
        other_names={
            "vllm:kv_cache_usage_perc": ("vllm:gpu_cache_usage_perc",),
            "vllm:inter_token_latency_seconds_count": ("vllm:time_per_output_token_seconds_count",),
        },
        required_labels=frozenset({"model_name"}),
    ),
    Generation(
        name="sglang",
        title="SGLang (sglang:* or sglang_*)",
        preset="inference-sglang",
        server=True,
        fields=_SGLANG,
        other_names={
            series: (series.replace(":", "_"),) for each in _SGLANG.values() for series in each
        }
        | {
            "sglang:inter_token_latency_seconds_count": (
                "sglang_inter_token_latency_seconds_count",
                "sglang:time_per_output_token_seconds_count",
            )
        },
        late=True,
    ),
    Generation(
        name="sglang-router",
        title="a router that repeats the series of SGLang (`worker_addr`)",
        preset="",
        server=True,
        other_series=("sglang:num_running_reqs", "sglang_num_running_reqs"),
        required_labels=frozenset({"worker_addr"}),
        repeats="it repeats series of its workers. The preset leaves them out; rules of your own "
        'need {worker_addr=""}',
    ),
    Generation(
        name="tgi",
        title="Text Generation Inference (tgi_*)",
        preset="inference-tgi",
        server=True,
        fields={
            **_of_load("tgi_queue_size", "tgi_batch_current_size"),
            "kv_cache_utilization": ("tgi_batch_current_max_tokens", "tgi_batch_max_total_tokens"),
            _TOKENS[0]: ("tgi_request_input_length_count",),
            _TOKENS[1]: ("tgi_request_generated_tokens_count",),
            _REQUESTS: ("tgi_request_count",),
            _BETWEEN: ("tgi_request_mean_time_per_token_duration_count",),
            _WHOLE: ("tgi_request_duration_count",),
            **dict.fromkeys(_QUEUE, ("tgi_request_queue_duration_count",)),
        },
        late=True,
    ),
    Generation(
        name="tei",
        title="Text Embeddings Inference (te_*)",
        preset="inference-tei",
        server=True,
        fields={
            "requests_waiting": ("te_queue_size",),
            _TOKENS[0]: ("te_request_input_length_count",),
            _REQUESTS: ("te_request_count",),
            _WHOLE: ("te_request_duration_count",),
            **dict.fromkeys(_QUEUE, ("te_request_queue_duration_count",)),
        },
        late=True,
    ),
    Generation(
        name="triton",
        title="Triton (nv_inference_*)",
        preset="inference-triton",
        server=True,
        fields={
            "requests_waiting": ("nv_inference_pending_request_count",),
            _REQUESTS: ("nv_inference_request_success",),
            _FIRST: ("nv_inference_first_response_histogram_ms_count",),
            _QUEUE[1]: ("nv_inference_queue_duration_us", "nv_inference_request_success"),
        },
        advice="The histogram needs --metrics-config histogram_latencies=true; the back end "
        "vLLM has a time to the first token of its own",
    ),
    Generation(
        name="triton-trtllm",
        title="TensorRT-LLM in Triton (nv_trt_llm_*)",
        preset="inference-triton",
        server=True,
        fields={
            **dict.fromkeys(_LOAD, ("nv_trt_llm_request_metrics",)),
            "kv_cache_utilization": ("nv_trt_llm_kv_cache_block_metrics",),
        },
    ),
    Generation(
        name="nim",
        title="NIM for LLMs 1.x (num_requests_*, with `model_name`)",
        preset="inference-nim",
        server=True,
        fields={
            metric: series
            for metric, series in _like_vllm(
                "", kv_cache="gpu_cache_usage_perc", between="time_per_output_token_seconds"
            ).items()
            if metric not in _QUEUE
        },
        required_labels=frozenset({"model_name"}),
        matcher='gateway_pod=""',
        own_series=frozenset({"gpu_cache_usage_perc"}),
        rival="npu_cache_usage_perc",
    ),
    Generation(
        name="aibrix-gateway",
        title="AIBrix's gateway, which repeats the series of engines (`gateway_pod`)",
        preset="",
        server=True,
        other_series=("num_requests_waiting", "num_requests_running"),
        matcher='gateway_pod!=""',
        repeats="it repeats series of the engines, so no preset reads them. Scrape the engines; "
        'rules of your own need {gateway_pod=""}',
    ),
    *_OTHER_SERVERS,
    Generation(
        name="lmdeploy",
        title="LMDeploy (lmdeploy:*)",
        preset="inference-lmdeploy",
        server=True,
        fields=_like_vllm(
            "lmdeploy:", kv_cache="gpu_cache_usage_perc", between="iter_token_latency"
        ),
        other_names={
            "lmdeploy:iter_token_latency_count": ("lmdeploy:time_per_output_token_seconds_count",)
        },
    ),
    Generation(
        name="trtllm",
        title="trtllm-serve (trtllm_*)",
        preset="inference-trtllm",
        server=True,
        fields=_like_vllm(
            "trtllm_", kv_cache="kv_cache_utilization", between="time_per_output_token_seconds"
        ),
        advice="It needs `return_perf_metrics: true`",
    ),
    Generation(
        name="llamacpp",
        title="llama.cpp's server (llamacpp:*)",
        preset="inference-llamacpp",
        server=True,
        fields={
            **_of_load("llamacpp:requests_deferred", "llamacpp:requests_processing"),
            _TOKENS[0]: ("llamacpp:prompt_tokens_total",),
            _TOKENS[1]: ("llamacpp:tokens_predicted_total",),
        },
    ),
    Generation(
        name="vllm-router",
        title="the router of vLLM's production stack",
        preset="gateway-vllm-router",
        server=True,
        external=True,
        fields={"vllm_router_requests_per_second": ("vllm:num_incoming_requests_total",)},
        other_series=("vllm:current_qps",),
        late=True,
        repeats="it repeats counts of the engines. The presets leave them out; rules of your own "
        'need {model_name!=""}',
    ),
    Generation(
        name="inference-pool",
        title="an endpoint picker of the Inference Extension, or llm-d's router",
        preset="gateway-inference-pool",
        server=True,
        external=True,
        fields={
            "inference_pool_requests_waiting": ("llm_d_epp_info",),
            "inference_pool_requests_waiting_average": ("llm_d_epp_average_queue_size",),
            "inference_pool_kv_cache_utilization_average": (
                "llm_d_epp_average_kv_cache_utilization",
            ),
        },
        other_names={
            "llm_d_epp_info": ("llm_d_router_epp_info", "inference_extension_info"),
            "llm_d_epp_average_queue_size": (
                "llm_d_router_epp_average_queue_size",
                "inference_pool_average_queue_size",
            ),
            "llm_d_epp_average_kv_cache_utilization": (
                "llm_d_router_epp_average_kv_cache_utilization",
                "inference_pool_average_kv_cache_utilization",
            ),
        },
    ),
    Generation(
        name="litellm",
        title="LiteLLM's proxy (litellm_*)",
        preset="gateway-litellm",
        server=True,
        external=True,
        fields={
            "litellm_requests_active": ("litellm_in_flight_requests",),
            "litellm_requests_per_second": ("litellm_proxy_total_requests_metric_total",),
        },
        late=True,
    ),
)

REQUESTS = frozenset[str]().union(*(each.fields.get(_REQUESTS, ()) for each in GENERATIONS))
"""The series of model servers that count requests."""
OLD_NAMES_OF: Mapping[str, str] = {
    old: new
    for each in GENERATIONS
    for new, others in each.other_names.items()
    for old in others
    if old.replace(":", "_") != new.replace(":", "_")
}
"""Series -> its name in later releases of the same server."""
SERVER_SERIES = frozenset[str]().union(*(each.series for each in GENERATIONS if each.server))
"""The series of model servers and gateways."""
LOAD = tuple(
    sorted(
        {
            name
            for each in GENERATIONS
            if each.server and each.fields
            for series in next(iter(each.fields.values()))
            for name in (series, *each.other_names.get(series, ()))
        }
    )
)
"""One series of each model server and gateway, under all its names."""
SERIES = tuple(sorted(frozenset[str]().union(*(each.series for each in GENERATIONS))))
"""All series that identify a generation or that presets read."""

LABELS = tuple(
    sorted(
        {
            *POD_LABELS,
            *NODE_LABELS,
            "namespace",
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


def matchers(names: Collection[str]) -> tuple[str, ...]:
    """Return the matchers that decide whose series of these `names` are."""
    return tuple(
        sorted(
            {
                each.matcher
                for each in GENERATIONS
                if each.matcher and not each.series.isdisjoint(names)
            }
        )
    )
