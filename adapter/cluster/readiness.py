"""How long pods have been Ready, for `minPodAge` of rules: from a watch cache, or listed.

The watch cache reads complete pods, so it only exists once a rule with `minPodAge` is requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from adapter.cache import SingleFlightCache
from adapter.clients.kubernetes import Kube
from adapter.cluster import collection, ready_index
from adapter.cluster.ready_index import ReadyIndex
from adapter.cluster.watch_cache import WatchCaches
from rules.kinds import PODS, Kinds

_LISTED_TTL = 2.0
"""Seconds for which a list of one namespace answers requests while there is no watch cache."""
_TTL_PER_POD, _MAX_LISTED_TTL = 0.002, 30.0
"""Seconds for longer lists: complete pods have about 10 kB, and pages after the first one are not
limited in rate. So at most 500 pods per second are read."""
_MAX_LISTED = 256
"""Namespaces whose list is kept."""


class Readiness:
    """Ages of Ready pods. `clock` returns Unix seconds. Methods raise BackendError subclasses."""

    def __init__(
        self,
        listing: Kube,
        caches: WatchCaches[ReadyIndex],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._listing = listing
        self._caches = caches
        self._clock = clock
        self._kind = Kinds.builtin().first(PODS.resource)
        self._listed = SingleFlightCache(ttl=_listed_ttl, max_size=_MAX_LISTED)

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`, and for how long.

        It is 0 for pods that are not Ready or do not exist.
        """
        index = self._caches.index(self._kind)
        if index is None:
            index = await self._listed.get(namespace, lambda: self._list(namespace))
        return too_young(index.of(namespace), names, now=self._clock(), seconds=seconds)

    async def _list(self, namespace: str) -> ReadyIndex:
        index = ReadyIndex()
        await self._listing.snapshot(
            collection.path(self._kind, namespace),
            collection.params(self._kind),
            lambda item: index.put(ready_index.parse(item)),
            metadata_only=False,
        )
        return index


def _listed_ttl(_: str, index: ReadyIndex) -> float:
    return min(max(_LISTED_TTL, _TTL_PER_POD * len(index)), _MAX_LISTED_TTL)


def too_young(
    ready: Mapping[str, float], names: Iterable[str], *, now: float, seconds: float
) -> Mapping[str, float]:
    """Return those of `names` that have been Ready for less than `seconds`, and for how long."""
    latest = now - seconds
    young = {}
    for name in names:
        since = ready.get(name)
        if since is None:
            young[name] = 0.0
        elif since > latest:
            young[name] = max(0.0, now - since)
    return young
