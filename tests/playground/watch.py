"""Looks at the cluster, lets the load follow its Deployment, and remembers what happened."""

from __future__ import annotations

import collections
import http.client
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any

from rules import quantity
from tests.cluster import hpa
from tests.cluster.cluster import Cluster
from tests.control_plane.client import RefusedError
from tests.playground import objects
from tests.playground.view import Autoscaler, Command, Event, Moment, View

REMEMBERED = 2000
"""Moments that are kept, of which there is one a second."""
_OURS = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={objects.BERT}"
_EVENTS = f"/api/v1/namespaces/default/events?fieldSelector={urllib.parse.quote(_OURS)}"


class Watch:
    """What `look` has seen so far. `commands` are shown as they are."""

    def __init__(
        self, cluster: Cluster, *, title: str, setting: str, commands: Iterable[Command]
    ) -> None:
        self._cluster = cluster
        self._title = title
        self._setting = setting
        self._commands = tuple(commands)
        self._began = time.monotonic()
        self._moments: collections.deque[Moment] = collections.deque(maxlen=REMEMBERED)
        self._events: list[Event] = []
        self._told: dict[str, int] = {}
        self._problem = ""
        self._load = 0.0
        self._autoscaler: Autoscaler | None = None

    def look(self) -> View:
        """What there is to see now. Nobody's silence ends it: it is told as an event."""
        cluster = self._cluster
        seconds = time.monotonic() - self._began
        found, problem = None, ""
        try:
            found = hpa.read(cluster.plane.admin, objects.BERT)
            self._autoscaler = autoscaler(found)
            self._tell(seconds, cluster.plane.admin.get(_EVENTS)["items"])
        except RefusedError as refused:
            if refused.reply.status == 404:
                self._autoscaler = None
            else:
                problem = str(refused)
        except (OSError, http.client.HTTPException) as failure:
            problem = f"the API server does not answer: {failure}"
        problem = problem or str(cluster.kubelet.problem or "")
        if problem and problem != self._problem:
            self._events.append(Event(seconds=seconds, text=problem))
        self._problem = problem
        self._moments.append(self._moment(seconds, found))
        return View(
            title=self._title,
            setting=self._setting,
            moments=self._moments,
            autoscaler=self._autoscaler,
            gpus=[self._busy(node, seconds) for node in cluster.fleet.nodes],
            events=self._events,
            commands=self._commands,
        )

    def _moment(self, seconds: float, found: hpa.Hpa | None) -> Moment:
        asked, askers = self._replicas(objects.LOAD)
        load = askers * objects.EACH
        # On its way it tells nothing.
        if asked == askers and load != self._load:
            if self._moments:
                text = f"load {self._load:.0f} % -> {load:.0f} %: {askers} x {objects.LOAD}"
                self._events.append(Event(seconds=seconds, text=text))
            self._load = load
        self._cluster.fleet.offer(objects.BERT, load)
        wanted, ready = self._replicas(objects.BERT)
        return Moment(
            seconds=seconds,
            load=load,
            askers=askers,
            value=current(found) if found else None,
            wanted=wanted,
            ready=ready,
        )

    def _replicas(self, deployment: str) -> tuple[int, int]:
        """How many it is to have, and how many are ready; none where there is no such thing."""
        for each in self._cluster.kubelet.view.deployments:
            metadata = each["metadata"]
            if (metadata["namespace"], metadata["name"]) == ("default", deployment):
                return each["spec"]["replicas"], each["status"].get("readyReplicas", 0)
        return 0, 0

    def _busy(self, node: str, seconds: float) -> list[float | None]:
        return [
            reading.utilization if gpu.pod else None
            for gpu, reading in self._cluster.fleet.readings(node, seconds)
        ]

    def _tell(self, seconds: float, items: Iterable[dict[str, Any]]) -> None:
        """Remember those of `items`, events of the API, that are new or came again."""
        for text in news(items, self._told):
            self._events.append(Event(seconds=seconds, text=text))


def news(items: Iterable[dict[str, Any]], told: dict[str, int]) -> Iterator[str]:
    """What events say that `told` (how often each was counted, by uid) lacks, and put it there."""
    for each in sorted(items, key=_when):
        uid, count = each["metadata"]["uid"], each.get("count") or 1
        if told.get(uid, 0) < count:
            told[uid] = count
            yield sentence(each["reason"], each["message"])


def sentence(reason: str, message: str) -> str:
    """An HPA's event in a line: "scaled to 3: pods metric duty_cycle_current above target"."""
    text = " ".join(message.split())
    if reason == "SuccessfulRescale":
        size, _, why = text.removeprefix("New size: ").partition("; reason: ")
        return f"scaled to {size}: {why}"
    return f"{reason}: {text}"


def autoscaler(found: hpa.Hpa) -> Autoscaler:
    spec = found.document["spec"]
    metric = spec["metrics"][0]
    asked = metric[_field(metric)]
    target = asked["target"]
    amount = next(
        target[key] for key in ("averageValue", "value", "averageUtilization") if key in target
    )
    return Autoscaler(
        metric=asked.get("metric", asked)["name"],
        target=float(quantity.parse(str(amount))),
        smallest=spec.get("minReplicas", 1),
        largest=spec["maxReplicas"],
        header=hpa.HEADER,
        cells=found.cells,
    )


def current(found: hpa.Hpa) -> float | None:
    """The value of its first metric."""
    value = found.metrics[0]
    return None if value == hpa.UNKNOWN else float(quantity.parse(value))


def _field(metric: dict[str, Any]) -> str:
    kind: str = metric["type"]
    return kind[0].lower() + kind[1:]


def _when(event: dict[str, Any]) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""
