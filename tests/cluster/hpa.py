"""A HorizontalPodAutoscaler as `kubectl get hpa` shows it, and the table of its changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from tests.control_plane.client import Client

HEADER = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
UNKNOWN = "<unknown>"
_GAP = 3
"""Spaces between columns, as kubectl has it."""

_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_VALUE = {"AverageValue": "averageValue", "Value": "value", "Utilization": "averageUtilization"}
"""Where a metric's status has its value, by the type of its target."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    status: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """One moment of it."""

    document: dict[str, Any]
    """The autoscaling/v2 object."""
    cells: tuple[str, ...]
    """What kubectl prints below HEADER."""

    @property
    def current_replicas(self) -> int:
        return int(self.document["status"].get("currentReplicas", 0))

    @property
    def desired(self) -> int:
        return int(self.document["status"].get("desiredReplicas", 0))

    @property
    def metrics(self) -> list[str]:
        """The current value of each metric, as kubectl prints it: "0", "42857m", "<unknown>"."""
        told = self.document["status"].get("currentMetrics") or []
        asked = self.document["spec"]["metrics"]
        return [
            _current(metric, told[index] if index < len(told) else {})
            for index, metric in enumerate(asked)
        ]

    def condition(self, kind: str) -> Condition:
        """That of `kind`, such as "ScalingActive"; of status "Unknown" while there is none."""
        return self.conditions.get(kind) or Condition(status="Unknown", reason="", message="")

    @property
    def conditions(self) -> dict[str, Condition]:
        return {
            each["type"]: Condition(
                status=each["status"],
                reason=each.get("reason", ""),
                message=each.get("message", ""),
            )
            for each in self.document["status"].get("conditions") or ()
        }

    def row(self) -> str:
        """The line of `kubectl get hpa`."""
        return (" " * _GAP).join(self.cells)


class Table:
    """What `kubectl get hpa --watch` would have shown: a row whenever more than the age changed."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def add(self, hpa: Hpa) -> bool:
        """Whether it is a new row."""
        changed = not self.rows or self.rows[-1][:-1] != hpa.cells[:-1]
        if changed:
            self.rows.append(hpa.cells)
        return changed

    def __str__(self) -> str:
        return "\n".join(_aligned((HEADER, *self.rows)))


def read(client: Client, name: str, namespace: str = "default") -> Hpa:
    """As it is now. Raises RefusedError, among others where there is none, and OSError."""
    table = client.get(f"{_path(namespace)}/{name}?includeObject=Object", accept=_AS_TABLE)
    return _shown(table, _titles(table))


def states(client: Client, name: str, namespace: str = "default") -> Iterator[Hpa]:
    """As it is now, and then each state that it comes to, not one left out.

    After a second without another the last one comes again. Ends when it is deleted, or when the
    server remembers too little. Raises as `read` does.
    """
    # Only the first table of a watch would say what its columns are.
    table = client.get(f"{_path(namespace)}/{name}?includeObject=Object", accept=_AS_TABLE)
    titles = _titles(table)
    yield (last := _shown(table, titles))
    path = f"{_path(namespace)}?includeObject=Object&fieldSelector=metadata.name%3D{name}"
    while True:
        version = last.document["metadata"]["resourceVersion"]
        since = f"{path}&watch=true&timeoutSeconds=1&resourceVersion={version}"
        with contextlib.closing(client.watch(since, accept=_AS_TABLE)) as events:
            for event in events:
                if event["type"] not in ("ADDED", "MODIFIED"):
                    return
                yield (last := _shown(event["object"], titles))
        yield last


def _path(namespace: str) -> str:
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"


def _titles(table: dict[str, Any]) -> list[str]:
    return [column["name"].upper() for column in table["columnDefinitions"]]


def _shown(table: dict[str, Any], titles: list[str]) -> Hpa:
    (row,) = table["rows"]
    printed = dict(zip(titles, map(str, row["cells"]), strict=True))
    return Hpa(document=row["object"], cells=tuple(printed[title] for title in HEADER))


def _current(metric: dict[str, Any], told: dict[str, Any]) -> str:
    kind = metric["type"][0].lower() + metric["type"][1:]
    field = _VALUE[metric[kind]["target"]["type"]]
    value = told.get(kind, {}).get("current", {}).get(field)
    return UNKNOWN if value is None else str(value)


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) + _GAP for column in zip(*rows, strict=True)]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
