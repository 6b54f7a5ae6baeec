"""The Events that the watch of autoscalers writes within so many seconds, which pass at once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from unittest import mock

from adapter import errors
from adapter.clients.value_index import Item
from adapter.clients.watch_cache import WatchContent
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.app import autoscaling, server
from adapter.server.app.cluster import Watches
from adapter.server.app.host import Host
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster.contents import WorkloadIndex
from adapter.server.cluster.object_index import ObjectIndex
from adapter.server.cluster.scales import Scales
from rules.kinds import Kinds
from rules.selectors import selectors

_PASSES = 10
"""Passes of the event loop in which the requests of a check begin, and Events are written."""


class Watch:
    """The watch of HPAs whose targets have pods with the label `app`; its time passes on demand."""

    def __init__(self, hpas: Sequence[Mapping[str, Any]]) -> None:
        self._hpas = hpas
        self._kube = _Kube()
        self._now = 0.0
        self._turn, self._looked = asyncio.Semaphore(0), asyncio.Event()
        self._requests = set[asyncio.Task[Any]]()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let a server that starts in this context have the watch."""
        start = functools.partial(self._start, autoscaling.start)
        outcomes = functools.partial(Outcomes, lambda: self._now)
        with (
            mock.patch.object(autoscaling, "start", start),
            mock.patch.object(server, "Outcomes", outcomes),
        ):
            yield

    async def passed(self, seconds: float) -> Sequence[Mapping[str, Any]]:
        """Let seconds pass, and return the Events that were written until then."""
        while self._now < seconds:
            self._looked.clear()
            self._turn.release()
            await self._looked.wait()
        return self._kube.events

    def _start(self, start: Callable[..., None], host: Host, _: None, *parts: object) -> None:
        workloads = WorkloadIndex()
        for each in self._hpas:
            target = each["spec"]["scaleTargetRef"]["name"]
            selector = selectors.parse(f"app={target}")
            workloads.put(Item(each["metadata"]["namespace"], target, selector))
        watched: Any = Watches
        kube: Any = self._kube
        scales = Scales(kube, resources=(), kinds=Kinds.builtin)
        with (
            mock.patch.object(autoscaling, "WatchCaches", self._hpa_cache),
            mock.patch.object(autoscaling, "Autoscalers", self._autoscalers),
        ):
            caches = _Cache(ObjectIndex()), _Cache(workloads)
            start(host, watched(self._kube, *caches, scales, None), *parts)

    def _hpa_cache(self, _: object, content: WatchContent[Any], **__: object) -> _Cache:
        index = content.index()
        for each in self._hpas:
            index.put(content.parse(each))
        return _Cache(index)

    def _autoscalers(self, **parts: Any) -> Autoscalers:
        async def request(info: RequestInfo) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            await parts["request"](info)

        moved = {"request": request, "clock": lambda: self._now, "sleep": self._sleep}
        return Autoscalers(**{**parts, **moved})

    async def _sleep(self, seconds: float) -> None:
        for _ in range(_PASSES):
            await asyncio.sleep(0)
        if self._requests:
            await asyncio.wait(self._requests)
        self._looked.set()
        await self._turn.acquire()
        self._now += seconds


class _Kube:
    """Stands for the API server, which has no Events yet."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []

    def with_rate(self, **_: float) -> _Kube:
        """Return a client with another rate limit."""
        return self

    async def snapshot(self, *_: object, **__: object) -> tuple[str, list[str]]:
        """Return resourceVersion and names of the Events."""
        return "", []

    async def get(self, path: str) -> NoReturn:
        """Raise Refused with 404."""
        raise errors.Refused(f"{path} does not exist", status=404)

    async def post(self, _: str, event: Mapping[str, Any]) -> None:
        """Keep an Event."""
        self.events.append(event)


class _Cache:
    """Stands for watch caches of one kind."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def index(self, _: object) -> Any:
        """Return the objects of the kind."""
        return self._index

    async def run(self) -> None:
        """Watch nothing."""
        await asyncio.Event().wait()
