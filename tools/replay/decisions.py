"""Compares decisions from the past values of a replay with those of the real controller.

The real controller scales objects of a CRD, and reads the answers that the server gave at each step
of a past, step after step, in real time. The pods of the step exist in the real API server. Each
request for the first metric is one sync: the replicas then are recorded, and the time of the last
answer. While pods change, nobody is answered, until the controller shows that it knows them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from typing import Any

from rules.hpa import autoscaler, replay
from rules.hpa.replay import MetricReading, Sync
from tools.control_plane.client import Client
from tools.control_plane.plane import ControlPlane
from tools.hpa import controller, random_objects
from tools.hpa.controller import HPAS, PODS, TARGETS, create_pod, remove_pod, set_status
from tools.hpa.random_objects import GROUP, KIND, NAMESPACE
from tools.real.prometheus import wait_for
from tools.replay.values import Row
from tools.replay.worlds import PastPod

_NODES = "/api/v1/nodes"
_NODE = "replay"
"""Node of all pods: of pods without one, the garbage collector fails those that are deleted."""
_SPEC = {"containers": [{"name": "a", "image": "none"}], "nodeName": _NODE}
_PRESENT = 3
"""`status.replicas` of each target, which nothing changes."""
_LATE = (0.05, 0.1, 0.2, 0.4)
"""Seconds between the last answer to the controller and the time that it takes for its decision."""
_WORKERS = 5
"""Syncs that the controller does at once by default."""


@dataclass(kw_only=True)
class Compared:
    """Decisions for one HPA."""

    row: Row
    history: list[Sync] = field(default_factory=list)
    """One element for each sync of the real controller."""

    @property
    def hpa(self) -> dict[str, Any]:
        """The HPA as the real API server has it."""
        name = f"h{self.row.case.number}"
        target = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": name}
        spec = {**self.row.case.hpa["spec"], "scaleTargetRef": target}
        return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}

    @property
    def pairs(self) -> list[tuple[int | None, int | None]]:
        """What was decided from the past values, and the replicas at the next sync."""
        decided = replay.decisions(autoscaler.autoscaler(self.hpa), self.history)
        return [
            (each, after.replicas) for each, after in zip(decided, self.history[1:], strict=False)
        ]

    @property
    def wrong(self) -> list[int]:
        """The syncs at which they differ, although no window or period ended in their moment.

        The controller takes the time itself, up to some tenths of a second after the last answer.
        """
        return [
            index
            for index, (decided, real) in enumerate(self.pairs)
            if decided != real and not self._at_edge(index)
        ]

    def _at_edge(self, index: int) -> bool:
        hpa, real = autoscaler.autoscaler(self.hpa), self.history[index + 1].replicas
        sync = self.history[index]
        later = (replace(sync, time=sync.time + late) for late in _LATE)
        pasts = ([*self.history[:index], each] for each in later)
        return any([*replay.decisions(hpa, past)][-1] == real for past in pasts)

    @property
    def changes(self) -> int:
        """How often the controller changed the replicas."""
        replicas = [each.replicas for each in self.history]
        return sum(a != b for a, b in itertools.pairwise(replicas))


class _Metrics(controller.Metrics):
    """Answers with the items of the present step; nobody is answered while pods change."""

    def __init__(self, control_plane: ControlPlane, cases: Sequence[Compared]) -> None:
        super().__init__()
        self._admin = control_plane.admin
        self._cases = {
            f"m{of.number}": (index, each)
            for each in cases
            for index, of in enumerate(each.row.case.each)
        }
        self._steps: dict[int, int] = {}
        """Number of a case -> the step of its present sync, which reads its metrics in turn."""
        self._numbers = {each.row.case.number for each in cases}
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._waiting: set[int] = set()
        self.step = 0

    def close(self, step: int) -> None:
        """Answer nobody until `open`; then with the items of `step`.

        Blocks until the syncs that had an answer have ended, which is so when all workers of the
        controller wait for the answers of other syncs.
        """
        self._open.clear()
        workers = min(_WORKERS, len(self._numbers)) if step else 0
        wait_for(lambda: len(self._waiting) >= workers, "the controller waits")
        with self._lock:
            self.step = step

    def open(self) -> None:
        """Answer, and block until each HPA had a sync in this step."""
        self._open.set()
        wait_for(
            lambda: all(self._steps.get(each) == self.step for each in self._numbers),
            "each HPA has a sync",
        )

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return the items of the step, and record the sync."""
        index, compared = self._cases.get(path.rpartition("/")[2], (0, None))
        if "/namespaces/" not in path or compared is None:
            return super().answer(path, query)
        number = compared.row.case.number
        if not index:
            self._begin(compared)
        with self._lock:
            step = self._steps.get(number, 0)
            self.replies[path] = compared.row.items[step][index] or None
            compared.history[-1] = replace(compared.history[-1], time=time.time())
            return super().answer(path, query)

    def _begin(self, compared: Compared) -> None:
        """Record a sync, as soon as somebody may be answered."""
        number = compared.row.case.number
        self._waiting.add(number)
        self._open.wait()
        self._waiting.discard(number)
        target = self._admin.get(f"{TARGETS}/h{number}")
        with self._lock:
            self._steps[number] = self.step
            compared.history.append(_sync(compared.row, self.step, target["spec"]["replicas"]))


