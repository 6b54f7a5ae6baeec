"""Events on HPAs: one when a metric cannot be resolved any more, one when it can again.

The name of an Event follows from the HPA, the metric and the state, so replicas of the adapter and
later processes find it: only a state that is not the last one that was written is written.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from adapter.clients.events import EventWriter, event_name, last_written
from adapter.clients.kubernetes import Kube
from adapter.server.autoscalers.watched_hpa import WatchedHpa

UNRESOLVABLE, RESOLVABLE = "MetricUnresolvable", "MetricResolvable"
_ALL = "/api/v1/events"
_MAX_EVENTS = 100_000
"""Events that are listed at the start, about 10 MB; beyond that, none counts as written before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A metric of an HPA that became resolvable, or no longer is."""

    hpa: WatchedHpa
    metric: str
    """Type and name."""
    resolved: bool
    message: str

    def name(self, *, resolved: bool) -> str:
        """Return the name of the Event with this state."""
        state = RESOLVABLE if resolved else UNRESOLVABLE
        digest = hashlib.sha256(f"{self.hpa.uid}/{self.metric}/{state}".encode()).hexdigest()
        return event_name(self.hpa.name, digest)


class Events:
    """Writes Events."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._writer = EventWriter(kube, "HPAs")

    async def unresolvable(self) -> frozenset[str]:
        """Return the names of the Events of metrics that could not be resolved."""
        names: list[str] = []
        with self._writer.reporting():
            _, names = await self._kube.snapshot(
                _ALL,
                {"fieldSelector": f"reason={UNRESOLVABLE}"},
                lambda item: str(item["metadata"]["name"]),
                metadata_only=True,
                max_items=_MAX_EVENTS,
            )
        return frozenset(names)

    async def write(self, change: Change) -> bool:
        """Write the Event of a change, unless it is the last one that was written.

        Return whether that is done or refused; otherwise, another attempt may succeed.
        """
        namespace = change.hpa.namespace
        with self._writer.reporting() as writing:
            present = await self._writer.read(namespace, change.name(resolved=change.resolved))
            other = await self._writer.read(namespace, change.name(resolved=not change.resolved))
            if present is not None:
                if last_written(present) < last_written(other):
                    await self._writer.repeat(present, change.message)
            elif other is not None or not change.resolved:  # else nobody was told that it was not
                await self._create(change)
        return not writing.failed

    async def _create(self, change: Change) -> None:
        about = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "namespace": change.hpa.namespace,
            "name": change.hpa.name,
            "uid": change.hpa.uid,
        }
        await self._writer.create(
            change.name(resolved=change.resolved),
            about,
            reason=RESOLVABLE if change.resolved else UNRESOLVABLE,
            message=change.message,
            warning=not change.resolved,
        )
