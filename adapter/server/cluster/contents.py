"""What the watch caches of the server keep of objects, also listed while there is no cache.

They keep labels, readiness and selectors of pods; `clients.watch_cache` lists and watches the
objects. Watch caches of complete objects only exist once a rule that needs them is requested.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from adapter.cache import SingleFlightCache
from adapter.clients import collection
from adapter.clients.kubernetes import Kube
from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchCaches, WatchContent
from adapter.server.cluster import object_index
from adapter.server.cluster.object_index import ObjectIndex
from rules import limits
from rules.kinds import Kind
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


class ReplicaStatus(NamedTuple):
    """Replicas in the status of a workload."""

    present: int
    ready: int


class Workload(NamedTuple):
    """What is kept of a workload."""

    namespace: str
    name: str
    value: Selector | None
    """The selector of its pods."""
    status: ReplicaStatus | None


class WorkloadIndex(ValueIndex[Selector]):
    """Selectors of the pods of workloads, and the replicas in their status."""

    def __init__(self) -> None:
        super().__init__()
        self._statuses: dict[tuple[str, str], ReplicaStatus] = {}

    def put(self, item: Item[Selector] | Workload) -> None:
        """Add or replace a workload; remove one without a selector."""
        super().put(Item(item.namespace, item.name, item.value))
        if isinstance(item, Workload) and item.value and item.status:
            self._statuses[item.namespace, item.name] = item.status

    def remove(self, namespace: str, name: str) -> None:
        """Remove a workload if it exists."""
        super().remove(namespace, name)
        self._statuses.pop((namespace, name), None)

    def status(self, namespace: str, name: str) -> ReplicaStatus | None:
        """Return the replicas of a workload; None if they are not known."""
        return self._statuses.get((namespace, name))


def _workload(limits: Limits, item: Mapping[str, Any]) -> Workload:
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
        raise ValueError(too_large(size, limits))
    status = item.get("status") or {}
    present, ready = status.get("replicas") or 0, status.get("readyReplicas") or 0
    return Workload(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        value=pod_selector(spec),
        status=ReplicaStatus(int(present), int(ready)),
    )


def too_large(size: int, limits: Limits) -> str:
    """Return what is wrong with a selector of pods that has so many requirements and values."""
    return (
        f"its selector has {size} requirements and values: use at most "
        f"{limits.workload_selector}, or --limit=workload-selector={size}"
    )


def pod_selector(spec: Mapping[str, Any]) -> Selector | None:
    """Return the selector in the `spec` of a workload; None without one, which has no pods."""
    selector = selectors.of_object(spec.get("selector"))
    return None if selector.empty else selector


OBJECTS: WatchContent[ObjectIndex] = WatchContent(
    index=ObjectIndex, parse=object_index.parse, metadata_only=True
)
"""What selectors need of each object."""
PENDING_PODS: WatchContent[ValueIndex[bool]] = WatchContent(
    index=ValueIndex,
    parse=lambda item: Item(item["metadata"]["namespace"], item["metadata"]["name"], True),
    metadata_only=True,
    fields="status.phase=Pending",
    suffix="/pending",
    unwatched="not watched, so no metric says what HPAs propose",
)
"""Names of the pods whose phase is Pending: metadata has no phase."""
READY_PODS: WatchContent[ValueIndex[float]] = WatchContent(
    index=ValueIndex, parse=_ready_pod, metadata_only=False, suffix="/status"
)
"""What `minPodAge` of rules needs of each pod."""


def pod_selectors(limits: Limits = limits.DEFAULT) -> WatchContent[WorkloadIndex]:
    """Return what `workloads` of rules needs of each workload."""
    return WatchContent(
        index=WorkloadIndex,
        parse=functools.partial(_workload, limits),
        metadata_only=False,
        suffix="/spec",
    )


V = TypeVar("V")

_LISTED_TTL = 2.0
"""Seconds for which a list of one namespace answers requests while there is no watch cache."""
_TTL_PER_OBJECT, _MAX_LISTED_TTL = 0.002, 30.0
"""Seconds for longer lists: complete pods have about 10 kB, and pages after the first one are not
limited in rate. So at most 500 pods per second are read."""
_MAX_LISTED = 256
"""Namespaces whose list is kept."""


class CompleteObjects(Generic[V]):
    """What `caches` keep of objects, by name. Methods raise BackendError subclasses."""

    def __init__(self, listing: Kube, caches: WatchCaches[ValueIndex[V]]) -> None:
        self._listing = listing
        self._caches = caches
        self._listed: SingleFlightCache[tuple[str, str], ValueIndex[V]] = SingleFlightCache(
            ttl=_listed_ttl, max_size=_MAX_LISTED
        )

    async def of(self, kind: Kind, namespace: str) -> Mapping[str, V]:
        """Return the values of the objects of a namespace, by their names."""
        index = self._caches.index(kind)
        if index is None:
            key = str(kind.group_resource), namespace
            index = await self._listed.get(key, lambda: self._list(kind, namespace))
        return index.of(namespace)

    async def _list(self, kind: Kind, namespace: str) -> ValueIndex[V]:
        content = self._caches.content
        index = content.index()
        await self._listing.snapshot(
            collection.path(kind, namespace),
            collection.params(kind),
            lambda item: index.put(content.parse(item)),
            metadata_only=False,
        )
        return index


def _listed_ttl(_: tuple[str, str], index: ValueIndex[V]) -> float:
    return min(max(_LISTED_TTL, _TTL_PER_OBJECT * len(index)), _MAX_LISTED_TTL)
