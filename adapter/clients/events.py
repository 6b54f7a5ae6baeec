"""Writes Events, which `kubectl describe` shows below the object that they are about.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.background import Condition
from adapter.clients.kubernetes import Kube
from rules.names import MAX_NAME
from rules.quoting import shorten_middle

log = logging.getLogger(__name__)

COMPONENT = "gpu-metrics-adapter"
_DIGEST = 16
"""Characters of a digest in a name."""
_MAX_MESSAGE = 1000
"""Characters; the API server accepts 1024."""
_EXISTS, _FORBIDDEN, _GONE, _INVALID = 409, 403, 404, 422


@dataclass(slots=True)
class Writing:
    """What became of a write."""

    failed: bool = False
    """Whether the same write may succeed later: the API server did not refuse it."""


class Failures:
    """Logs why writes fail. `problem` says what is not written, `rights` what they need."""

    def __init__(self, problem: str, rights: str) -> None:
        self._problem = problem
        self._rights = rights
        self._condition = Condition()

    @contextlib.contextmanager
    def reporting(self) -> Iterator[Writing]:
        """Log a BackendError of the block once, until another block succeeds."""
        writing = Writing()
        try:
            yield writing
        except errors.BackendError as error:
            status = error.status if isinstance(error, errors.Refused) else None
            writing.failed = status not in {_EXISTS, _FORBIDDEN, _GONE, _INVALID}
            # 409: another replica was faster. 404: the namespace or the object is gone.
            if status in {_EXISTS, _GONE}:
                return
            cure = f"; grant {self._rights}" if status == _FORBIDDEN else ""
            if self._condition.becomes(type(error).__name__):
                log.warning("%s%s: %s", self._problem, cure, error)
        else:
            self._condition.becomes("")


class EventWriter(Failures):
    """Writes Events about `subject`."""

    def __init__(self, kube: Kube, subject: str) -> None:
        super().__init__(
            f"Events of {subject} cannot be written", "get, list, create and update of events"
        )
        self._kube = kube

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

    def _now(self) -> str:
        return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event_name(subject: str, digest: str) -> str:
    """Return the name of an Event: that of its object, cut if the two would be too long."""
    return f"{subject[: MAX_NAME - _DIGEST - 1].rstrip('.-')}.{digest[:_DIGEST]}"


def last_written(event: Mapping[str, Any] | None) -> str:
    """Return when an Event was last written; the text sorts like the time."""
    return "" if event is None else str(event.get("lastTimestamp") or "")


def _path(namespace: str, name: str = "") -> str:
    collection = f"/api/v1/namespaces/{namespace}/events"
    return f"{collection}/{name}" if name else collection
