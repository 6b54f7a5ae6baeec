"""Resource kinds of the cluster, and the names of the objects that a selector matches.

Names come from watch caches, or from the API server while a kind is not watched.

The kinds are an immutable snapshot, replaced as a whole when discovery finds a difference, so a
request can read it once and use it to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from adapter import errors
from adapter.background import Backoff
from adapter.clients import collection, kubernetes
from adapter.clients.limits import FairSlots
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import object_index
from adapter.server.cluster.contents import CompleteObjects
from adapter.server.cluster.object_index import Object, ObjectIndex
from adapter.server.cluster.scales import Scales
from rules.errors import UnknownResourceError
from rules.kinds import PODS, GroupResource, Kind, Kinds
from rules.names import is_path_segment
from rules.query.pod_age import too_young
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have finished."""

_EVERYTHING = Selector()
_MAX_SELECTOR = 64
"""Requirements and values of a selector that is matched here. The API server matches larger ones,
which would delay other requests: with 10 000 different labels in a namespace, this many take up to
0.1 s."""
_REST = 4
"""Times as long as labels were compared, nothing is compared then: autoscalers of one namespace may
have hundreds of selectors that take 0.1 s each."""
_MAX_LARGE_LISTS = 4
"""Lists at a time whose pages may have megabytes of labels; one of each namespace."""
_MIN_REFRESH_INTERVAL = 30.0
"""Seconds between two discoveries for requests that name an unknown resource."""
_REFRESH_TIMEOUT = 10.0
"""Seconds that such a request waits for a discovery."""
_MIN_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


