"""Who has which GPU, and what each reads: the load offered to an app is shared by its pods.

Load is in per cent of one GPU. Any thread may ask and tell.
"""

from __future__ import annotations

import dataclasses
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence

from adapter.demo import fleet, trace
from adapter.demo.fleet import Gpu, Pod, Reading


@dataclasses.dataclass(kw_only=True)
class _Holding:
    """The GPUs of a pod on its node; they are idle until it is ready."""

    pod: Pod
    indices: tuple[int, ...]
    offset: int
    ready: bool = False


class LiveFleet:
    """So many nodes, each with `gpus` GPUs.

    A GPU wobbles about its share of the load: with 1 it is as unsteady as the recording, whose
    deviation is a third of its mean; with 0 it reads exactly its share.
    """

    def __init__(self, nodes: Sequence[str], *, gpus: int, wobble: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self.gpus = gpus
        self._wobble = wobble
        moments = trace.load()
        self._idle = moments[0]
        self._busy = tuple(moment for moment in moments if moment.utilization)
        self._mean = sum(moment.utilization for moment in self._busy) / len(self._busy)
        self._lock = threading.Lock()
        self._offered: dict[tuple[str, str], float] = {}
        self._holdings: dict[str, _Holding] = {}

    def offer(self, app: str, percent: float, *, namespace: str = "default") -> None:
        """From now on the pods labelled `app` share this load; 0 is none."""
        with self._lock:
            self._offered[namespace, app] = percent

    def offered(self, app: str, *, namespace: str = "default") -> float:
        return self._offered.get((namespace, app), 0.0)

    @property
    def pods(self) -> Mapping[Pod, tuple[Gpu, ...]]:
        """The ready pods that have GPUs, and which these are, as of now."""
        with self._lock:
            return {each.pod: self._gpus(each) for each in self._working()}

    def readings(self, node: str, seconds: float) -> Iterator[tuple[Gpu, Reading]]:
        """Every GPU of `node` with what it reads `seconds` after the start, in order."""
        with self._lock:
            taken = {
                gpu.index: (gpu, self._share(gpu.pod))
                for each in self._working()
                if each.pod.node == node
                for gpu in self._gpus(each)
            }
        for index in range(self.gpus):
            gpu, share = taken.get(index, (Gpu(node=node, index=index), 0.0))
            yield gpu, self._reading(gpu, share, int(seconds))

    def admit(self, uid: str, pod: Pod, count: int) -> str | None:
        """Give a pod a node with so many free GPUs, whatever node it says; None if there is none.

        Pods without GPUs are spread over the nodes.
        """
        with self._lock:
            for node in self.nodes:
                free = self._free(node)
                if count and count <= len(free):
                    break
            else:
                if count:
                    return None
                node, free = self.nodes[len(self._holdings) % len(self.nodes)], ()
            self._holdings[uid] = _Holding(
                pod=dataclasses.replace(pod, node=node),
                indices=free[:count],
                offset=zlib.crc32(uid.encode()),
            )
            return node

    def started(self, uid: str) -> None:
        """The pod is ready: load and its GPUs' series are its own from now on."""
        with self._lock:
            if uid in self._holdings:
                self._holdings[uid].ready = True

    def left(self, uid: str) -> None:
        """The pod is no more, if it ever was."""
        with self._lock:
            self._holdings.pop(uid, None)

    @property
    def admitted(self) -> Mapping[str, str]:
        """The node of each pod that has one, by the pod's uid."""
        with self._lock:
            return {uid: each.pod.node for uid, each in self._holdings.items()}

    def _working(self) -> Iterator[_Holding]:
        return (each for each in self._holdings.values() if each.ready and each.indices)

    def _free(self, node: str) -> tuple[int, ...]:
        holdings = self._holdings.values()
        taken = {index for each in holdings if each.pod.node == node for index in each.indices}
        return tuple(index for index in range(self.gpus) if index not in taken)

    def _gpus(self, holding: _Holding) -> tuple[Gpu, ...]:
        pod, offset = holding.pod, holding.offset
        return tuple(
            Gpu(node=pod.node, index=index, pod=pod, offset=offset) for index in holding.indices
        )

    def _share(self, pod: Pod | None) -> float:
        """What each GPU of `pod` has to do, if it could do more than 100 per cent."""
        if pod is None:
            return 0.0
        app = pod.namespace, pod.app
        sharing = sum((each.pod.namespace, each.pod.app) == app for each in self._working())
        return self._offered.get(app, 0.0) / sharing

    def _reading(self, gpu: Gpu, share: float, second: int) -> Reading:
        if not share:
            return fleet.reading(gpu, utilization=0.0, moment=self._idle, idle=self._idle)
        if self._wobble:
            moment = self._busy[(gpu.offset + second) % len(self._busy)]
            deviation = moment.utilization / self._mean - 1
            utilization = float(round(min(100.0, share * (1 + self._wobble * deviation))))
        else:
            utilization = min(100.0, share)
            moment = min(self._busy, key=lambda each: abs(each.utilization - utilization))
        return fleet.reading(gpu, utilization=utilization, moment=moment, idle=self._idle)
