"""HorizontalPodAutoscalers as `kubectl get hpa` prints them, and the table of their changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from tools.control_plane.client import Client

HEADER = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
UNKNOWN = "<unknown>"
_COLUMN_GAP = 3
"""Spaces between columns, as in kubectl."""

_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_VALUE_FIELDS = {
    "AverageValue": "averageValue",
    "Value": "value",
    "Utilization": "averageUtilization",
}
"""Field of the target and of the current value, by the type of the target."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Condition of an HPA."""

    status: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """State of an HPA at one time."""

    document: dict[str, Any]
    """The autoscaling/v2 object."""
    cells: tuple[str, ...]
    """Cells that kubectl prints below HEADER."""

    @property
    def current_replicas(self) -> int:
        """`status.currentReplicas`."""
        return int(self.document["status"].get("currentReplicas", 0))

    @property
    def desired_replicas(self) -> int:
        """`status.desiredReplicas`."""
        return int(self.document["status"].get("desiredReplicas", 0))

    @property
    def metrics(self) -> list[str]:
        """Current value of each metric as kubectl prints it: "0", "42857m", "<unknown>"."""
        current = self.document["status"].get("currentMetrics") or []
        specs = self.document["spec"]["metrics"]
        return [
            _current_value(spec, current[index] if index < len(current) else {})
            for index, spec in enumerate(specs)
        ]

    def condition(self, kind: str) -> Condition:
        """Return a condition, such as "ScalingActive"; its status is "Unknown" if it is unset."""
        return self.conditions.get(kind) or Condition(status="Unknown", reason="", message="")

    @property
    def conditions(self) -> dict[str, Condition]:
        """Conditions by type."""
        return {
            each["type"]: Condition(
                status=each["status"],
                reason=each.get("reason", ""),
                message=each.get("message", ""),
            )
            for each in self.document["status"].get("conditions") or ()
        }


class Table:
    """Output of `kubectl get hpa --watch`, printed: a row for each change of more than the age."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def add(self, hpa: Hpa) -> None:
        """Append and print a row if the HPA has changed."""
        if self.rows and self.rows[-1][:-1] == hpa.cells[:-1]:
            return
        if not self.rows:
            print("$ kubectl get hpa --watch &")
        before = len(self.rows) + 1 if self.rows else 0
        self.rows.append(hpa.cells)
        print(*str(self).splitlines()[before:], sep="\n", flush=True)

    def __str__(self) -> str:
        return "\n".join(aligned((HEADER, *self.rows)))


def read(client: Client, name: str, namespace: str = "default") -> Hpa:
    """Return an HPA. Raises RefusedError, among others if it does not exist, and OSError."""
    table = client.get(f"{_path(namespace)}/{name}?includeObject=Object", accept=_AS_TABLE)
    return _hpa(table, _column_names(table))


def watch(client: Client, name: str) -> Generator[Hpa, None, None]:
    """Yield the present state of an HPA of namespace default, then every change of it.

    Yields the last state again after each second without a change. Ends when the HPA is deleted or
    the resourceVersion has expired. Raises as `read`.
    """
    # In a watch, only the first table has column definitions, so they are read here.
    table = client.get(f"{_path('default')}/{name}?includeObject=Object", accept=_AS_TABLE)
    columns = _column_names(table)
    yield (last := _hpa(table, columns))
    path = f"{_path('default')}?includeObject=Object&fieldSelector=metadata.name%3D{name}"
    while True:
        version = last.document["metadata"]["resourceVersion"]
        watch_path = f"{path}&watch=true&timeoutSeconds=1&resourceVersion={version}"
        with contextlib.closing(client.watch(watch_path, accept=_AS_TABLE)) as events:
            for event in events:
                if event["type"] not in ("ADDED", "MODIFIED"):
                    return
                yield (last := _hpa(event["object"], columns))
        yield last


def lost_syncs(events: Iterable[Mapping[str, Any]], name: str) -> int:
    """Return how many syncs of an HPA got no metric: the controller writes an event for each."""
    return sum(
        each.get("count") or 1
        for each in events
        if each["involvedObject"]["name"] == name and each["reason"].startswith("FailedGet")
    )


def source_field(spec: Mapping[str, Any]) -> str:
    """Return the field of a metric's spec and status that its type selects, such as "pods"."""
    kind: str = spec["type"]
    return kind[0].lower() + kind[1:]


def target_value(spec: Mapping[str, Any]) -> str:
    """Return the target value in a metric's spec, such as "20"."""
    target = spec[source_field(spec)]["target"]
    return str(target[_VALUE_FIELDS[target["type"]]])


def _path(namespace: str) -> str:
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"


def _column_names(table: dict[str, Any]) -> list[str]:
    return [column["name"].upper() for column in table["columnDefinitions"]]


def _hpa(table: dict[str, Any], columns: list[str]) -> Hpa:
    (row,) = table["rows"]
    cells = dict(zip(columns, map(str, row["cells"]), strict=True))
    return Hpa(document=row["object"], cells=tuple(cells[column] for column in HEADER))


def _current_value(spec: dict[str, Any], current: dict[str, Any]) -> str:
    source = source_field(spec)
    value_field = _VALUE_FIELDS[spec[source]["target"]["type"]]
    value = current.get(source, {}).get("current", {}).get(value_field)
    return UNKNOWN if value is None else str(value)


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return rows with their columns aligned."""
    rows = list(rows)
    widths = [max(map(len, column)) + _COLUMN_GAP for column in zip(*rows, strict=True)]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
