"""Events on HPAs: one when a metric cannot be resolved any more, one when it can again.

The name of an Event follows from the HPA, the metric and the state, so replicas of the adapter and
later processes find it: only a state that is not the last one that was written is written. An Event
that exists is counted again, as by client-go.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.autoscalers.questions import Watched
from adapter.background import Condition
from adapter.clients.kubernetes import Kube

log = logging.getLogger(__name__)

COMPONENT = "gpu-metrics-adapter"
UNRESOLVABLE, RESOLVABLE = "MetricUnresolvable", "MetricResolvable"
_MAX_MESSAGE = 1000
"""Characters; the API server accepts 1024."""
_ALL = "/api/v1/events"
_EXISTS, _FORBIDDEN, _GONE = 409, 403, 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A metric of an HPA that became resolvable, or no longer is."""

    hpa: Watched
    metric: str
    """Type and name."""
    resolved: bool
    message: str

    def name(self, *, resolved: bool) -> str:
        """Return the name of the Event with this state."""
        state = RESOLVABLE if resolved else UNRESOLVABLE
        digest = hashlib.sha256(f"{self.hpa.uid}/{self.metric}/{state}".encode()).hexdigest()
        return f"{self.hpa.name}.{digest[:16]}"


class Events:
    """Writes Events. `clock` returns Unix seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.time) -> None:
        self._kube = kube
        self._clock = clock
        self._condition = Condition()

    async def unresolvable(self) -> frozenset[str]:
        """Return the names of the Events of metrics that could not be resolved."""
        try:
            _, names = await self._kube.snapshot(
                _ALL,
                {"fieldSelector": f"reason={UNRESOLVABLE}"},
                lambda item: str(item["metadata"]["name"]),
                metadata_only=True,
            )
        except errors.BackendError as error:
            self._report(error)
            return frozenset()
        return frozenset(names)

    async def write(self, change: Change) -> None:
        """Write the Event of a change, unless it is the last one that was written."""
        path = f"/api/v1/namespaces/{change.hpa.namespace}/events"
        try:
            present = await self._read(f"{path}/{change.name(resolved=change.resolved)}")
            other = await self._read(f"{path}/{change.name(resolved=not change.resolved)}")
            if present is not None and _last(present) >= _last(other):
                return
            if present is None and other is None and change.resolved:
                return  # nobody was told that it was not
            now = dt.datetime.fromtimestamp(self._clock(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if present is None:
                await self._kube.post(path, _document(change, now))
            else:
                again = {
                    **present,
                    "count": (present.get("count") or 1) + 1,
                    "lastTimestamp": now,
                    "message": change.message[:_MAX_MESSAGE],
                }
                await self._kube.put(f"{path}/{change.name(resolved=change.resolved)}", again)
        except errors.BackendError as error:
            # 409: another replica was faster. 404: the namespace or the Event is gone.
            if not isinstance(error, errors.Refused) or error.status not in {_EXISTS, _GONE}:
                self._report(error)
        else:
            self._condition.becomes("")

    async def _read(self, path: str) -> Mapping[str, Any] | None:
        try:
            document: Mapping[str, Any] = await self._kube.get(path)
        except errors.Refused as error:
            if error.status == _GONE:
                return None
            raise
        return document

    def _report(self, error: errors.BackendError) -> None:
        forbidden = isinstance(error, errors.Refused) and error.status == _FORBIDDEN
        cure = "; grant get, list, create and update of events" if forbidden else ""
        if self._condition.becomes(type(error).__name__):
            log.warning("Events of HPAs cannot be written%s: %s", cure, error)


def _last(event: Mapping[str, Any] | None) -> str:
    """Return when an Event was last written; the text sorts like the time."""
    return "" if event is None else str(event.get("lastTimestamp") or "")


def _document(change: Change, now: str) -> Mapping[str, Any]:
    hpa = change.hpa
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": change.name(resolved=change.resolved),
            "namespace": hpa.namespace,
        },
        "involvedObject": {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "namespace": hpa.namespace,
            "name": hpa.name,
            "uid": hpa.uid,
        },
        "reason": RESOLVABLE if change.resolved else UNRESOLVABLE,
        "message": change.message[:_MAX_MESSAGE],
        "type": "Normal" if change.resolved else "Warning",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
