"""Watch caches: an index of the objects of each requested kind, kept up to date by a watch.

The first request for a kind starts its cache; it ends after an hour without a request. While there
is no index, callers send requests to the API server. `WatchContent` says what is kept of each
object.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from adapter import bounds, errors, telemetry
from adapter.background import Backoff
from adapter.clients import collection, watch
from adapter.clients.collection import Unreadable
from adapter.clients.kubernetes import Kube
from rules import findings
from rules.findings import Finding, degraded, passes
from rules.kinds import GroupResource, Kind

log = logging.getLogger(__name__)

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

_IDLE = 3600.0
"""Seconds without a request after which a watch ends."""
_REAP_INTERVAL = 60.0
_WATCH = 45.0
"""Minimum seconds of a watch; the maximum is 90. A connection that is silently dead is replaced
after at most 105 s: the client waits for 15 s longer than the API server."""
_FORBIDDEN = frozenset({403, 404, 405})
_FORBIDDEN_GRACE = 10.0
"""Seconds for which refusals of an established watch are retried: an API server that has just
started refuses requests until it has read its RBAC rules."""
_MIN_RETRY = 30.0
_MAX_RETRY = 900.0
"""Bounds of the backoff for kinds that cannot be watched; each attempt may list all objects. The
second is also the least between a list and the next because of an index that is outdated."""


class WatchState(enum.StrEnum):
    """State of a cache; only WATCHED and BROKEN have an index."""

    SYNCING = "syncing"
    WATCHED = "watched"
    BROKEN = "broken"
    FORBIDDEN = "forbidden"
    TOO_MANY = "too_many"


_DEGRADED = frozenset({WatchState.BROKEN, WatchState.FORBIDDEN, WatchState.TOO_MANY})


class Index(Protocol):
    """Objects of one kind, as `Content.parse` returns them."""

    def put(self, item: Any, /) -> None:
        """Add or replace an object."""

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object if it exists."""

    def __len__(self) -> int: ...

    @property
    def outdated(self) -> bool:
        """Whether a new list would hold more than events can bring."""


