"""Since when a pod is Ready, without I/O; for `minPodAge` of rules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from adapter.clients.value_index import Item

_ALWAYS = 0.0
"""Time of a condition without a time: long ago."""


def parse(item: Mapping[str, Any]) -> Item[float]:
    """Return the pod in a JSON document, with the Unix seconds since which it is Ready.

    Raises KeyError, TypeError and AttributeError.
    """
    metadata = item["metadata"]
    return Item(str(metadata["namespace"]), str(metadata["name"]), ready_since(item.get("status")))


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
