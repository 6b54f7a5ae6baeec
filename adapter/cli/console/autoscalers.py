"""The autoscalers of the cluster: one watch, samples of what was seen, and looks at metrics.

Values and replicas come from the watch, which brings each change. Metrics are requested only for
rows that somebody sees, by few workers, each at most every 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.background import gather_or_cancel
from adapter.cache import LRUCache
from adapter.cli.console import rows
from adapter.cli.console.api_server import ApiServerProbe
from adapter.cli.console.rows import NEVER, Look, Row
from adapter.cli.doctor import client
from adapter.clients import collection
from adapter.clients.kubernetes import Kube
from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchCaches, WatchContent
from rules import rbac
from rules.errors import UnreadableError
from rules.findings import Finding, State, failure, skipped
from rules.hpa import autoscaler, judgement, reading
from rules.hpa.reading import ApiReply, ApiRequest
from rules.kinds import Kind

Document = Mapping[str, Any]

_KIND = Kind(
    group="autoscaling",
    version="v2",
    kind="HorizontalPodAutoscaler",
    resource="horizontalpodautoscalers",
    singular="horizontalpodautoscaler",
    namespaced=True,
)
_KEPT = ("namespace", "name", "uid", "creationTimestamp")
_FIRST_LIST = 10.0
"""Seconds for which the first page waits for the list."""
_STEP = 0.05
_WORKERS = 8
MAX_SHOWN = 60
"""Rows whose metrics are requested for one page."""
_FRESH = 15.0
"""Seconds until the metrics of a row are requested again: a sync of the controller."""
_SCALE_FRESH = 300.0
"""Seconds for which the selector of a target is kept."""
_MAX_KEPT = 2000
"""Autoscalers whose looks and samples are kept."""
_SAMPLE_INTERVAL = 15.0
"""Seconds after which a state that has not changed is sampled again: its line goes on."""
_MAX_SAMPLES = 240
"""Samples of one autoscaler: an hour, or longer if nothing changed meanwhile."""


class ReplicaSample(NamedTuple):
    """State of an autoscaler at one time."""

    time: float
    """Unix seconds."""
    present: int | None
    """None where only the desired replicas are known."""
    wanted: int
    values: tuple[int | None, ...]
    """As the status has them, in thousandths or per cent; empty where they are not known."""

    def document(self) -> Document:
        """Return the sample for clients."""
        return {
            "time": round(self.time, 3),
            "currentReplicas": self.present,
            "desiredReplicas": self.wanted,
            "metrics": list(self.values),
        }


class _Watched(NamedTuple):
    """What is kept of an HPA: its document, and its row before its metrics are requested."""

    document: Document
    row: Row


class AutoscalerList:
    """Follows the autoscalers while `run` runs. `clock` returns Unix seconds."""

    def __init__(
        self,
        kube: Kube,
        api_server: ApiServerProbe,
        *,
        namespaces: Sequence[str] = ("",),
        fallback: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Follow the autoscalers of `namespaces`; the empty one stands for all.

        If those may not be listed, follow the autoscalers of the namespace `fallback`.
        """
        self._kube = kube
        self._namespaces = namespaces
        self._fallback = fallback
        self.denied: Sequence[str] = ()
        """What could not be listed, and what grants the right."""
        self._api_server = api_server
        self._clock = clock
        metrics = telemetry.WatchCacheMetrics(CollectorRegistry())
        self._caches = {
            namespace: WatchCaches(kube, self._content(namespace), metrics=metrics)
            for namespace in (*namespaces, fallback)
        }
        self._looks: LRUCache[str, Look] = LRUCache(_MAX_KEPT)
        self._samples: LRUCache[str, deque[ReplicaSample]] = LRUCache(_MAX_KEPT)
        self._scales: LRUCache[str, tuple[float, ApiReply]] = LRUCache(_MAX_KEPT)
        """Scales and discovery documents by path, and when they were read."""
        self._due: asyncio.Queue[str] = asyncio.Queue(MAX_SHOWN)
        self._pending: set[str] = set()

    async def run(self) -> NoReturn:
        """Watch, take samples and request metrics until cancelled."""
        workers = (self._work() for _ in range(_WORKERS))
        caches = (each.run() for each in self._caches.values())
        await gather_or_cancel((*caches, self._sample_periodically(), *workers))
        raise AssertionError  # none of them returns

    async def rows(self) -> tuple[Row, ...]:
        """Return all rows. Raises BackendError if none can be listed."""
        return tuple(self._row(each) for index in await self._indexes() for each in index.values())

    def row(self, namespace: str, name: str) -> Row | None:
        """Return one row; None if it is not known."""
        watched = self._watched(namespace, name)
        return watched and self._row(watched)

    def _watched(self, namespace: str, name: str) -> _Watched | None:
        found = (index.of(namespace).get(name) for index in self._present())
        return next(filter(None, found), None)

    def _present(self) -> Iterable[ValueIndex[_Watched]]:
        """Return the indexes that are complete; that of the fallback if it has been needed."""
        caches = (
            each
            for namespace, each in self._caches.items()
            if namespace in self._namespaces or each.in_use
        )
        return [index for each in caches if (index := each.index(_KIND)) is not None]

    def _content(self, namespace: str) -> WatchContent[ValueIndex[_Watched]]:
        return WatchContent(
            index=ValueIndex, parse=self._parse, metadata_only=False, namespace=namespace
        )

    def _row(self, watched: _Watched) -> Row:
        look = self._looks.get(watched.row.key)
        return rows.row(watched.document, look) if look else watched.row

    def samples(self, key: str) -> Sequence[ReplicaSample]:
        """Return what was seen of an autoscaler, oldest first."""
        return tuple(self._samples.get(key) or ())

    def show(self, keys: Iterable[str]) -> None:
        """Request the metrics of these autoscalers again, unless that was done a moment ago."""
        for key in keys:
            fresh = self._clock() - (self._looks.get(key) or NEVER).at < _FRESH
            if not fresh and key not in self._pending and not self._due.full():
                self._pending.add(key)
                self._due.put_nowait(key)

    async def _indexes(self) -> Sequence[ValueIndex[_Watched]]:
        """Return the indexes that the user may list. Raises BackendError if there is none."""
        found: list[ValueIndex[_Watched]] = []
        denied: list[str] = []
        fallback = (self._fallback,) if self._fallback else ()
        for namespace in (*self._namespaces, *fallback):
            if found and namespace in fallback:
                break
            try:
                found.append(await self._index(namespace))
            except errors.Refused as error:
                if error.status not in rbac.STATUSES:
                    raise
                denied.append(rbac.lacking(error.status, error.refusal))
        if not found:
            raise errors.Refused(denied[0])
        self.denied = denied
        return found

    async def _index(self, namespace: str) -> ValueIndex[_Watched]:
        """Return the index of a namespace, after the first list. Raises BackendError."""
        caches = self._caches[namespace]
        deadline = time.monotonic() + _FIRST_LIST
        while (index := caches.index(_KIND)) is None:
            if time.monotonic() >= deadline or caches.status().state is State.WARNING:
                # The same request says what the watch was answered.
                await self._kube.get(collection.path(_KIND, namespace), {"limit": "1"})
                raise errors.TimedOut("the list of autoscalers is not complete yet: wait")
            await asyncio.sleep(_STEP)
        return index

    async def _sample_periodically(self) -> NoReturn:
        while True:
            if not self._api_server.lost:
                for each in [one for index in self._present() for one in index.values()]:
                    self._sample(each.row, after=_SAMPLE_INTERVAL)
            await asyncio.sleep(_SAMPLE_INTERVAL)

    def _parse(self, document: Document) -> Item[_Watched]:
        """Return what is kept of an HPA that the watch brings, and sample it."""
        kept = _kept(document)
        watched = _Watched(kept, rows.row(kept))
        self._sample(watched.row)
        return Item(watched.row.namespace, watched.row.name, watched)

    def _sample(self, row: Row, *, after: float = 0.0) -> None:
        """Add a sample, unless the last is younger than `after` seconds, or without replicas.

        The controller has not read the scale then.
        """
        if row.wanted is None:
            return
        samples = self._samples.get(row.key)
        if samples is None:
            self._samples.set(row.key, samples := deque(maxlen=_MAX_SAMPLES))
        if samples and self._clock() - samples[-1].time < after:
            return
        values = tuple(each.current for each in row.values)
        new = ReplicaSample(self._clock(), row.present, row.wanted, values)
        if len(samples) > 1 and samples[-1][1:] == new[1:] == samples[-2][1:]:
            samples.pop()  # a line needs the first and the last of equal samples
        samples.append(new)

    async def _work(self) -> NoReturn:
        while True:
            key = await self._due.get()
            try:
                namespace, _, name = key.partition("/")
                if (watched := self._watched(namespace, name)) is not None:
                    look = await self._api_server.unless_lost(self._look(watched.document))
                    self._looks.set(key, look)
            except errors.TimedOut:
                continue  # the last look stays
            except Exception as error:  # noqa: BLE001 - one answer that is odd ends no other look
                fact = f"an answer is not what the Kubernetes API defines: {error!r}"
                found = failure("metrics", fact, cure=reading.DOCTOR)
                self._looks.set(key, Look(at=self._clock(), findings=(found,)))
            finally:
                self._pending.discard(key)

    async def _look(self, document: Document) -> Look:
        """Request the metrics of an autoscaler as the controller does.

        Raises TimedOut if the API server does not respond.
        """
        try:
            hpa = autoscaler.autoscaler(document)
            requests = await client.run(reading.requests(hpa), self._kept_reply)
        except UnreadableError as error:
            if error.status in rbac.STATUSES:
                return Look(at=self._clock(), denied=rbac.lacking(error.status, str(error)))
            found = failure("scale", str(error), cure=error.cure or reading.DOCTOR)
            return Look(at=self._clock(), findings=(found,))
        stamps: list[float | None] = []
        findings: list[Finding | None] = []
        denied = ""
        for metric, request in zip(hpa.metrics, requests, strict=True):
            if isinstance(request, UnreadableError):
                cure = request.cure or reading.DOCTOR
                stamps.append(None)
                findings.append(failure(str(metric), str(request), cure=cure))
                continue
            reply = await self._reply(request)
            stamps.append(_oldest(reply))
            if reply.status in rbac.STATUSES:  # the controller may know more
                denied = rbac.lacking(reply.status, reply.message)
            elif reply.status:
                findings.append(judgement.judge(str(metric), request, reply, reading.DOCTOR))
            else:  # the controller may have got a response
                findings.append(skipped(str(metric), reply.message, cure=reading.DOCTOR))
        return Look(
            at=self._clock(),
            stamps=tuple(stamps),
            findings=tuple(filter(None, findings)),
            denied=denied,
        )

    async def _reply(self, request: ApiRequest) -> ApiReply:
        """Return the reply. Raises TimedOut if the API server does not respond."""
        reply = await client.send(self._kube, request)
        if not reply.status:
            await self._api_server.check()
        return reply

    async def _kept_reply(self, request: ApiRequest) -> ApiReply:
        kept = self._scales.get(request.path)
        if kept is not None and self._clock() - kept[0] < _SCALE_FRESH:
            return kept[1]
        reply = await self._reply(request)
        if not reply.failed:
            self._scales.set(request.path, (self._clock(), reply))
        return reply


def _kept(document: Document) -> Document:
    """Return what is kept of an HPA: no managed fields and annotations."""
    metadata = document["metadata"]
    return {
        "metadata": {key: metadata[key] for key in _KEPT if key in metadata},
        "spec": document["spec"],
        "status": document.get("status") or {},
    }


def _oldest(reply: ApiReply) -> float | None:
    """Return the time of the oldest value in a list of values."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        stamps = (each["timestamp"] for each in reply.document["items"])
        return min(datetime.fromisoformat(each).timestamp() for each in stamps)
    return None
