"""Writes Events, which `kubectl describe` shows below the object that they are about.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from adapter import errors
from adapter.background import Condition
from adapter.clients.kubernetes import Kube
from rules.quoting import shorten_middle

log = logging.getLogger(__name__)

COMPONENT = "gpu-metrics-adapter"
_MAX_MESSAGE = 1000
"""Characters; the API server accepts 1024."""
_EXISTS, _FORBIDDEN, _GONE = 409, 403, 404


class EventWriter:
    """Writes Events about `subject`."""

    def __init__(self, kube: Kube, subject: str) -> None:
        self._kube = kube
        self._subject = subject
        self._condition = Condition()

    async def read(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return an Event; None if there is none. Raises BackendError."""
        try:
            document: Mapping[str, Any] = await self._kube.get(_path(namespace, name))
        except errors.Refused as error:
            if error.status == _GONE:
                return None
            raise
        return document

    async def create(
        self, name: str, about: Mapping[str, str], *, reason: str, message: str, warning: bool
    ) -> None:
        """Write an Event for the first time; `about` refers to an object. Raises BackendError."""
        now = self._now()
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about["namespace"]},
            "involvedObject": about,
            "reason": reason,
            "message": shorten_middle(message, _MAX_MESSAGE),
            "type": "Warning" if warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._kube.post(_path(about["namespace"]), document)

    async def repeat(self, present: Mapping[str, Any], message: str) -> None:
        """Count an Event that exists once more, as client-go does. Raises BackendError."""
        again = {
            **present,
            "count": (present.get("count") or 1) + 1,
            "lastTimestamp": self._now(),
            "message": shorten_middle(message, _MAX_MESSAGE),
        }
        metadata = present["metadata"]
        await self._kube.put(_path(metadata["namespace"], metadata["name"]), again)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Log a BackendError of the block once, until another block succeeds."""
        try:
            yield
        except errors.BackendError as error:
            status = error.status if isinstance(error, errors.Refused) else None
            # 409: another replica was faster. 404: the namespace or the Event is gone.
            if status in {_EXISTS, _GONE}:
                return
            cure = "; grant get, list, create and update of events" if status == _FORBIDDEN else ""
            if self._condition.becomes(type(error).__name__):
                log.warning("Events of %s cannot be written%s: %s", self._subject, cure, error)
        else:
            self._condition.becomes("")

    def _now(self) -> str:
        return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def last_written(event: Mapping[str, Any] | None) -> str:
    """Return when an Event was last written; the text sorts like the time."""
    return "" if event is None else str(event.get("lastTimestamp") or "")


def _path(namespace: str, name: str = "") -> str:
    collection = f"/api/v1/namespaces/{namespace}/events"
    return f"{collection}/{name}" if name else collection