IndexT_co = TypeVar("IndexT_co", bound=Index, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchContent(Generic[IndexT_co]):
    """What watch caches keep of each object."""

    index: Callable[[], IndexT_co]
    parse: Callable[[Mapping[str, Any]], Any]
    """Reduces the document of an object."""
    metadata_only: bool
    labels: str = ""
    """Selector of the objects by their labels; empty for all."""
    fields: str = ""
    """Selector of the objects by fields; empty for all."""
    namespace: str = ""
    """Namespace of the objects; empty for all."""
    suffix: str = ""
    """Appended to the resource in messages and metrics."""
    unwatched: str = "listed at each request instead of watched"
    """What happens while a kind cannot be watched, for the log."""


class WatchCaches(Generic[IndexT_co]):
    """Watch caches by kind. They fill only while `run` runs."""

    def __init__(
        self,
        api: Kube,
        content: WatchContent[IndexT_co],
        *,
        metrics: telemetry.WatchCacheMetrics,
        max_objects: int | None = bounds.OBJECTS,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.api = api
        self.content = content
        self.metrics = metrics
        self.max_objects = max_objects
        self.clock = clock
        self.sleep = sleep
        self._caches: dict[GroupResource, _WatchCache[IndexT_co]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def index(self, kind: Kind) -> IndexT_co | None:
        """Return the index of a kind, or None if the request must be sent to the API server.

        The first request for a kind starts its watch.
        """
        cache = self._caches.get(kind.group_resource)
        if cache is None or (cache.kind is not kind and cache.kind != kind):
            if cache is not None:
                cache.stop("the cluster serves the kind in another version")
                del self._caches[kind.group_resource]
            if self._tasks is None:
                return None
            cache = self._caches[kind.group_resource] = _WatchCache(kind, self)
            cache.task = self._tasks.create_task(cache.run(), name=f"watch of {cache.resource}")
        cache.used = self.clock()
        if cache.index is None:
            self.metrics.lists.labels(cache.resource, cache.state).inc()
        return cache.index

    async def run(self) -> NoReturn:
        """Run the watches, and end those that are not used, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await self.sleep(_REAP_INTERVAL)
                    for resource, cache in list(self._caches.items()):
                        if self.clock() - cache.used >= _IDLE:
                            del self._caches[resource]
                            cache.stop("nobody requests the kind")
        finally:
            # An index without its watch would be out of date forever.
            self._tasks = None
            self._caches.clear()

    @property
    def in_use(self) -> bool:
        """Whether there is a cache."""
        return bool(self._caches)

    def status(self) -> Finding:
        """Return the state of each cache, for /readyz; it does not quote the API server."""
        text = "; ".join(each.status() for each in self._caches.values()) or "no kind is in use"
        broken = any(each.state in _DEGRADED for each in self._caches.values())
        return degraded(text) if broken else passes(text)


def statuses(*every: WatchCaches[Any]) -> Finding:
    """Return the state of the caches for /readyz; see `WatchCaches.status`."""
    used = [each for each in every if each.in_use] or every[:1]
    found = [each.status() for each in used]
    joined = "; ".join(each.fact for each in found)
    broken = any(each.state is not findings.State.OK for each in found)
    return degraded(joined) if broken else passes(joined)


class _UnwatchableError(Exception):
    """The kind cannot be watched; `reason` is for everyone, `detail` for the log."""

    def __init__(self, state: WatchState, reason: str, detail: object) -> None:
        super().__init__(str(detail))
        self.state = state
        self.reason = reason


class _WatchCache(Generic[IndexT_co]):
    """Watch cache of one kind, with the options of `caches`."""

    task: asyncio.Task[NoReturn]

    def __init__(self, kind: Kind, caches: WatchCaches[IndexT_co]) -> None:
        self.kind = kind
        self.api, self.max_objects = caches.api, caches.max_objects
        self.content, self.metrics = caches.content, caches.metrics
        self.clock, self.sleep = caches.clock, caches.sleep
        self.resource = f"{self.kind.group_resource}{self.content.suffix}"
        self._listed = self.content.index()
        """Index that the current list fills."""
        self._objects: IndexT_co | None = None
        self._enter(WatchState.SYNCING)
        self._listed_at = self._responded = self.used = self.clock()
        """Times of the last list, of the last response of a watch, and of the last request."""
        self._refused: float | None = None
        """Time of the first of consecutive refusals."""
        self._any_unreadable = False
        """Whether an object could not be read since the last list."""

    @property
    def index(self) -> IndexT_co | None:
        """Last good state; None unless a watch was accepted after a list."""
        return self._objects if self.state in (WatchState.WATCHED, WatchState.BROKEN) else None

    async def run(self) -> NoReturn:
        """List and watch until cancelled; if that is impossible, retry with backoff."""
        pauses = Backoff(_MIN_RETRY, _MAX_RETRY)
        while True:
            try:
                await self._follow()
                continue
            except _UnwatchableError as error:
                if self.state is not error.state:
                    log.warning(
                        "%s: %s: %s: %s", self.resource, self.content.unwatched, error.reason, error
                    )
                if error.state is WatchState.TOO_MANY:
                    pauses = Backoff(_MAX_RETRY, _MAX_RETRY)
                elif self.index is not None:
                    pauses = Backoff(_MIN_RETRY, _MAX_RETRY)
                self._objects = None
                self.metrics.emptied(self.resource)
                self._enter(error.state, error.reason)
            await self.sleep(pauses.pause())

    def stop(self, reason: str) -> None:
        """End the watch and remove its metrics."""
        self.task.cancel()
        self.metrics.stopped(self.resource)
        log.info("%s: the watch ended, because %s", self.resource, reason)

    def status(self) -> str:
        """Return a sentence about the cache."""
        if self.index is None:
            reason = self._reason or "the watch has just begun"
            return f"{self.resource} listed at each request: {reason}"
        age = f"last response {self.clock() - self._responded:.0f} s ago"
        broken = f", watch broken: {self._reason}" if self.state is WatchState.BROKEN else ""
        return f"{self.resource} watched: {len(self.index)} objects, {age}{broken}"

    async def _follow(self) -> None:
        """List and watch until the index should be listed again."""
        events = watch.follow(
            self.api,
            collection.path(self.kind, self.content.namespace),
            collection.params(self.kind, labels=self.content.labels, fields=self.content.fields),
            extract=self.content.parse,
            begin=self._begin_list,
            metadata_only=self.content.metadata_only,
            max_items=self.max_objects,
            unreadable=self._note_unreadable,
            report=self._report,
            duration=_WATCH,
            clock=self.clock,
            sleep=self.sleep,
        )
        async with contextlib.aclosing(events):
            async for event, item in events:
                if event == watch.LISTED:
                    self._objects, self._listed = self._listed, self.content.index()
                    self._listed_at = self.clock()
                elif self._objects is not None:
                    if event == watch.DELETED:
                        self._objects.remove(item.namespace, item.name)
                    else:
                        self._objects.put(item)
                    self._check_size(self._objects)
                    listed = self.clock() - self._listed_at
                    if self._objects.outdated and listed >= _MAX_RETRY:
                        return

    def _begin_list(self) -> Callable[[Mapping[str, Any]], None]:
        self._listed = listed = self.content.index()
        self._any_unreadable = False
        return lambda item: listed.put(self.content.parse(item))

    def _note_unreadable(self, found: Unreadable) -> None:
        """Count an object that cannot be read; log the first one since the last list."""
        self.metrics.unreadable.labels(self.resource).inc()
        level = logging.DEBUG if self._any_unreadable else logging.WARNING
        self._any_unreadable = True
        log.log(
            level,
            "%s: %s cannot be read and is left out, as are others of which only the metric "
            "unreadable_objects_total says so: %s",
            self.resource,
            found,
            found.problem,
        )

    def _check_size(self, objects: Index) -> None:
        self.metrics.objects.labels(self.resource).set(len(objects))
        if self.max_objects is not None and len(objects) > self.max_objects:
            raise _UnwatchableError(
                WatchState.TOO_MANY, "too many objects", f"more than {self.max_objects}"
            )

    def _report(self, error: errors.BackendError | None) -> None:
        """Enter the state that follows from a response of the watch or from a failure."""
        if error is None:
            self._responded, self._refused = self.clock(), None
            self.metrics.last_response.labels(self.resource).set(time.time())
            if self.state is not WatchState.WATCHED and self._objects is not None:
                self._check_size(self._objects)
                self._enter(WatchState.WATCHED)
                log.info("%s: watched, %d objects", self.resource, len(self._objects))
            return
        if isinstance(error, errors.TooLarge):
            raise _UnwatchableError(WatchState.TOO_MANY, "too many objects", error)
        reason = type(error).__name__
        if isinstance(error, errors.Refused):
            reason = str(error.status)
        if isinstance(error, errors.Refused) and error.status in _FORBIDDEN:
            self._refused = self._refused or self.clock()
            if self.index is None or self.clock() - self._refused > _FORBIDDEN_GRACE:
                raise _UnwatchableError(WatchState.FORBIDDEN, f"status {reason}", error)
        else:
            self._refused = None
        self._enter(self.state if self.index is None else WatchState.BROKEN, reason)

    def _enter(self, state: WatchState, reason: str = "") -> None:
        self.metrics.entered(self.resource, state)
        self.state = state
        self._reason = reason
