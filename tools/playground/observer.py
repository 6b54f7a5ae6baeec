"""Observes the playground's cluster and sets the load by the replicas of the load generator."""

from __future__ import annotations

import collections
import http.client
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adapter.cli.commands import conformance_workload
from tools import quantity
from tools.cluster import hpa
from tools.cluster.cluster import Cluster
from tools.control_plane.client import RefusedError
from tools.playground import manifests
from tools.playground.view import Autoscaler, Command, Event, Snapshot, View

MAX_SNAPSHOTS = 2000
"""Number of snapshots kept; one is taken each second."""
_HPA_EVENTS = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={manifests.BERT}"
_LOADS_PATH = f"/api/v1/configmaps?labelSelector={urllib.parse.quote(conformance_workload.LABEL)}"
"""Loads of the workload of `conformance`, whose containers do not run here."""
_EVENTS_PATH = f"/api/v1/namespaces/default/events?fieldSelector={urllib.parse.quote(_HPA_EVENTS)}"


class Observer:
    """History of snapshots and events. `commands` are passed on to the view."""

    def __init__(self, cluster: Cluster, *, subtitle: str, commands: Iterable[Command]) -> None:
        self._cluster = cluster
        self._subtitle = subtitle
        self._commands = tuple(commands)
        self._started = time.monotonic()
        self._snapshots: collections.deque[Snapshot] = collections.deque(maxlen=MAX_SNAPSHOTS)
        self._events: list[Event] = []
        self._event_counts: dict[str, int] = {}
        self._error = ""
        self._load = 0.0
        self._autoscaler: Autoscaler | None = None

    def observe(self) -> View:
        """Read the cluster, update the load, and return the view. Errors become events."""
        cluster = self._cluster
        seconds = time.monotonic() - self._started
        current_hpa, error = None, ""
        try:
            current_hpa = hpa.read(cluster.control_plane.admin, manifests.BERT)
            self._autoscaler = autoscaler(current_hpa)
            for text in new_events(
                cluster.control_plane.admin.get(_EVENTS_PATH)["items"], self._event_counts
            ):
                self._events.append(Event(seconds=seconds, text=text))
            self._set_loads(cluster.control_plane.admin.get(_LOADS_PATH)["items"])
        except RefusedError as refused:
            if refused.reply.status == 404:
                self._autoscaler = None
            else:
                error = str(refused)
        except (OSError, http.client.HTTPException) as failure:
            error = f"no response from the API server: {failure}"
        error = error or str(cluster.kubelet.error or "")
        if error and error != self._error:
            self._events.append(Event(seconds=seconds, text=error))
        self._error = error
        self._snapshots.append(self._snapshot(seconds, current_hpa))
        return View(
            subtitle=self._subtitle,
            snapshots=self._snapshots,
            autoscaler=self._autoscaler,
            gpus=[self._utilisation(node, seconds) for node in cluster.fleet.nodes],
            events=self._events,
            commands=self._commands,
        )

    def _set_loads(self, config_maps: Iterable[Mapping[str, Any]]) -> None:
        """Give each pod in the namespace of a ConfigMap the load that this has."""
        fleet = self._cluster.fleet
        for each in config_maps:
            namespace = each["metadata"]["namespace"]
            pods = sum(pod.namespace == namespace for pod in fleet.pods)
            level = float(each["data"][conformance_workload.LEVEL])
            fleet.set_load("", level * pods, namespace=namespace)

    def _snapshot(self, seconds: float, current_hpa: hpa.Hpa | None) -> Snapshot:
        desired_load_replicas, load_replicas = self._replicas(manifests.LOAD)
        load = load_replicas * manifests.LOAD_PER_REPLICA
        # One event for the whole change: none while the load generator is still scaling.
        if desired_load_replicas == load_replicas and load != self._load:
            if self._snapshots:
                text = (
                    f"load {self._load:.0f} % -> {load:.0f} %: {load_replicas} x {manifests.LOAD}"
                )
                self._events.append(Event(seconds=seconds, text=text))
            self._load = load
        self._cluster.fleet.set_load(manifests.BERT, load)
        desired, ready = self._replicas(manifests.BERT)
        return Snapshot(
            seconds=seconds,
            load=load,
            load_replicas=load_replicas,
            value=current_value(current_hpa) if current_hpa else None,
            desired=desired,
            ready=ready,
        )

    def _replicas(self, deployment: str) -> tuple[int, int]:
        """Return the desired and the ready replicas; zero if the Deployment does not exist."""
        for each in self._cluster.kubelet.objects.deployments:
            metadata = each["metadata"]
            if (metadata["namespace"], metadata["name"]) == ("default", deployment):
                return each["spec"]["replicas"], each["status"].get("readyReplicas", 0)
        return 0, 0

    def _utilisation(self, node: str, seconds: float) -> list[float | None]:
        return [
            reading.utilization if gpu.pod else None
            for gpu, reading in self._cluster.fleet.readings(node, seconds)
        ]


def new_events(items: Iterable[dict[str, Any]], counts: dict[str, int]) -> Iterator[str]:
    """Yield the text of each Event object that is new or has a higher count than in `counts`.

    `counts` maps the uid of an Event to its last count, and is updated.
    """
    for each in sorted(items, key=_timestamp):
        uid, count = each["metadata"]["uid"], each.get("count") or 1
        if counts.get(uid, 0) < count:
            counts[uid] = count
            yield format_event(each["reason"], each["message"])


def format_event(reason: str, message: str) -> str:
    """Return an HPA's event as one line: "scaled to 3: pods metric duty_cycle above target"."""
    text = " ".join(message.split())
    if reason == "SuccessfulRescale":
        size, _, why = text.removeprefix("New size: ").partition("; reason: ")
        return f"scaled to {size}: {why}"
    return f"{reason}: {text}"


def autoscaler(current: hpa.Hpa) -> Autoscaler:
    """Return what is drawn of an HPA; of its metrics only the first."""
    spec = current.document["spec"]
    metric = spec["metrics"][0]
    source = metric[hpa.source_field(metric)]
    return Autoscaler(
        metric=source.get("metric", source)["name"],
        target=float(quantity.parse(hpa.target_value(metric))),
        min_replicas=spec.get("minReplicas", 1),
        max_replicas=spec["maxReplicas"],
        cells=current.cells,
    )


def current_value(current: hpa.Hpa) -> float | None:
    """Return the current value of the first metric; None if it is unknown."""
    value = current.metrics[0]
    return None if value == hpa.UNKNOWN else float(quantity.parse(value))


def _timestamp(event: dict[str, Any]) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""
