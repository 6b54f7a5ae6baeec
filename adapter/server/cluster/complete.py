"""Values of complete objects: from a watch cache, or listed while there is none.

Watch caches of complete objects only exist once a rule that needs them is requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from adapter.cache import SingleFlightCache
from adapter.clients import collection
from adapter.clients.kubernetes import Kube
from adapter.clients.value_index import ValueIndex
from adapter.clients.watch_cache import WatchCaches
from rules.kinds import Kind

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
