"""Who has which GPU, and what each reads: the load offered to an app is shared by its pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from adapter.demo.fleet import Gpu, Pod, Reading


class LiveFleet:
    nodes: tuple[str, ...]

    def offer(self, app: str, percent: float, *, namespace: str = "default") -> None:
        """Offer so much load to the pods labelled `app`, in per cent of one GPU."""
        raise NotImplementedError

    def offered(self, app: str, *, namespace: str = "default") -> float:
        raise NotImplementedError

    @property
    def pods(self) -> Mapping[Pod, tuple[Gpu, ...]]:
        """The ready pods that have GPUs, and which."""
        raise NotImplementedError

    def readings(self, node: str) -> Iterator[tuple[Gpu, Reading]]:
        raise NotImplementedError
