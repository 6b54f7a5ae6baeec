"""GPUs of the fleet, their pods, and the readings of each GPU at a given second.

This module has no clock. In a simulated fleet each pod replays the recording from its own offset,
so that no two pods have the same values.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib.resources
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

RECORDING = "h200-bert-serving.csv"
"""Recording of a real H200 that served BERT at a varying request rate, one row per second."""
_COLUMNS = {
    "utilization": "utilization.gpu",
    "memory_copy": "utilization.memory",
    "memory_used": "memory.used",
    "temperature": "temperature.gpu",
    "power": "power.draw",
    "sm_clock": "clocks.sm",
    "memory_clock": "clocks.mem",
}
"""Fields of GpuReading and columns of the recording, which are those of nvidia-smi."""
MODEL = "NVIDIA H200"
MEMORY = 143771
"""MiB per GPU."""
GPUS_PER_NODE = 4
BOARD_POWER = 700.0
"""Maximum reading in watts."""
APP = "bert-intent-detection"
"""App of the pods that serve."""
STEP = 37
"""Seconds in the recording between the offsets of two pods."""
BUSY = 140
"""Offset of the first pod in seconds: after the warm-up in the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """Pod that uses GPUs."""

    namespace: str
    name: str
    container: str
    app: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What identifies the hardware of a GPU."""

    uuid: str
    pci_bus_id: str
    model: str = MODEL
    driver: str = "570.86.15"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """GPU, or one of its MIG instances."""

    node: str
    index: int
    pod: GpuPod | None = None
    """None for an idle GPU."""
    instance: int | None = None
    """ID of the MIG instance; None for a whole GPU."""
    offset: int = 0
    """Second of the recording that the GPU has at second 0."""
    real: Board | None = None
    """Board of a GPU that is not simulated."""

    @property
    def board(self) -> Board:
        """The board, with IDs in the format of NVML; a MIG instance has that of its GPU."""
        if self.real is not None:
            return self.real
        name = hashlib.sha256(f"{self.node}/{self.index}".encode()).hexdigest()
        return Board(
            uuid=f"GPU-{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:32]}",
            pci_bus_id=f"00000000:{self.index + 1}8:00.0",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Readings of one GPU, in the units of nvidia-smi."""

    utilization: float
    """Percent of the time in which a kernel ran."""
    memory_copy: float
    """Percent of the time in which the memory controller was busy."""
    memory_used: float
    """MiB."""
    memory_total: float = MEMORY
    """MiB."""
    temperature: float
    """Degrees Celsius."""
    power: float
    """Watts."""
    sm_clock: float
    """MHz."""
    memory_clock: float
    """MHz."""

    @property
    def memory_free(self) -> float:
        """MiB."""
        return round(self.memory_total - self.memory_used)


