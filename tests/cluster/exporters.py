"""The fleet's GPU exporters and kube-state-metrics over HTTP, from a thread, behind one port."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from adapter.demo import exposition
from adapter.demo.generations import Generation
from tests.cluster import state_metrics
from tests.cluster.fleet import LiveFleet
from tests.cluster.kubelet import Kubelet
from tests.cluster.scrape import STATE_METRICS

Pages = Mapping[str, Callable[[], str]]


def pages(fleet: LiveFleet, kubelet: Kubelet, generation: Generation) -> Pages:
    """The path of each exporter, and what it answers there."""
    began = time.monotonic()

    def gpus(node: str) -> Callable[[], str]:
        return lambda: exposition.render(fleet.readings(node, time.monotonic() - began), generation)

    return {
        **{f"/{node}/metrics": gpus(node) for node in fleet.nodes},
        STATE_METRICS: lambda: state_metrics.render(kubelet.view),
    }


@contextlib.contextmanager
def serving(found: Pages) -> Iterator[int]:
    """The port of 127.0.0.1 that serves them."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = found.get(self.path)
            body = page().encode() if page else b""
            # A scrape that took too long on a busy machine is not waited for.
            with contextlib.suppress(ConnectionError):
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # A daemon, as Ctrl-C may come before there is anybody to end it.
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="exporters", daemon=True
        )
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
