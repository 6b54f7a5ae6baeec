"""What there is to see of the playground, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look at it."""

    seconds: float
    """Since the first look."""
    load: float
    """What is offered, in per cent of one GPU."""
    askers: int
    """Ready replicas of the load's Deployment."""
    value: float | None
    """The metric as the HPA has it; None while it has none."""
    wanted: int
    """Replicas that the Deployment is to have."""
    ready: int
    """Replicas that are ready."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """The HPA: what does not move, and what kubectl says of it now."""

    metric: str
    target: float
    smallest: int
    largest: int
    header: tuple[str, ...]
    cells: tuple[str, ...]
    """The two lines of `kubectl get hpa`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seconds: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to type in another terminal."""

    purpose: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is drawn."""

    title: str
    setting: str
    """What is running."""
    moments: Sequence[Moment]
    """Oldest first; at least one."""
    autoscaler: Autoscaler | None
    """None while there is none."""
    gpus: Sequence[Sequence[float | None]]
    """For each node the utilisation of each GPU; None for one that nobody has."""
    events: Sequence[Event]
    """Oldest first."""
    commands: Sequence[Command]

    @property
    def now(self) -> Moment:
        return self.moments[-1]

    @property
    def exhausted(self) -> bool:
        """Whether pods wait for a GPU, and none is free."""
        waiting = self.now.wanted > self.now.ready
        return waiting and all(busy is not None for node in self.gpus for busy in node)
