"""Simulated scheduler and kubelets: binds pods to nodes with free GPUs and reports them Running.

A thread lists the objects every POLL_SECONDS. While the API server does not respond, the thread
keeps the last state and retries.
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

from adapter.cli.demo.fleet import GpuPod
from tools.cluster.fleet import LiveFleet
from tools.control_plane.client import STRATEGIC_MERGE_PATCH, Client, RefusedError

POLL_SECONDS = 0.3
GPU_RESOURCE = "nvidia.com/gpu"
Object = Mapping[str, Any]

_NODES = "/api/v1/nodes"
_FAILURES = (OSError, http.client.HTTPException, RefusedError, ValueError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterObjects:
    """Objects of the last successful list."""

    pods: tuple[Object, ...] = ()
    replica_sets: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()


class Kubelet:
    """Kubelets of all nodes of a fleet, and the scheduler."""

    def __init__(self, client: Client, fleet: LiveFleet, *, start_seconds: float = 0.0) -> None:
        self.fleet = fleet
        self.start_seconds = start_seconds
        """Seconds from binding to Ready; a change applies to pods that are bound later."""
        self.objects = ClusterObjects()
        self.error: Exception | None = None
        """Error of the last poll; None if it succeeded."""
        self._client = client
        self._ready_at: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self) -> None:
        """Create the nodes and start the thread."""
        for node in self.fleet.nodes:
            self._register(node)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def unregister(self) -> None:
        """Delete the nodes and the pods on them. Call `stop` first."""
        for pod in self._list("/api/v1/pods"):
            if pod["spec"].get("nodeName") in self.fleet.nodes:
                self._delete(pod)
        for node in self.fleet.nodes:
            with contextlib.suppress(RefusedError):
                self._client.call("DELETE", f"{_NODES}/{node}")

    def _run(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self.error = self._poll()
            except _FAILURES as error:
                self.error = error

    def _poll(self) -> Exception | None:
        pods = tuple(self._list("/api/v1/pods"))
        error = self._sync(pods)
        self.objects = ClusterObjects(
            pods=pods,
            replica_sets=tuple(self._list("/apis/apps/v1/replicasets")),
            deployments=tuple(self._list("/apis/apps/v1/deployments")),
        )
        return error

    def _sync(self, pods: tuple[Object, ...]) -> Exception | None:
        error = None
        existing = {pod["metadata"]["uid"] for pod in pods}
        for uid in self.fleet.scheduled_nodes.keys() - existing:
            self._release(uid)
        for pod in pods:
            try:
                self._sync_pod(pod)
            except RefusedError as refused:
                # The pod was changed or deleted since the list; the next poll sees that.
                if refused.reply.status not in (404, 409):
                    error = refused
        return error

    def _sync_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        if pod["metadata"].get("deletionTimestamp") and node in self.fleet.nodes:
            self._delete(pod)
        elif pod["status"]["phase"] in ("Succeeded", "Failed"):
            self._release(uid)
        elif pod["status"]["phase"] != "Pending":
            return
        elif node is None:
            self._bind(pod)
        elif node in self.fleet.nodes and time.monotonic() >= self._ready_at.get(uid, 0):
            self._patch(f"{_path(pod)}/status", {"status": running_status(pod)})
            self.fleet.mark_ready(uid)

    def _bind(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = self.fleet.scheduled_nodes.get(uid) or self.fleet.schedule(
            uid, _fleet_pod(pod), _gpu_limit(pod)
        )
        if node is None:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": pod["metadata"]["name"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._ready_at[uid] = time.monotonic() + self.start_seconds
        self._client.call("POST", f"{_path(pod)}/binding", binding)
        if not self.start_seconds:
            self._sync_pod({**pod, "spec": {**pod["spec"], "nodeName": node}})

    def _delete(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(RefusedError):  # deleted already, or replaced by a namesake
            self._client.call("DELETE", _path(pod), options)
        self._release(uid)

    def _release(self, uid: str) -> None:
        self._ready_at.pop(uid, None)
        self.fleet.release(uid)

    def _register(self, node: str) -> None:
        labels = {"kubernetes.io/hostname": node, "accelerator": "nvidia-gpu"}
        metadata = {"name": node, "labels": labels}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        self._client.call("POST", _NODES, document)
        capacity = {
            "cpu": "64",
            "memory": "512Gi",
            "pods": "110",
            GPU_RESOURCE: str(self.fleet.gpus),
        }
        ready = _condition("Ready", reason="KubeletReady")
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        self._patch(f"{_NODES}/{node}/status", {"status": status})

    def _patch(self, path: str, document: object) -> None:
        self._client.call("PATCH", path, document, content_type=STRATEGIC_MERGE_PATCH)

    def _list(self, path: str) -> Iterator[Object]:
        yield from self._client.get(path)["items"]


def _path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _fleet_pod(pod: Object) -> GpuPod:
    """Return the pod in the form of the fleet, without a node."""
    metadata = pod["metadata"]
    return GpuPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        container=pod["spec"]["containers"][0]["name"],
        app=metadata.get("labels", {}).get("app", ""),
        node="",
    )


def _gpu_limit(pod: Object) -> int:
    limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get(GPU_RESOURCE, 0)) for each in limits)


def running_status(pod: Object) -> Object:
    """Return the status of a pod whose containers are ready."""
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
    condition = {"type": kind, "status": "True", "lastTransitionTime": _now()}
    return condition | ({"reason": reason} if reason else {})


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
