"""Data that the playground draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of load, metric and replicas at one time."""

    seconds: float
    """Seconds since the first snapshot."""
    load: float
    """Offered load in per cent of one GPU."""
    load_replicas: int
    """Ready replicas of the Deployment that generates the load."""
    value: float | None
    """Current value of the metric in the HPA's status; None if it has none."""
    desired: int
    """Replicas in the spec of the scaled Deployment."""
    ready: int
    """Ready replicas of the scaled Deployment."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """Spec of the HPA, and its line of `kubectl get hpa`."""

    metric: str
    target: float
    min_replicas: int
    max_replicas: int
    cells: tuple[str, ...]
    """Below HEADER of `tools.cluster.hpa`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Event to list below the charts; `seconds` as in Snapshot."""

    seconds: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Command to type in another terminal."""

    purpose: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is drawn."""

    subtitle: str
    snapshots: Sequence[Snapshot]
    """Oldest first; at least one."""
    autoscaler: Autoscaler | None
    """None while the HPA does not exist."""
    gpus: Sequence[Sequence[float | None]]
    """Utilisation in per cent of each GPU of each node; None for a free GPU."""
    events: Sequence[Event]
    """Oldest first."""
    commands: Sequence[Command]

    @property
    def now(self) -> Snapshot:
        """Latest snapshot."""
        return self.snapshots[-1]

    @property
    def out_of_gpus(self) -> bool:
        """Whether pods are not ready and no GPU is free."""
        pending = self.now.desired > self.now.ready
        return pending and all(busy is not None for node in self.gpus for busy in node)
