"""A HorizontalPodAutoscaler as `kubectl get hpa` shows it, and the table of its changes."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    status: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    document: dict[str, Any]
    cells: tuple[str, ...]
    """NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE, as kubectl prints them."""

    @property
    def current_replicas(self) -> int:
        raise NotImplementedError

    @property
    def desired(self) -> int:
        raise NotImplementedError

    @property
    def metrics(self) -> list[str]:
        """The current values as kubectl prints them: "0", "42857m", "<unknown>"."""
        raise NotImplementedError

    def condition(self, kind: str) -> Condition:
        """That of `kind`, such as "ScalingActive"; with status "Unknown" while there is none."""
        raise NotImplementedError

    def row(self) -> str:
        raise NotImplementedError


class Table:
    """`str()` is what `kubectl get hpa -w` would have shown."""

    def add(self, hpa: Hpa) -> None:
        """A row more, unless but for its age it is the last one."""
        raise NotImplementedError