def recording() -> tuple[GpuReading, ...]:
    """Return the recording in chronological order."""
    text = importlib.resources.files(__package__).joinpath(RECORDING).read_text(encoding="utf-8")
    return tuple(
        GpuReading(**{field: float(row[column]) for field, column in _COLUMNS.items()})
        for row in csv.DictReader(text.splitlines())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Nodes with GPUs, some of them used by pods."""

    nodes: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    pods: tuple[GpuPod, ...]
    read: Callable[[Gpu, int], GpuReading]
    """Returns the readings of a GPU some seconds after the start."""

    @classmethod
    def of_boards(cls, boards: Sequence[Board], read: Callable[[Gpu, int], GpuReading]) -> Fleet:
        """Build a fleet of one node whose GPUs are real, each used by one pod."""
        node = "gpu-node-0"
        gpus = tuple(
            Gpu(node=node, index=index, pod=_pod(APP, node, (index, None)), real=board)
            for index, board in enumerate(boards)
        )
        pods = tuple(gpu.pod for gpu in gpus if gpu.pod is not None)
        return cls(nodes=(node,), gpus=gpus, pods=pods, read=read)

    @classmethod
    def of(cls, *, nodes: int, load: float, mig: bool = False) -> Fleet:
        """Build a simulated fleet with `nodes` nodes of four GPUs, at `load` times the recording.

        The first GPU of each node has a pod of `bert-intent-detection`. On the first node, one more
        pod uses both the second and the third GPU; on the second node, the second GPU has a pod of
        `cuda-test`. The last GPU of each node is idle; with `mig`, it is split into two instances
        with a pod each.
        """
        names = tuple(f"gpu-node-{number}" for number in range(nodes))
        gpus: list[Gpu] = []
        pods: list[GpuPod] = []

        def place(app: str, node: str, *slots: tuple[int, int | None]) -> None:
            """Add a pod that uses `slots`: GPU indices, each with a MIG instance or None."""
            pod = _pod(app, node, *slots)
            for number, (index, instance) in enumerate(slots):
                offset = BUSY + STEP * (len(pods) + number)
                gpus.append(Gpu(node=node, index=index, pod=pod, instance=instance, offset=offset))
            pods.append(pod)

        for number, node in enumerate(names):
            place(APP, node, (0, None))
            if number == 0:
                place(APP, node, (1, None), (2, None))
            elif number == 1:
                place("cuda-test", node, (1, None))
            if mig:
                place(APP, node, (GPUS_PER_NODE - 1, 1))
                place(APP, node, (GPUS_PER_NODE - 1, 2))
            used = {gpu.index for gpu in gpus if gpu.node == node}
            gpus.extend(
                Gpu(node=node, index=index) for index in range(GPUS_PER_NODE) if index not in used
            )
        return cls(
            nodes=names,
            gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.node, gpu.index, gpu.instance or 0))),
            pods=tuple(pods),
            read=functools.partial(_replay, recording(), load),
        )

    def readings(self, node: str, seconds: float) -> Iterator[tuple[Gpu, GpuReading]]:
        """Yield the GPUs of `node` with their readings `seconds` after the start."""
        for gpu in self.gpus:
            if gpu.node == node:
                yield gpu, self.read(gpu, int(seconds))

    def objects(self) -> dict[str, Any]:
        """Return a List of namespaces, nodes, Deployments and pods, for `--objects`."""
        namespaces = sorted({pod.namespace for pod in self.pods})
        names = [*(("Namespace", each) for each in namespaces), *(("Node", n) for n in self.nodes)]
        apps = sorted({(pod.namespace, pod.app) for pod in self.pods})
        items = [
            *({"apiVersion": "v1", "kind": k, "metadata": {"name": name}} for k, name in names),
            *(_deployment(namespace, app) for namespace, app in apps),
            *map(_pod_object, self.pods),
        ]
        return {"apiVersion": "v1", "kind": "List", "items": items}


def _deployment(namespace: str, app: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": app, "labels": {"app": app}},
        "spec": {"selector": {"matchLabels": {"app": app}}},
    }


def _pod_object(pod: GpuPod) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "labels": {"app": pod.app}},
        "spec": {"nodeName": pod.node, "containers": [{"name": pod.container}]},
        "status": {"phase": "Running"},
    }


def _pod(app: str, node: str, *slots: tuple[int, int | None]) -> GpuPod:
    """Return a pod of `app` that uses `slots`: GPU indices, each with a MIG instance or None."""
    suffix = hashlib.sha256(f"{app}/{node}/{slots}".encode()).hexdigest()[:5]
    name = f"{app}-7b6667bd9-{suffix}"
    return GpuPod(namespace="default", name=name, container="serving", app=app, node=node)


def _replay(moments: tuple[GpuReading, ...], load: float, gpu: Gpu, second: int) -> GpuReading:
    idle = moments[0]
    moment = moments[(gpu.offset + second) % len(moments)] if gpu.pod else idle
    utilization = float(round(min(100.0, moment.utilization * load)))
    return reading(gpu, utilization=utilization, moment=moment, idle=idle)


def reading(gpu: Gpu, *, utilization: float, moment: GpuReading, idle: GpuReading) -> GpuReading:
    """Return the readings of `gpu` at `utilization` percent, scaled from the recorded `moment`.

    `idle` is a recorded moment without load, from which the power is scaled. A GPU without a pod
    uses no memory.
    """
    factor = utilization / moment.utilization if moment.utilization else 1.0
    memory = MEMORY / 7 if gpu.instance is not None else float(MEMORY)
    used = min(memory, moment.memory_used if gpu.pod is not None else 0.0)
    return replace(
        moment,
        utilization=utilization,
        memory_copy=round(min(100.0, moment.memory_copy * factor)),
        memory_used=round(used),
        memory_total=memory,
        power=round(min(BOARD_POWER, idle.power + (moment.power - idle.power) * factor), 3),
    )
