"""HTTP server for the fleet's GPU exporters and kube-state-metrics, all on one port."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from adapter.demo.exporter import render
from adapter.demo.generations import Generation
from tests.cluster import state_metrics
from tests.cluster.fleet import LiveFleet
from tests.cluster.kubelet import Kubelet
from tests.cluster.scrape import STATE_METRICS

Pages = Mapping[str, Callable[[], str]]
"""Function that renders the response, by path."""


def pages(fleet: LiveFleet, kubelet: Kubelet, generation: Generation) -> Pages:
    """Return the metrics pages of every node's exporter and of kube-state-metrics."""
    started = time.monotonic()

    def exporter(node: str) -> Callable[[], str]:
        return lambda: render(fleet.readings(node, time.monotonic() - started), generation)

    return {
        **{f"/{node}/metrics": exporter(node) for node in fleet.nodes},
        STATE_METRICS: lambda: state_metrics.render(kubelet.objects),
    }


@contextlib.contextmanager
def serving(pages: Pages) -> Iterator[int]:
    """Serve pages on the loopback address from a thread; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            body = page().encode() if page else b""
            # Prometheus closes the connection when a scrape exceeds its timeout.
            with contextlib.suppress(ConnectionError):
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
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
