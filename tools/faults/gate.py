"""A proxy in front of Prometheus that fails as proxies, tenants and networks do."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Literal

from adapter.cli.local_prometheus.process import free_ports
from tools import http_server
from tools.http_server import Answer
from tools.real.prometheus import OPENER

Mode = Literal["", "refused", "404", "html", "no tenant", "wrong tenant", "hangs", "slow"]
"""How requests fail; empty if they do not."""

_DELAY = 8.0
"""Seconds by which answers are late in the mode `slow`."""


class Gate:
    """Passes requests on to `url`; those of a wrong tenant to `empty`, which has no series."""

    def __init__(self, url: str, empty: str) -> None:
        self._servers = url, empty
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._mode: Mode = ""
        self._ended = threading.Event()
        self._listening = contextlib.ExitStack()
        self._listen()

    @contextlib.contextmanager
    def failing(self, mode: Mode) -> Iterator[None]:
        """Fail as `mode` says."""
        self._mode = mode
        self._ended.clear()
        if mode == "refused":
            self._listening.close()
        try:
            yield
        finally:
            self._mode = ""
            self._ended.set()
            if mode == "refused":
                self._listen()

    def close(self) -> None:
        """End the proxy."""
        self._ended.set()
        self._listening.close()

    def _listen(self) -> None:
        self._listening.enter_context(http_server.serving(self.answer, port=self.port))

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        """Return the answer to a request with this body."""
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
            with OPENER.open(passed, timeout=60) as reply:
                return reply.status, reply.headers.get("Content-Type", ""), reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers.get("Content-Type", ""), error.read()
        except OSError:
            return 502, "text/plain", b""
