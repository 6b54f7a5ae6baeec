"""What the watch caches of the server keep of objects: labels, readiness, selectors of pods.

Without I/O: `clients.watch_cache` lists and watches the objects.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any

from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchContent
from adapter.server.cluster import object_index
from adapter.server.cluster.object_index import ObjectIndex
from rules import limits
from rules.limits import Limits
from rules.selectors import selectors
from rules.selectors.selectors import Selector

_ALWAYS = 0.0
"""Time of a condition without a time: long ago."""


def _ready_pod(item: Mapping[str, Any]) -> Item[float]:
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


def _workload(limits: Limits, item: Mapping[str, Any]) -> Item[Selector]:
    """Return the workload in a JSON document, with the selector of its pods.

    Raises ValueError if that is too large, for it is matched against pods while others wait; and
    KeyError, TypeError and AttributeError.
    """
    metadata, spec = item["metadata"], item.get("spec") or {}
    selector = spec.get("selector") or {}
    expressions = selector.get("matchExpressions") or ()
    size = 2 * len(selector.get("matchLabels") or ())
    size += sum(1 + len(each.get("values") or ()) for each in expressions)
    if size > limits.workload_selector:
        raise ValueError(
            f"its selector has {size} requirements and values: use at most "
            f"{limits.workload_selector}, or --limit=workload-selector={size}"
        )
    return Item(str(metadata["namespace"]), str(metadata["name"]), pod_selector(spec))


def pod_selector(spec: Mapping[str, Any]) -> Selector | None:
    """Return the selector in the `spec` of a workload; None without one, which has no pods."""
    selector = selectors.of_object(spec.get("selector"))
    return None if selector.empty else selector


OBJECTS: WatchContent[ObjectIndex] = WatchContent(
    index=ObjectIndex, parse=object_index.parse, metadata_only=True
)
"""What selectors need of each object."""
READY_PODS: WatchContent[ValueIndex[float]] = WatchContent(
    index=ValueIndex, parse=_ready_pod, metadata_only=False, suffix="/status"
)
"""What `minPodAge` of rules needs of each pod."""


def pod_selectors(limits: Limits = limits.DEFAULT) -> WatchContent[ValueIndex[Selector]]:
    """Return what `workloads` of rules needs of each workload."""
    return WatchContent(
        index=ValueIndex,
        parse=functools.partial(_workload, limits),
        metadata_only=False,
        suffix="/spec",
    )
