"""Model servers in the ready pods of a live fleet, and how Prometheus discovers them."""

from __future__ import annotations

import json
import threading
import time

from adapter.cli.demo.fleet import Pod
from adapter.cli.demo.serving import Server, Serving
from tools.cluster.fleet import LiveFleet


class Servers:
    """One server in each pod that has GPUs, whose requests follow the load of its first GPU."""

    def __init__(self, fleet: LiveFleet, server: Server) -> None:
        self._fleet = fleet
        self._server = server
        self._lock = threading.Lock()
        self._running: dict[Pod, tuple[Serving, float]] = {}
        """Server of each pod, and when it started."""

    def targets(self) -> str:
        """Return the pods for `http_sd_configs`, with the labels that a PodMonitor adds."""
        groups = [
            {
                "targets": [f"{pod.name}:8000"],
                "labels": {
                    "__metrics_path__": f"/{pod.name}/metrics",
                    "namespace": pod.namespace,
                    "pod": pod.name,
                    "container": "server",
                },
            }
            for pod in self._fleet.pods
        ]
        return json.dumps(groups)

    def render(self, name: str) -> str | None:
        """Return what the server in a pod exposes; None if no ready pod has this name."""
        pods = {pod.name: (pod, gpus[0]) for pod, gpus in self._fleet.pods.items()}
        if name not in pods:
            return None
        pod, gpu = pods[name]
        now = time.monotonic()
        with self._lock:
            for gone in self._running.keys() - self._fleet.pods.keys():
                del self._running[gone]
            serving, started = self._running.setdefault(pod, (Serving(self._server), now))
            busy = next(
                reading.utilization
                for each, reading in self._fleet.readings(pod.node, now - started)
                if each.index == gpu.index
            )
            return serving.page(now - started, lambda _: busy)
