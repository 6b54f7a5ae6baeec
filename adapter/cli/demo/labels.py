"""Labels with which each generation of GPU exporters identifies a GPU and its pod; their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adapter.cli.demo.fleet import Gpu

MIG_PROFILE = "1g.18gb"


def _pod_labels(
    gpu: Gpu, *, namespace: str, pod: str, container: str, empty: bool
) -> dict[str, str]:
    """Return the labels of the pod; for an idle GPU, empty ones if `empty`, else none."""
    if gpu.pod is None:
        return {namespace: "", pod: "", container: ""} if empty else {}
    return {namespace: gpu.pod.namespace, pod: gpu.pod.name, container: gpu.pod.container}


def _direct(gpu: Gpu, *, empty: bool = False) -> dict[str, str]:
    return _pod_labels(gpu, namespace="namespace", pod="pod", container="container", empty=empty)


def _exporter_pod(gpu: Gpu) -> str:
    return f"dcgm-exporter-{gpu.node.rpartition('-')[2]}"


def dcgm(
    *, hostname: str = "hostname", driver: str = "DCGM_FI_DRIVER_VERSION", pods: bool = True
) -> Callable[[Gpu], Mapping[str, str]]:
    """Return the labels of dcgm-exporter since 3.5.0, as a function of the GPU."""

    def labels(gpu: Gpu) -> Mapping[str, str]:
        instance = {"GPU_I_PROFILE": MIG_PROFILE, "GPU_I_ID": str(gpu.instance)}
        return {
            "gpu": str(gpu.index),
            "UUID": gpu.board.uuid,
            "pci_bus_id": gpu.board.pci_bus_id,
            "device": f"nvidia{gpu.index}",
            "modelName": gpu.board.model,
            **({} if gpu.instance is None else instance),
            hostname: gpu.node,
            driver: gpu.board.driver,
            **(_direct(gpu) if pods else {}),
        }

    return labels


def dcgm2(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of dcgm-exporter 2.x, where Hostname is the exporter's pod."""
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.board.uuid,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.board.model,
        "Hostname": _exporter_pod(gpu),
        **_direct(gpu, empty=True),
    }


def dcgm1(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of gpu-monitoring-tools 1.x."""
    return {"gpu": str(gpu.index), "uuid": gpu.board.uuid, **_old_namespace(gpu)}


def _old_namespace(gpu: Gpu) -> dict[str, str]:
    return _pod_labels(
        gpu, namespace="pod_namespace", pod="pod_name", container="container_name", empty=False
    )


def dcgm2_old_namespace(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of dcgm-exporter 2.x with `--use-old-namespace`."""
    return {
        "gpu": str(gpu.index),
        "uuid": gpu.board.uuid,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.board.model,
        "Hostname": _exporter_pod(gpu),
        **_old_namespace(gpu),
    }


def nvidia_gpu(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of nvidia_gpu_prometheus_exporter, which does not know pods."""
    return {"minor_number": str(gpu.index), "name": gpu.board.model, "uuid": gpu.board.uuid}


def alibaba(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of Alibaba's gpu-prometheus-exporter."""
    pod = _pod_labels(
        gpu, namespace="namespace_name", pod="pod_name", container="container_name", empty=True
    )
    mode = "none" if gpu.pod is None else "exclusive"
    return {"allocate_mode": mode, "node_name": gpu.node, **nvidia_gpu(gpu), **pod}


def gke(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of GKE's device plugin, which reports only GPUs that a container uses."""
    return {
        "accelerator_id": gpu.board.uuid,
        "make": "nvidia",
        "model": gpu.board.model,
        **_direct(gpu),
    }


def hami(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of HAMi's monitor, which reports only GPUs that a container uses."""
    return {"device_uuid": gpu.board.uuid, "vdevice_index": "0", **_direct(gpu)}


def nvidia_smi(gpu: Gpu) -> Mapping[str, str]:
    """Return the labels of nvidia_gpu_exporter, which does not know pods."""
    return {"uuid": gpu.board.uuid.removeprefix("GPU-")}


def label_set(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample, in braces."""
    pairs: list[str] = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace('"', r"\"")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"
