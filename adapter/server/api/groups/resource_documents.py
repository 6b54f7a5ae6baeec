"""Documents of metrics.k8s.io in each form: metrics, Table and PartialObjectMetadata. Pure.

https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1/types.go
https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/response.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import errors
from adapter.errors import ApiError
from adapter.server.apimachinery.encoding import Document, timestamp
from adapter.server.apimachinery.negotiation import UNCHANGED, Transform
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.cluster.object_index import Object
from rules import metrics_apis, quantity
from rules.query.resource import Usage
from rules.quoting import quote_shortened

_INCLUDED = ("Metadata", "Object", "None", "")
"""Values of `includeObject`: what the rows of a Table contain of their objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A pod or a node with its usage."""

    kind: str
    """PodMetrics or NodeMetrics."""
    object: Object
    cpu: Usage
    memory: Usage
    window_ns: int

    def metadata(self) -> Document:
        """Return the ObjectMeta. Its creationTimestamp is the time of the samples.

        The original has the time of the answer there.
        """
        namespace, labels = self.object.namespace, self.object.label_map
        return {
            "name": self.object.name,
            **({"namespace": namespace} if namespace else {}),
            "creationTimestamp": self._timestamp(),
            **({"labels": labels} if labels else {}),
        }

    def metrics(self) -> Document:
        """Return the metrics without kind and apiVersion; containers are sorted by name."""
        common = {
            "metadata": self.metadata(),
            "timestamp": self._timestamp(),
            "window": self.window(),
        }
        cpu, memory = self.cpu.milli, self.memory.milli
        if self.kind == "NodeMetrics":
            return {**common, "usage": _resource_list(cpu[""], memory[""])}
        containers = [
            {"name": name, "usage": _resource_list(cpu.get(name, 0), memory.get(name, 0))}
            for name in sorted(cpu.keys() | memory.keys())
        ]
        return {**common, "containers": containers}

    def window(self) -> str:
        """Return the window as Go writes durations."""
        return quantity.go_duration_text(self.window_ns)

    def _timestamp(self) -> str:
        return timestamp(min(self.cpu.time, self.memory.time))


def of_list(
    info: RequestInfo, kind: str, measured: Sequence[Measured], transform: Transform
) -> Document:
    """Return a list of `kind` in the requested form. Raises ApiError."""
    if transform.kind == "Table":
        return _table(info, measured, transform)
    if transform.kind == "PartialObjectMetadata":
        raise _not_acceptable(transform, f"is a list (*metrics.{kind}List)")
    if transform.kind == "PartialObjectMetadataList":
        items = [_partial(each, transform) for each in measured]
        # Like Go, which writes an empty slice that was never filled as null.
        return {**_head(transform), "metadata": {}, "items": items or None}
    return {
        "kind": f"{kind}List",
        "apiVersion": _api_version(info),
        "metadata": {},
        "items": [each.metrics() for each in measured],
    }


def of_object(info: RequestInfo, measured: Measured, transform: Transform) -> Document:
    """Return one object in the requested form. Raises ApiError."""
    if transform.kind == "Table":
        return _table(info, (measured,), transform)
    if transform.kind == "PartialObjectMetadata":
        return _partial(measured, transform)
    if transform != UNCHANGED:
        raise _not_acceptable(transform, f"is not a list (*metrics.{measured.kind})")
    return _complete(info, measured)


def _resource_list(cpu: int, memory: int) -> Document:
    return {"cpu": quantity.decimal(cpu), "memory": quantity.binary(memory)}


def _complete(info: RequestInfo, measured: Measured) -> Document:
    return {"kind": measured.kind, "apiVersion": _api_version(info), **measured.metrics()}


def _api_version(info: RequestInfo) -> str:
    return metrics_apis.USAGE.group_version(info.version)


def _head(transform: Transform) -> Document:
    return {"kind": transform.kind, "apiVersion": f"{transform.group}/{transform.version}"}


def _partial(measured: Measured, transform: Transform) -> Document:
    head = _head(transform._replace(kind="PartialObjectMetadata"))
    return {**head, "metadata": measured.metadata()}


def _table(info: RequestInfo, measured: Sequence[Measured], transform: Transform) -> Document:
    included = info.query.get("includeObject", ("",))[0]
    if included not in _INCLUDED:
        raise errors.bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{quote_shortened(included)}: must be 'Metadata', 'Object', 'None', or empty"
        )
    columns = [
        _column("Name", "name", "Name of the resource"),
        _column("cpu", "quantity"),
        _column("memory", "quantity"),
        _column("Window", "duration"),
    ]
    rows = [
        {"cells": _cells(each), "object": _included(info, included, each, transform)}
        for each in measured
    ]
    # Like Go, which writes null for the columns and rows of a table that has none.
    return {
        **_head(transform),
        "metadata": {},
        "columnDefinitions": columns if rows else None,
        "rows": rows or None,
    }


def _column(name: str, format_: str, description: str = "") -> Document:
    return {
        "name": name,
        "type": "string",
        "format": format_,
        "description": description,
        "priority": 0,
    }


def _cells(measured: Measured) -> Sequence[str]:
    """Return the cells of a row; those of a pod are sums over its containers."""
    total = _resource_list(sum(measured.cpu.milli.values()), sum(measured.memory.milli.values()))
    return [measured.object.name, total["cpu"], total["memory"], measured.window()]


def _included(
    info: RequestInfo, included: str, measured: Measured, transform: Transform
) -> Document | None:
    if included == "None":
        return None
    return _complete(info, measured) if included == "Object" else _partial(measured, transform)


def _not_acceptable(transform: Transform, reason: str) -> ApiError:
    return ApiError(
        406,
        f"you requested {transform.kind}, but the requested object {reason}",
        reason="NotAcceptable",
    )
