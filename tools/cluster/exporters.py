"""HTTP server for the fleet's exporters and model servers and kube-state-metrics, on one port."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from adapter.cli.demo.fleet import GpuPod
from adapter.cli.demo.generations import DemoGeneration
from adapter.cli.demo.serving import DemoServer, Serving
from tools import http_server
from tools.cluster import state_metrics
from tools.cluster.fleet import LiveFleet
from tools.cluster.kubelet import Kubelet
from tools.cluster.scrape import SERVERS, STATE_METRICS
from tools.http_server import METRICS, Answer

Pages = Callable[[str], str | None]
"""Returns the body for a path; None if there is none."""


def pages(fleet: LiveFleet, kubelet: Kubelet, generation: DemoGeneration) -> Pages:
    """Return the metrics of nodes' exporters, of kube-state-metrics and of servers in pods."""
    started = time.monotonic()
    servers = _Servers(fleet, generation.server) if generation.server else None

    def page(path: str) -> str | None:
        if path == STATE_METRICS:
            return state_metrics.render(kubelet.objects)
        if path == SERVERS:
            return servers.targets() if servers else "[]"
        name = path.removesuffix("/metrics").removeprefix("/")
        if name in fleet.nodes:
            return generation.render(fleet.readings(name, time.monotonic() - started))
        return servers.render(name) if servers else None

    return page


@contextlib.contextmanager
def serving(pages: Pages) -> Iterator[int]:
    """Serve pages on the loopback address from a thread; yield the port."""

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        page = pages(request.path)
        kind = "application/json" if request.path == SERVERS else METRICS
        return (404, kind, b"") if page is None else (200, kind, page.encode())

    with http_server.serving(answer) as port:
        yield port


class _Servers:
    """One server in each pod that has GPUs, whose requests follow the load of its first GPU."""

    def __init__(self, fleet: LiveFleet, server: DemoServer) -> None:
        self._fleet = fleet
        self._server = server
        self._lock = threading.Lock()
        self._running: dict[GpuPod, tuple[Serving, float]] = {}
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
