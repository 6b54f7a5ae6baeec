"""The fleet itself: which GPUs there are, who has them, and what each reads at a given second.

Pure: time comes in as seconds since the start. Every pod replays the recording from a place of its
own, so that no two pods read alike; `fixed` holds each at its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.demo import trace

MODEL = "NVIDIA H200"
MEMORY = 143771
"""MiB of a GPU."""
GPUS_PER_NODE = 4
BOARD_POWER = 700.0
"""Watts that no reading exceeds."""
STEP = 37
"""Seconds of the recording between one pod and the next."""
BUSY = 140
"""The first pod starts here, where the recording is past its warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of the fleet."""

    namespace: str
    name: str
    container: str
    app: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or one MIG instance of it."""

    node: str
    index: int
    pod: Pod | None = None
    """Who has it; None for an idle one."""
    instance: int | None = None
    """The MIG instance's id; None for a whole GPU."""
    profile: str = ""
    offset: int = 0
    """Where in the recording its pod is at second 0."""

    @property
    def uuid(self) -> str:
        """As NVML gives it: of the whole GPU, for an instance too."""
        digest = hashlib.sha256(f"{self.node}/{self.index}".encode()).hexdigest()
        return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one GPU reports, in the units of nvidia-smi."""

    utilization: float
    """Per cent."""
    memory_copy: float
    """Per cent."""
    memory_used: float
    """MiB."""
    memory_free: float
    """MiB."""
    temperature: float
    power: float
    sm_clock: float
    memory_clock: float
    graphics: float
    """0 to 1: the graphics and compute engines."""
    sm: float
    """0 to 1: streaming multiprocessors with a warp resident."""
    tensor: float
    """0 to 1: tensor pipes."""
    dram: float
    """0 to 1: the memory interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Nodes of four GPUs each, with pods on some of them."""

    nodes: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    pods: tuple[Pod, ...]
    load: float
    """A factor on the recording's utilisation; 1 is as recorded."""
    fixed: bool
    """Whether values stand still."""
    moments: tuple[trace.Moment, ...]

    @classmethod
    def of(cls, *, nodes: int, load: float, fixed: bool, mig: bool = False) -> Fleet:
        """A fleet of `nodes` nodes.

        Each node's first GPU has a pod of `bert-intent-detection`; on the first node, the second
        and third belong together to one pod of it; on the second node, a GPU runs `cuda-test`.
        The last GPU of every node is idle, or, with `mig`, two instances that have a pod each.
        """
        names = tuple(f"gpu-node-{number}" for number in range(nodes))
        gpus: list[Gpu] = []
        pods: list[Pod] = []

        def place(
            app: str, node: str, *slots: tuple[int, int | None], namespace: str = "default"
        ) -> None:
            suffix = hashlib.sha256(f"{app}/{node}/{slots}".encode()).hexdigest()[:5]
            pod = Pod(
                namespace=namespace,
                name=f"{app}-7b6667bd9-{suffix}",
                container="serving",
                app=app,
                node=node,
            )
            for number, (index, instance) in enumerate(slots):
                offset = BUSY + STEP * (len(pods) + number)
                profile = "" if instance is None else "1g.18gb"
                gpus.append(
                    Gpu(
                        node=node,
                        index=index,
                        pod=pod,
                        instance=instance,
                        profile=profile,
                        offset=offset,
                    )
                )
            pods.append(pod)

        for number, node in enumerate(names):
            place("bert-intent-detection", node, (0, None))
            if number == 0:
                place("bert-intent-detection", node, (1, None), (2, None))
            elif number == 1:
                place("cuda-test", node, (1, None))
            if mig:
                place("bert-intent-detection", node, (GPUS_PER_NODE - 1, 1))
                place("bert-intent-detection", node, (GPUS_PER_NODE - 1, 2))
            taken = {gpu.index for gpu in gpus if gpu.node == node}
            gpus.extend(
                Gpu(node=node, index=index) for index in range(GPUS_PER_NODE) if index not in taken
            )
        return cls(
            nodes=names,
            gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.node, gpu.index, gpu.instance or 0))),
            pods=tuple(pods),
            load=load,
            fixed=fixed,
            moments=trace.load(),
        )

    def readings(self, node: str, seconds: float) -> Iterator[tuple[Gpu, Reading]]:
        """Every GPU of `node` with what it reads `seconds` after the start."""
        for gpu in self.gpus:
            if gpu.node == node:
                yield gpu, self._reading(gpu, 0 if self.fixed else int(seconds))

    def _reading(self, gpu: Gpu, second: int) -> Reading:
        idle = self.moments[0]
        moment = self.moments[(gpu.offset + second) % len(self.moments)] if gpu.pod else idle
        utilization = float(round(min(100.0, moment.utilization * self.load)))
        return reading(gpu, utilization=utilization, moment=moment, idle=idle)


def reading(gpu: Gpu, *, utilization: float, moment: trace.Moment, idle: trace.Moment) -> Reading:
    """What `gpu` reads while it is so busy (in per cent) with the work of a `moment`.

    Power and the memory interface grow with utilisation from what was recorded; `idle` is a moment
    without work. A GPU that nobody has holds no memory.
    """
    load = utilization / moment.utilization if moment.utilization else 1.0
    memory = MEMORY / 7 if gpu.instance is not None else float(MEMORY)
    used = min(memory, moment.memory_used if gpu.pod is not None else 0.0)
    return Reading(
        utilization=utilization,
        memory_copy=round(min(100.0, moment.memory_utilization * load)),
        memory_used=round(used),
        memory_free=round(memory - used),
        temperature=moment.temperature,
        power=round(min(BOARD_POWER, idle.power + (moment.power - idle.power) * load), 3),
        sm_clock=moment.sm_clock,
        memory_clock=moment.memory_clock,
        graphics=round(utilization * 0.0098, 6),
        sm=round(utilization * 0.0055, 6),
        tensor=round(utilization * 0.0021, 6),
        dram=round(utilization * 0.0012, 6),
    )
