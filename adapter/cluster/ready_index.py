"""Index of the pods that are Ready, and since when, without I/O; for `minPodAge` of rules.

`adapter.cluster.watch_cache` keeps it up to date. It needs complete pods, but keeps a name and a
number of each.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, NamedTuple

_ALWAYS = 0.0
"""Time of a condition without a time: long ago."""


class Pod(NamedTuple):
    """What is kept of a pod."""

    namespace: str
    name: str
    ready_since: float | None
    """Unix seconds; None if it is not Ready."""


class ReadyIndex:
    """The pods that are Ready."""

    outdated = False

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, float]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, item: Pod) -> None:
        """Add or replace a pod; remove one that is not Ready."""
        if item.ready_since is None:
            self.remove(item.namespace, item.name)
            return
        pods = self._namespaces.setdefault(item.namespace, {})
        self._size += item.name not in pods
        pods[item.name] = item.ready_since

    def remove(self, namespace: str, name: str) -> None:
        """Remove a pod if it exists."""
        pods = self._namespaces.get(namespace, {})
        if pods.pop(name, None) is not None:
            self._size -= 1
            if not pods:
                del self._namespaces[namespace]

    def of(self, namespace: str) -> Mapping[str, float]:
        """Return the names of the Ready pods of a namespace, and since when they are."""
        return self._namespaces.get(namespace, {})


def parse(item: Mapping[str, Any]) -> Pod:
    """Return the pod in a JSON document. Raises KeyError, TypeError and AttributeError."""
    metadata = item["metadata"]
    return Pod(str(metadata["namespace"]), str(metadata["name"]), ready_since(item.get("status")))


def ready_since(status: Any) -> float | None:
    """Return since when a pod with this status is Ready, in Unix seconds; None if it is not.

    Raises KeyError, TypeError and AttributeError for a document of another form.
    """
    for condition in (status or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return _time(condition) if condition["status"] == "True" else None
    return None


def _time(condition: Mapping[str, Any]) -> float:
    changed = condition.get("lastTransitionTime")
    if changed is None:
        return _ALWAYS
    try:
        return dt.datetime.fromisoformat(str(changed)).timestamp()
    except ValueError as error:
        raise TypeError(f"{changed!r} is not a time") from error
