"""The cluster's kinds of resource, and which objects a selector means.

`Objects` is what the groups of the API ask; `ClusterObjects` asks the API server for each answer.
The kinds are a snapshot that is swapped whole, so that a request can read it once and finish on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from adapter import errors
from adapter.clients import kubernetes
from rules.errors import UnknownResourceError
from rules.kinds import PODS, GroupResource, Kind, Kinds
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

INTERVAL = 600.0
"""Seconds between two discoveries, unless set."""

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_MISS_PAUSE = 30.0
_FIRST_RETRY = 1.0
_LAST_RETRY = 60.0


class Objects(Protocol):
    """Knows the kinds of resource of a cluster, and the names of its objects.

    Methods raise BackendError subclasses only; a resource that no group serves is Refused with 404.
    """

    @property
    def kinds(self) -> Kinds:
        """The kinds as they are known now."""

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """The names of the objects that the selector means, as the API lists them.

        Pods that have finished are left out. Without a namespace, and for a resource that has none,
        those of the whole cluster; names of different namespaces may then be equal.
        """

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """False for a pod that is known to have finished or not to exist, else True."""

    async def refresh(self) -> None:
        """Brings the kinds up to date, where that was not just done: something is missing."""


class ClusterObjects:
    """Objects of a real cluster, asked for by selector.

    Until the first discovery has succeeded, the kinds are those that every cluster has. `run` keeps
    them current every `interval` seconds.
    """

    def __init__(
        self,
        api: kubernetes.Kube,
        *,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._interval = interval
        self._clock = clock
        self._sleep = sleep
        self._kinds = Kinds.builtin()
        self._discovered = False
        self._asked: float | None = None
        self._asking = asyncio.Lock()

    @property
    def kinds(self) -> Kinds:
        return self._kinds

    @property
    def discovered(self) -> bool:
        """Whether the kinds are the cluster's own."""
        return self._discovered

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        kind = await self._kind(resource)
        if not _possible(namespace):
            return ()
        params = {}
        if not selector.empty:
            params["labelSelector"] = str(selector)
        if kind.group_resource == PODS:
            params["fieldSelector"] = _UNFINISHED
        return tuple(await self._api.collect(_path(kind, namespace), params, _name))

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        if resource != PODS:
            return True
        if not _possible(namespace) or not _possible(name):
            return False
        kind = await self._kind(PODS)
        params = {"fieldSelector": f"metadata.name={_field(name)},{_UNFINISHED}"}
        return bool(await self._api.collect(_path(kind, namespace), params, _name))

    async def refresh(self) -> None:
        async with self._asking:
            if self._asked is None or self._clock() - self._asked >= _MISS_PAUSE:
                await self._discover()

    async def run(self) -> None:
        """Discovers the kinds again and again, until cancelled; a failure is logged and retried."""
        retry = _FIRST_RETRY
        while True:
            try:
                async with self._asking:
                    await self._discover()
            except errors.BackendError as error:
                log.warning(
                    "Discovery failed, %s: %s",
                    "kinds of resource stay as they were"
                    if self._discovered
                    else "custom resources and their metrics are not known yet",
                    error,
                )
                await self._sleep(retry)
                retry = min(2 * retry, _LAST_RETRY)
            else:
                retry = _FIRST_RETRY
                await self._sleep(self._interval)

    async def _discover(self) -> None:
        self._asked = self._clock()
        self._kinds = Kinds.of(await self._api.groups())
        self._discovered = True

    async def _kind(self, resource: GroupResource) -> Kind:
        try:
            return self._kinds.first(resource.resource, resource.group)
        except UnknownResourceError:
            await self.refresh()
        try:
            return self._kinds.first(resource.resource, resource.group)
        except UnknownResourceError as error:
            raise errors.Refused(str(error), status=404) from error


def _path(kind: Kind, namespace: str) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        root = f"{root}/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"{root}/{kind.resource}"


def _possible(name: str) -> bool:
    """Whether an object may be called so: in a path anything else would mean another path.

    k8s.io/apimachinery/pkg/api/validation/path
    """
    return name not in {".", ".."} and "/" not in name and "%" not in name


def _field(value: str) -> str:
    """Escaped as k8s.io/apimachinery/pkg/fields.EscapeValue does."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])
