"""HTTP server for the fleet's exporters and model servers and kube-state-metrics, on one port."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator

from adapter.cli.demo.generations import Generation
from tools.cluster import state_metrics
from tools.cluster.fleet import LiveFleet
from tools.cluster.kubelet import Kubelet
from tools.cluster.scrape import SERVERS, STATE_METRICS
from tools.cluster.servers import Servers

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

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages(self.path)
            body = (page or "").encode()
            kind = "application/json" if self.path == SERVERS else "text/plain; version=0.0.4"
            # Prometheus closes the connection when a scrape exceeds its timeout.
            with contextlib.suppress(ConnectionError):
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # A daemon thread: Ctrl-C may come before the `try` below that would stop it.
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="exporters", daemon=True
        )
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