class ClusterObjects:
    """Objects of a cluster, from `caches`, or listed where those have no index.

    `listing` sends the lists, with a rate limit of its own.

    Until the first discovery the kinds are those that every cluster has. `run` repeats discovery
    every `interval` seconds. `clock` returns Unix seconds. Methods raise BackendError subclasses
    only.
    """

    def __init__(
        self,
        api: kubernetes.Kube,
        *,
        listing: kubernetes.Kube,
        caches: WatchCaches[ObjectIndex],
        ready: CompleteObjects[float],
        workloads: CompleteObjects[Selector],
        scales: Scales,
        interval: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._listing = listing
        self._caches = caches
        self._ready = ready
        self._workloads = workloads
        self._scales = scales
        self._interval = interval
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self.kinds = Kinds.builtin()
        """Current snapshot of the kinds."""
        self.discovered = False
        """Whether a discovery has succeeded."""
        self._started_at: float | None = None
        self._failure: errors.BackendError | None = None
        """Of the last discovery, also if it was cancelled."""
        self._discovering = asyncio.Lock()
        self._comparing = FairSlots(own=1, total=1)
        self._large_lists = asyncio.Semaphore(_MAX_LARGE_LISTS)
        self._large_namespaces: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        """Locks of the namespaces that are listed, or are to be listed, because of large labels."""

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match the selector, in the API's order.

        Finished pods are left out. Without a namespace, and for cluster-scoped resources, the
        objects of the whole cluster are returned; names in different namespaces may be equal.
        Raises Refused with 404 for an unknown resource.
        """
        index, remaining, place = await self._matching(resource, namespace, selector)
        async with self._turn(place, costly=index.is_costly(remaining, namespace=place)):
            return index.names(remaining, namespace=place)

    def present_names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...] | None:
        """Return the names of the objects that match the selector, if no request is needed."""
        try:
            kind = self.kinds.first(resource.resource, resource.group)
        except UnknownResourceError:
            return None
        index = self._caches.index(kind) if selector.size <= _MAX_SELECTOR else None
        place = place_of(kind, namespace)
        if index is None or index.unlabelled(place) or index.is_costly(selector, namespace=place):
            return None
        return index.names(selector, namespace=place)

    async def objects(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[Object, ...]:
        """Return the objects that the selector matches; as `names` in all other respects.

        Those whose labels are too large to be kept have none.
        """
        index, remaining, place = await self._matching(resource, namespace, selector)
        return await self._objects_in(index, remaining, place)

    async def _objects_in(
        self, index: ObjectIndex, selector: Selector, place: str | None
    ) -> tuple[Object, ...]:
        async with self._turn(
            place, costly=index.is_costly(selector, namespace=place, labelled=True)
        ):
            return index.objects(selector, namespace=place)

    @contextlib.asynccontextmanager
    async def _turn(self, place: str | None, *, costly: bool) -> AsyncIterator[None]:
        """Compare labels in this context; what is costly waits for its turn, and then rests."""
        if not costly:
            yield
            return
        async with self._comparing.slot(place or ""):
            began = self._monotonic()
            yield
            await asyncio.sleep(_REST * (self._monotonic() - began))

    async def _matching(
        self, resource: GroupResource, namespace: str, selector: Selector
    ) -> tuple[ObjectIndex, Selector, str | None]:
        """Return an index with all matching objects, and what selects them in it.

        It is the watch cache's, or one of what was listed. If the first lacks the labels of some
        objects, only their namespaces are listed.
        """
        kind = await self._kind(resource)
        if not is_path_segment(namespace):
            return ObjectIndex(), _EVERYTHING, None
        index = self._caches.index(kind) if selector.size <= _MAX_SELECTOR else None
        if index is None:
            found = ObjectIndex()
            await self._list_into(found, kind, namespace, selector)
            return found, _EVERYTHING, None
        place = place_of(kind, namespace)
        places = () if selector.empty else index.unlabelled(place)
        if not places:
            return index, selector, place
        log.warning(
            "%s in %s: listed, because a label selector is requested and their labels are too "
            "large to be kept; remove labels",
            kind.group_resource,
            ", ".join(filter(None, places)) or "the cluster",
        )
        found = ObjectIndex(await self._objects_in(index, selector, place))
        for each in places:
            lock = self._large_namespaces.setdefault(each, asyncio.Lock())
            async with lock, self._large_lists:
                await self._list_into(found, kind, each, selector)
        return found, _EVERYTHING, None

    async def object(self, resource: GroupResource, *, namespace: str, name: str) -> Object | None:
        """Return an object by its name; None if it does not exist or is a finished pod."""
        kind = await self._kind(resource)
        if (index := self._caches.index(kind)) is not None:
            return index.get(namespace, name)
        if not is_path_segment(namespace):
            return None
        params = dict(collection.params(kind, name=name))
        path = collection.path(kind, namespace)
        found = await self._listing.collect(path, params, object_index.parse)
        return next(iter(found), None)

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """Return False for a pod that is known to have finished, else True."""
        if resource != PODS or not is_path_segment(namespace):
            return True
        kind = await self._kind(PODS)
        index = self._caches.index(kind)
        if index is not None and index.contains(namespace, name):
            return True
        path = collection.path(kind, namespace)
        # A list, because manifests/base/rbac.yaml does not allow `get`.
        pods = await self._listing.get(path, {"fieldSelector": collection.named(name)})
        try:
            phases = {(each.get("status") or {}).get("phase") for each in pods["items"] or ()}
        except (AttributeError, KeyError, TypeError) as error:
            raise errors.Broken(f"GET {path}: the response is not a list of pods") from error
        return FINISHED.isdisjoint(phases)

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`, and for how long.

        It is 0 for pods that are not Ready or do not exist.
        """
        ready = await self._ready.of(await self._kind(PODS), namespace)
        return too_young(ready, names, now=self._clock(), seconds=seconds)

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        """Return the workloads of a namespace by name, each with the selector of its pods.

        Of scale targets, those that `scales` reads.
        """
        if not is_path_segment(namespace):
            return {}
        if resource in self.kinds.scale_targets:
            return self._scales.pods(resource, namespace)
        return await self._workloads.of(await self._kind(resource), namespace)

    async def refresh(self) -> Kinds:
        """Return the kinds, discovered anew unless that was done within the last 30 s.

        Raises the BackendError of the last discovery if that failed.
        """
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT), self._discovering:
                if (
                    self._started_at is None
                    or self._monotonic() - self._started_at >= _MIN_REFRESH_INTERVAL
                ):
                    await self._discover()
                elif self._failure is not None:
                    raise self._failure.without_frames()
        except TimeoutError as error:
            raise errors.TimedOut(f"no discovery within {_REFRESH_TIMEOUT:g} s") from error
        return self.kinds

    async def run(self) -> None:
        """Discover the kinds periodically; log failures and retry them with backoff."""
        pauses = Backoff(_MIN_BACKOFF, _MAX_BACKOFF, jitter=0)
        while True:
            try:
                async with self._discovering:
                    await self._discover()
            except errors.BackendError as error:
                consequence = (
                    "known resources stay as they are"
                    if self.discovered
                    else "metrics of custom resources are not served yet"
                )
                log.warning("discovery of resources failed; %s: %s", consequence, error)
                await self._sleep(pauses.pause())
            else:
                pauses.reset()
                await self._sleep(self._interval)

    async def _discover(self) -> None:
        self._started_at = self._monotonic()
        self._failure = errors.TimedOut("the last discovery did not end")
        try:
            groups = await self._api.groups()
            # In a thread: 100 000 kinds of an extension API server take 3 s.
            kinds = await asyncio.to_thread(Kinds.of, groups, self._scales.resources)
        except errors.BackendError as error:
            self._failure = error.without_frames()
            raise
        self._failure = None
        # A new snapshot makes others rebuild what they derived from the old one.
        if kinds != self.kinds:
            self.kinds = kinds
        self.discovered = True

    async def _list_into(
        self, found: ObjectIndex, kind: Kind, namespace: str, selector: Selector
    ) -> None:
        """List the matching objects, without finished pods, and add them to `found`."""
        params = dict(collection.params(kind))
        if not selector.empty:
            params["labelSelector"] = str(selector)
        await self._listing.collect(
            collection.path(kind, namespace),
            params,
            lambda item: found.put(object_index.parse(item)),
        )

    async def _kind(self, resource: GroupResource) -> Kind:
        """Return the first served version of a resource, after a discovery if it is unknown.

        Raises Refused with 404 if it stays unknown.
        """
        with contextlib.suppress(UnknownResourceError):
            return self.kinds.first(resource.resource, resource.group)
        await self.refresh()
        try:
            return self.kinds.first(resource.resource, resource.group)
        except UnknownResourceError as error:
            raise errors.Refused(str(error), status=404) from error


def place_of(kind: Kind, namespace: str) -> str | None:
    """Return the namespace in the index of a kind; None for all of them."""
    return namespace if kind.namespaced and namespace else None
