"""Recorded expositions, the pods that serve them, and the values that presets have of them.

The pods are what the section `scrape` of a preset finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from rules.exporters.generations import GENERATIONS
from rules.scrape import jobs
from tools.presets import worlds
from tools.presets.table import (
    ACCELERATED,
    ACCELERATORS,
    EXPORTERS,
    FIXTURES,
    GOLDEN,
    METRICS,
    SERVER_METRICS,
    SERVERS,
    VARIANTS,
)

SERVING = "serving"
"""Namespace of servers and gateways."""
EXPORTERS_NAMESPACE = "gpu-operator"
OTHER_IMAGE = "docker.io/library/other:1"
"""Image of pods that something else than the image finds."""


Values = Mapping[str, Fraction | None]
"""Metric -> value; None if there must be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What discovery sees of a pod with one container."""

    image: str = OTHER_IMAGE
    container: str = "main"
    labels: Mapping[str, str] = field(default_factory=dict)
    port: tuple[str, int] | None = None
    """Name and number of its declared port."""

    def page(self) -> tuple[int, str]:
        """Return the port and the path that are scraped."""
        for generation, containers in jobs.ways(GENERATIONS):
            if containers.match(self.image, self.labels, self.container) and containers.match_port(
                *(self.port or ("", 0))
            ):
                number = self.port[1] if self.port else containers.port
                scrape = generation.scrape
                return number or scrape.port, containers.path or scrape.path
        raise LookupError(f"no preset has a page of {self}")


_RAY = Pod(port=("metrics", 8080), labels={"ray.io/is-ray-node": "yes"})
PODS: Mapping[str, Pod] = {
    "accelerator-ascend": Pod(image="docker.io/ascendhub/npu-exporter:v6.0.0"),
    "accelerator-cambricon": Pod(image="docker.io/library/cambricon-mlu-exporter:v2.0.22"),
    "accelerator-enflame": Pod(image="docker.io/enflame/gcu-exporter:3.6.5"),
    "accelerator-furiosa": Pod(image="docker.io/furiosaai/furiosa-metrics-exporter:2025"),
    "accelerator-gaudi": Pod(image="vault.habana.ai/gaudi-metric-exporter/metric-exporter:1.24"),
    "accelerator-neuron": Pod(image="public.ecr.aws/neuron/neuron-monitor:1.9"),
    "accelerator-tpu": Pod(labels={"k8s-app": "tpu-device-plugin"}),
    "gateway-aibrix": Pod(image="docker.io/aibrix/gateway-plugins:v0.4"),
    "gateway-dynamo": Pod(
        port=("http", 8000), labels={"nvidia.com/dynamo-component-type": "frontend"}
    ),
    "gateway-inference-pool": Pod(
        port=("metrics", 9090), labels={"llm-d-router-gateway": "pool-epp"}
    ),
    "gateway-litellm": Pod(image="ghcr.io/berriai/litellm:v1"),
    "gateway-ray-serve": _RAY,
    "gateway-vllm-router": Pod(image="docker.io/lmcache/lmstack-router:0.1"),
    "gpu-amd": Pod(image="docker.io/rocm/device-metrics-exporter:v1.5.2"),
    "gpu-amd-smi": Pod(image="docker.io/library/amd_smi_exporter:1"),
    "gpu-dcgm": Pod(image="nvcr.io/nvidia/k8s/dcgm-exporter:4.8.2"),
    "gpu-gke-plugin": Pod(labels={"k8s-app": "nvidia-gpu-device-plugin"}),
    "gpu-hami": Pod(
        container="vgpu-monitor", labels={"app.kubernetes.io/component": "hami-device-plugin"}
    ),
    "gpu-iluvatar": Pod(image="docker.io/iluvatar/ix-exporter:4"),
    "gpu-intel-xpum": Pod(image="docker.io/intel/xpumanager:1.3"),
    "gpu-intel-xpumd": Pod(image="ghcr.io/intel/xpumd:2.0"),
    "gpu-node": Pod(image="docker.io/mindprince/nvidia_gpu_prometheus_exporter:0.1"),
    "gpu-nvidia-alibaba": Pod(image="docker.io/library/gpu-prometheus-exporter:0.1"),
    "inference-dynamo": Pod(
        port=("system", 9090), labels={"nvidia.com/dynamo-component-type": "worker"}
    ),
    "inference-llamacpp": Pod(image="ghcr.io/ggml-org/llama.cpp:server-cuda"),
    "inference-lmdeploy": Pod(image="docker.io/openmmlab/lmdeploy:v0.18"),
    "inference-nim": Pod(image="nvcr.io/nim/meta/llama3:1.8"),
    "inference-ray": _RAY,
    "inference-sglang": Pod(image="docker.io/lmsysorg/sglang:v0.5.23-cu126"),
    "inference-tei": Pod(image="ghcr.io/huggingface/text-embeddings-inference:1.9"),
    "inference-tgi": Pod(image="ghcr.io/huggingface/text-generation-inference:3.3.7"),
    "inference-triton": Pod(image="nvcr.io/nvidia/tritonserver:25.10-py3"),
    "inference-trtllm": Pod(image="nvcr.io/nvidia/tensorrt-llm/release:1.2"),
    "inference-vllm": Pod(image="docker.io/vllm/vllm-openai:v0.18.0"),
}
"""Preset -> a pod that serves its page."""
_SERVED: Mapping[str, Pod] = {
    "a1-mindprince": PODS["gpu-node"],
    "a2-alibaba": PODS["gpu-nvidia-alibaba"],
    "a3-gke-device-plugin": PODS["gpu-gke-plugin"],
    "e1-hami": PODS["gpu-hami"],
    "e2-nvidia-smi": Pod(image="docker.io/utkuozdemir/nvidia_gpu_exporter:1.3.0"),
    "hami-ascend": Pod(image="docker.io/projecthami/ascend-device-plugin:v1.4"),
    "aibrix-gateway": PODS["gateway-aibrix"],
    "dynamo-frontend": PODS["gateway-dynamo"],
    "inference-pool": PODS["gateway-inference-pool"],
    "inference-pool-1.5": PODS["gateway-inference-pool"],
    "litellm": PODS["gateway-litellm"],
    "litellm-new": PODS["gateway-litellm"],
    "vllm-router": PODS["gateway-vllm-router"],
}
"""Exposition -> its pod, if that is not dcgm-exporter, and no preset has its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """What an exporter reports, on a page for each node, or a model server or gateway on one."""

    name: str
    pod: Pod
    namespace: str
    """That of the pods that serve it."""
    files: Mapping[str, Path]
    """Name of a pod that serves a page -> the page."""
    pods: Mapping[str, Values]
    """Pod, with its namespace -> its values."""
    nodes: Mapping[str, Values]
    """Name of a pod that serves a page -> the values of its node."""


