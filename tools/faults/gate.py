"""A proxy in front of Prometheus that fails as proxies, tenants and networks do."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from tools.control_plane.daemon import free_ports

Mode = Literal["", "refused", "404", "html", "no tenant", "wrong tenant", "hangs", "slow"]
"""How requests fail; empty if they do not."""

_DELAY = 8.0
"""Seconds by which answers are late in the mode `slow`."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Gate:
    """Passes requests on to `url`; those of a wrong tenant to `empty`, which has no series."""

    def __init__(self, url: str, empty: str) -> None:
        self._servers = url, empty
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._mode: Mode = ""
        self._ended = threading.Event()
        self._stop = self._listen()

    @contextlib.contextmanager
    def failing(self, mode: Mode) -> Iterator[None]:
        """Fail as `mode` says."""
        self._mode = mode
        self._ended.clear()
        if mode == "refused":
            self._stop()
        try:
            yield
        finally:
            self._mode = ""
            self._ended.set()
            if mode == "refused":
                self._stop = self._listen()

    def close(self) -> None:
        """End the proxy."""
        self._ended.set()
        self._stop()

    def _listen(self) -> Callable[[], None]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, content_type, answer = gate.answer(self, body)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", content_type)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            do_POST = do_GET  # noqa: N815 - name of the base class

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, str, bytes]:
        """Return status, content type and body of the answer to a request."""
        if self._mode == "404":
            return 404, "text/plain", b"404 page not found\n"
        if self._mode == "html":
            return 200, "text/html", b"<!DOCTYPE html><title>Grafana</title>"
        if self._mode == "no tenant":
            return 401, "text/plain", b"no org id\n"
        if self._mode == "hangs":
            self._ended.wait(120)
            return 503, "text/plain", b""
        if self._mode == "slow":
            time.sleep(_DELAY)
        server = self._servers[self._mode == "wrong tenant"]
        passed = urllib.request.Request(
            f"{server}{request.path}",
            data=body or None,
            headers={"Content-Type": request.headers.get("Content-Type", "")},
            method=request.command,
        )
        try:
            with _OPENER.open(passed, timeout=60) as reply:
                return reply.status, reply.headers.get("Content-Type", ""), reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers.get("Content-Type", ""), error.read()
        except OSError:
            return 502, "text/plain", b""
