"""The labels by which each generation of GPU exporter tells a GPU and the pod that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adapter.demo.fleet import MODEL, Gpu

DRIVER = "570.86.15"


def _pod_labels(
    gpu: Gpu, *, namespace: str, pod: str, container: str, empty: bool
) -> dict[str, str]:
    """The pod's labels; an idle GPU carries them empty, or not at all."""
    if gpu.pod is None:
        return {namespace: "", pod: "", container: ""} if empty else {}
    return {namespace: gpu.pod.namespace, pod: gpu.pod.name, container: gpu.pod.container}


def _direct(gpu: Gpu, *, empty: bool = False) -> dict[str, str]:
    return _pod_labels(gpu, namespace="namespace", pod="pod", container="container", empty=empty)


def _bus(gpu: Gpu) -> str:
    return f"00000000:{gpu.index + 1}8:00.0"


def _exporter_pod(gpu: Gpu) -> str:
    return f"dcgm-exporter-{gpu.node.rpartition('-')[2]}"


def _instance(gpu: Gpu) -> dict[str, str]:
    if gpu.instance is None:
        return {}
    return {"GPU_I_PROFILE": gpu.profile, "GPU_I_ID": str(gpu.instance)}


def dcgm(
    *, hostname: str = "hostname", driver: str = "DCGM_FI_DRIVER_VERSION", pods: bool = True
) -> Callable[[Gpu], Mapping[str, str]]:
    """Labels of dcgm-exporter from 3.5.0 on."""

    def of(gpu: Gpu) -> Mapping[str, str]:
        return {
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "pci_bus_id": _bus(gpu),
            "device": f"nvidia{gpu.index}",
            "modelName": MODEL,
            **_instance(gpu),
            hostname: gpu.node,
            driver: DRIVER,
            **(_direct(gpu) if pods else {}),
        }

    return of


def dcgm2(gpu: Gpu) -> Mapping[str, str]:
    """Labels of dcgm-exporter 2.x: the exporter's pod as Hostname, empty labels on an idle GPU."""
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "device": f"nvidia{gpu.index}",
        "modelName": MODEL,
        "Hostname": _exporter_pod(gpu),
        **_direct(gpu, empty=True),
    }


def dcgm1(gpu: Gpu) -> Mapping[str, str]:
    """Labels of gpu-monitoring-tools 1.x."""
    return {"gpu": str(gpu.index), "uuid": gpu.uuid, **_old_namespace(gpu)}


def _old_namespace(gpu: Gpu) -> dict[str, str]:
    return _pod_labels(
        gpu, namespace="pod_namespace", pod="pod_name", container="container_name", empty=False
    )


def dcgm2_old_namespace(gpu: Gpu) -> Mapping[str, str]:
    """Labels of dcgm-exporter 2.x run with `--use-old-namespace`."""
    return {
        "gpu": str(gpu.index),
        "uuid": gpu.uuid,
        "device": f"nvidia{gpu.index}",
        "modelName": MODEL,
        "Hostname": _exporter_pod(gpu),
        **_old_namespace(gpu),
    }


def nvidia_gpu(gpu: Gpu) -> Mapping[str, str]:
    """Labels of nvidia_gpu_prometheus_exporter, which knows no pods."""
    return {"minor_number": str(gpu.index), "name": MODEL, "uuid": gpu.uuid}


def alibaba(gpu: Gpu) -> Mapping[str, str]:
    """Labels of Alibaba's gpu-prometheus-exporter."""
    pod = _pod_labels(
        gpu, namespace="namespace_name", pod="pod_name", container="container_name", empty=True
    )
    mode = "none" if gpu.pod is None else "exclusive"
    return {"allocate_mode": mode, "node_name": gpu.node, **nvidia_gpu(gpu), **pod}


def gke(gpu: Gpu) -> Mapping[str, str]:
    """Labels of GKE's device plugin, which reports a GPU only while a container has it."""
    return {"accelerator_id": gpu.uuid, "make": "nvidia", "model": MODEL, **_direct(gpu)}


def hami(gpu: Gpu) -> Mapping[str, str]:
    """Labels of HAMi's monitor, which reports a share of a GPU only while a container has it."""
    return {"device_uuid": gpu.uuid, "vdevice_index": "0", **_direct(gpu)}


def nvidia_smi(gpu: Gpu) -> Mapping[str, str]:
    """Labels of nvidia_gpu_exporter, which knows no pods."""
    return {"uuid": gpu.uuid.removeprefix("GPU-")}
