"""Allocation of GPUs to pods, and the readings of each GPU under the load of its app.

The ready pods of an app share the load set for it. Load is in per cent of one GPU. Thread-safe.
"""

from __future__ import annotations

import dataclasses
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence

from adapter.cli.demo import fleet
from adapter.cli.demo.fleet import Gpu, GpuPod, GpuReading


@dataclasses.dataclass(kw_only=True)
class _Allocation:
    """GPUs of one pod on its node; they are idle until the pod is ready."""

    pod: GpuPod
    indices: tuple[int, ...]
    offset: int
    ready: bool = False


class LiveFleet:
    """Nodes with `gpus` GPUs each.

    `noise` scales the fluctuation of a GPU around its share of the load. At 1 it is that of the
    recording, whose standard deviation is a third of its mean; at 0 there is none.
    """

    def __init__(self, nodes: Sequence[str], *, gpus: int, noise: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self.gpus = gpus
        self._noise = noise
        recording = fleet.recording()
        self._idle = recording[0]
        self._busy = tuple(moment for moment in recording if moment.utilization)
        self._mean = sum(moment.utilization for moment in self._busy) / len(self._busy)
        self._lock = threading.Lock()
        self._loads: dict[tuple[str, str], float] = {}
        self._allocations: dict[str, _Allocation] = {}

    def set_load(self, app: str, percent: float, *, namespace: str = "default") -> None:
        """Set the load that the ready pods with label `app` share."""
        with self._lock:
            self._loads[namespace, app] = percent

    @property
    def pods(self) -> Mapping[GpuPod, tuple[Gpu, ...]]:
        """Ready pods that have GPUs, with their GPUs."""
        with self._lock:
            return {each.pod: self._gpus(each) for each in self._working()}

    def readings(self, node: str, seconds: float) -> Iterator[tuple[Gpu, GpuReading]]:
        """Yield every GPU of `node`, in order, with its reading `seconds` after the start."""
        with self._lock:
            allocated = {
                gpu.index: (gpu, self._share(gpu.pod))
                for each in self._working()
                if each.pod.node == node
                for gpu in self._gpus(each)
            }
        for index in range(self.gpus):
            gpu, share = allocated.get(index, (Gpu(node=node, index=index), 0.0))
            yield gpu, self._reading(gpu, share, int(seconds))

    def schedule(self, uid: str, pod: GpuPod, count: int) -> str | None:
        """Allocate `count` GPUs of one node to a pod and return the node; None if none has them.

        `pod.node` is ignored. Pods without GPUs are spread over the nodes.
        """
        with self._lock:
            for node in self.nodes:
                free = self._free(node)
                if count and count <= len(free):
                    break
            else:
                if count:
                    return None
                node, free = self.nodes[len(self._allocations) % len(self.nodes)], ()
            self._allocations[uid] = _Allocation(
                pod=dataclasses.replace(pod, node=node),
                indices=free[:count],
                offset=zlib.crc32(uid.encode()),
            )
            return node

    def mark_ready(self, uid: str) -> None:
        """Let a pod take its share of the load, and name it in the series of its GPUs."""
        with self._lock:
            if uid in self._allocations:
                self._allocations[uid].ready = True

    def release(self, uid: str) -> None:
        """Free the GPUs of a pod, if it has any."""
        with self._lock:
            self._allocations.pop(uid, None)

    @property
    def scheduled_nodes(self) -> Mapping[str, str]:
        """Node of each scheduled pod, by the pod's uid."""
        with self._lock:
            return {uid: each.pod.node for uid, each in self._allocations.items()}

    def _working(self) -> Iterator[_Allocation]:
        return (each for each in self._allocations.values() if each.ready and each.indices)

    def _free(self, node: str) -> tuple[int, ...]:
        allocations = self._allocations.values()
        taken = {index for each in allocations if each.pod.node == node for index in each.indices}
        return tuple(index for index in range(self.gpus) if index not in taken)

    def _gpus(self, allocation: _Allocation) -> tuple[Gpu, ...]:
        pod, offset = allocation.pod, allocation.offset
        return tuple(
            Gpu(node=pod.node, index=index, pod=pod, offset=offset) for index in allocation.indices
        )

    def _share(self, pod: GpuPod | None) -> float:
        """Return the load of each GPU of `pod`; it may exceed 100 per cent."""
        if pod is None:
            return 0.0
        app = pod.namespace, pod.app
        replicas = sum((each.pod.namespace, each.pod.app) == app for each in self._working())
        return self._loads.get(app, 0.0) / replicas

    def _reading(self, gpu: Gpu, share: float, second: int) -> GpuReading:
        if not share:
            return fleet.reading(gpu, utilization=0.0, moment=self._idle, idle=self._idle)
        if self._noise:
            moment = self._busy[(gpu.offset + second) % len(self._busy)]
            deviation = moment.utilization / self._mean - 1
            utilization = float(round(min(100.0, share * (1 + self._noise * deviation))))
        else:
            utilization = min(100.0, share)
            moment = min(self._busy, key=lambda each: abs(each.utilization - utilization))
        return fleet.reading(gpu, utilization=utilization, moment=moment, idle=self._idle)