def _expositions() -> Iterator[Exposition]:
    """Yield all recorded expositions."""
    yield from _servers()
    for name, case in ACCELERATORS.items():
        (of_node,) = _all_current(case["nodes"]).values()
        yield Exposition(
            name=name,
            pod=_SERVED.get(name) or PODS[case["preset"]],
            namespace=EXPORTERS_NAMESPACE,
            files={name: ACCELERATED / f"{name}.prom"},
            pods=_all_current(case["pods"]),
            nodes={name: of_node},
        )
    for name, recorded in VARIANTS.items():
        metrics = recorded.metrics & METRICS.keys()
        pods = {
            pod: {metric: of[METRICS[metric].golden] for metric in metrics}
            for pod, of in GOLDEN["pods"].items()
        }
        nodes = {
            node: {"duty_cycle_current": of["dcgm_gpu_utilization_avg"]}
            for node, of in GOLDEN["nodes"].items()
            if "bare" in recorded.schemes
        }
        yield _variant(name, pods, nodes)
    cases = {case["variant"]: case for case in reversed(GOLDEN["cases"])}
    for name, case in cases.items():
        yield _variant(name, case["pods"], case["nodes"])


def _variant(
    name: str,
    pods: Mapping[str, Mapping[str, float | None]],
    nodes: Mapping[str, Mapping[str, float | None]],
) -> Exposition:
    files = {
        worlds.EXPORTER_PODS[worlds.node_of(file)]: EXPORTERS / file for file in worlds.files(name)
    }
    return Exposition(
        name=name,
        pod=_SERVED.get(name, PODS["gpu-dcgm"]),
        namespace=EXPORTERS_NAMESPACE,
        files=files,
        pods=_all_current(pods),
        nodes={
            pod: values
            for node, values in _all_current(nodes).items()
            if (pod := worlds.EXPORTER_PODS[node]) in files
        },
    )


def _servers() -> Iterator[Exposition]:
    recorded = json.loads((FIXTURES / "servers.json").read_text())
    state, cases = recorded["state"]["values"], recorded["cases"]
    for file in sorted((FIXTURES / "servers").iterdir()):
        name = file.stem
        if name in SERVERS:
            presets, values = SERVERS[name].presets, state
            values = {each: state[each] for each in SERVERS[name].metrics}
        else:
            presets, values = (f"inference-{name.partition('-')[0]}",), cases[name]["values"]
        none = dict.fromkeys(SERVER_METRICS)
        yield Exposition(
            name=name,
            pod=_SERVED.get(name) or PODS[presets[0]],
            namespace=SERVING,
            files={name: file},
            pods=_all_current({f"{SERVING}/{name}": {**none, **values}}),
            nodes={},
        )


def _all_current(
    values: Mapping[str, Mapping[str, float | None]],
) -> Mapping[str, Values]:
    """Return the values of now, as the API has them: in thousandths."""
    return {
        name: {
            metric: None if value is None else Fraction(round(value * 1000), 1000)
            for metric, value in of.items()
            if metric.endswith("_current")
        }
        for name, of in values.items()
    }


EXPOSITIONS = tuple(_expositions())
"""All recorded expositions."""
