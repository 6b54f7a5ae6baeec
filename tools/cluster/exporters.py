"""HTTP server for the fleet's exporters and model servers and kube-state-metrics, on one port."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from adapter.cli.demo.generations import Generation
from tools import http_server
from tools.cluster import state_metrics
from tools.cluster.fleet import LiveFleet
from tools.cluster.kubelet import Kubelet
from tools.cluster.scrape import SERVERS, STATE_METRICS
from tools.cluster.servers import Servers
from tools.http_server import METRICS, Answer

Pages = Callable[[str], str | None]
"""Returns the body for a path; None if there is none."""


def pages(fleet: LiveFleet, kubelet: Kubelet, generation: Generation) -> Pages:
    """Return the metrics of nodes' exporters, of kube-state-metrics and of servers in pods."""
    started = time.monotonic()
    servers = Servers(fleet, generation.server) if generation.server else None

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