def _sync(row: Row, step: int, replicas: int) -> Sync:
    """Return a sync with what a replay says of a step."""
    past = row.past.history if row.past else ()
    found = next((each for each in past if round(each.time) == row.case.time(step)), None)
    return Sync(
        time=time.time(),
        readings=found.readings if found else (MetricReading(milli=None),) * len(row.case.each),
        replicas=replicas,
        present=_PRESENT,
        pods=found.pods if found else 0,
        ready=found.ready if found else 0,
    )


def compare(control_plane: ControlPlane, rows: Sequence[Row], *, seconds: float) -> list[Compared]:
    """Let the real controller scale by the answers, each step for a sync and some seconds more."""
    admin, cases = control_plane.admin, [Compared(row=each) for each in rows]
    metrics = _Metrics(control_plane, cases)

    def create(each: Compared) -> None:
        target = random_objects.target(f"h{each.row.case.number}", 2, _PRESENT)
        admin.call("POST", TARGETS, target)

    def change(each: Compared) -> None:
        for pod in each.row.case.pods:
            _change(admin, f"h{each.row.case.number}", pod, metrics.step)

    with (
        controller.running(control_plane, metrics) as bed,
        futures.ThreadPoolExecutor(4) as executor,
        contextlib.ExitStack() as stack,
    ):
        admin.call("POST", _NODES, {"metadata": {"name": _NODE}})
        stack.callback(admin.request, "DELETE", f"{_NODES}/{_NODE}")
        list(executor.map(create, cases))
        for step in range(rows[0].case.steps):
            metrics.close(step)
            list(executor.map(change, cases))
            if not step:
                list(executor.map(lambda each: admin.call("POST", HPAS, each.hpa), cases))
            bed.wait_until_pods_are_known()
            metrics.open()
            time.sleep(seconds)
    return cases


def _change(admin: Client, app: str, pod: PastPod, step: int) -> None:
    """Bring a pod from its state at the step before to the present one."""
    if step == pod.begin:
        create_pod(admin, pod.name, app, _SPEC)
    if step == pod.end:
        remove_pod(admin, pod.name)
    if not pod.begin <= step < pod.end:
        return
    state = pod.phase(step), pod.is_ready(step)
    if step == pod.begin or state != (pod.phase(step - 1), pod.is_ready(step - 1)):
        condition = {"type": "Ready", "status": str(state[1])}
        set_status(admin, pod.name, {"phase": state[0], "conditions": [condition]})
    if step == pod.deleted:
        admin.request("DELETE", f"{PODS}/{pod.name}")


def fitting(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose pods are known in all states, and that have values."""
    return [each for each in rows if each.case.known and each.past]
