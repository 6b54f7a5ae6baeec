"""A kubelet's shadow: binds pods to nodes with free GPUs, says that they run, and ends them.

It looks at the API server every POLL seconds, from a thread, and survives that nobody answers:
what it knew last goes on until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from adapter.demo.fleet import Pod
from tests.cluster.fleet import LiveFleet
from tests.control_plane.client import Client, RefusedError

POLL = 0.3
GPU = "nvidia.com/gpu"
PATCH = "application/strategic-merge-patch+json"
Object = Mapping[str, Any]

_NODES = "/api/v1/nodes"
_FAILURES = (OSError, http.client.HTTPException, RefusedError, ValueError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """The objects as they were last seen."""

    pods: tuple[Object, ...] = ()
    replica_sets: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()


class Kubelet:
    def __init__(self, client: Client, fleet: LiveFleet, *, start_seconds: float = 0.0) -> None:
        self.fleet = fleet
        self.start_seconds = start_seconds
        """From binding to Ready; for pods that are bound from now on."""
        self.view = View()
        self.problem: Exception | None = None
        """Why the last look failed; None while all is well."""
        self._client = client
        self._due: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self) -> None:
        for node in self.fleet.nodes:
            self._register(node)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def withdraw(self) -> None:
        """Once it is stopped: take the nodes away again, and what is still on them."""
        for pod in self._list("/api/v1/pods"):
            if pod["spec"].get("nodeName") in self.fleet.nodes:
                self._end(pod)
        for node in self.fleet.nodes:
            with contextlib.suppress(RefusedError):
                self._client.call("DELETE", f"{_NODES}/{node}")

    def _run(self) -> None:
        while not self._stopping.wait(POLL):
            try:
                self.problem = self._look()
            except _FAILURES as problem:
                self.problem = problem

    def _look(self) -> Exception | None:
        pods = tuple(self._list("/api/v1/pods"))
        problem = self._reconcile(pods)
        self.view = View(
            pods=pods,
            replica_sets=tuple(self._list("/apis/apps/v1/replicasets")),
            deployments=tuple(self._list("/apis/apps/v1/deployments")),
        )
        return problem

    def _reconcile(self, pods: tuple[Object, ...]) -> Exception | None:
        problem = None
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in self.fleet.admitted.keys() - there:
            self._forget(uid)
        for pod in pods:
            try:
                self._serve(pod)
            except RefusedError as refused:
                # Whoever was changed or ended by somebody else meanwhile is no problem.
                if refused.reply.status not in (404, 409):
                    problem = refused
        return problem

    def _serve(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        if pod["metadata"].get("deletionTimestamp") and node in self.fleet.nodes:
            self._end(pod)
        elif pod["status"]["phase"] in ("Succeeded", "Failed"):
            self._forget(uid)
        elif pod["status"]["phase"] != "Pending":
            return
        elif node is None:
            self._bind(pod)
        elif node in self.fleet.nodes and time.monotonic() >= self._due.get(uid, 0):
            self._patch(f"{_path(pod)}/status", {"status": _running(pod)})
            self.fleet.started(uid)

    def _bind(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = self.fleet.admitted.get(uid) or self.fleet.admit(uid, _named(pod), _gpus(pod))
        if node is None:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": pod["metadata"]["name"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._due[uid] = time.monotonic() + self.start_seconds
        self._client.call("POST", f"{_path(pod)}/binding", binding)
        if not self.start_seconds:
            self._serve({**pod, "spec": {**pod["spec"], "nodeName": node}})

    def _end(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(RefusedError):  # it is gone, or another one has its name
            self._client.call("DELETE", _path(pod), options)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._due.pop(uid, None)
        self.fleet.left(uid)

    def _register(self, node: str) -> None:
        labels = {"kubernetes.io/hostname": node, "accelerator": "nvidia-gpu"}
        metadata = {"name": node, "labels": labels}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        self._client.call("POST", _NODES, document)
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(self.fleet.gpus)}
        ready = _condition("Ready", reason="KubeletReady")
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self._patch(f"{_NODES}/{node}/status", {"status": status})

    def _patch(self, path: str, document: object) -> None:
        self._client.call("PATCH", path, document, content_type=PATCH)

    def _list(self, path: str) -> Iterator[Object]:
        yield from self._client.get(path)["items"]


def _path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _named(pod: Object) -> Pod:
    """The pod as the fleet knows it, on no node yet."""
    metadata = pod["metadata"]
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        container=pod["spec"]["containers"][0]["name"],
        app=metadata.get("labels", {}).get("app", ""),
        node="",
    )


def _gpus(pod: Object) -> int:
    asked = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(limits.get(GPU, 0)) for limits in asked)


def _running(pod: Object) -> Object:
    now = _now()
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "state": {"running": {"startedAt": now}},
        }
        for each in pod["spec"]["containers"]
    ]
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [_condition(kind) for kind in kinds],
        "containerStatuses": containers,
    }


def _condition(kind: str, *, reason: str = "") -> Object:
    found = {"type": kind, "status": "True", "lastTransitionTime": _now()}
    return found | ({"reason": reason} if reason else {})


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
