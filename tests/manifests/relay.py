"""Server between the adapter and another one: it records what it receives, and can attack."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import gzip
import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from certs.issue import issue_temporary

ITEM = '{"metricName":"m","metricLabels":null,"timestamp":"2026-05-04T03:02:01Z","value":"1"}'
Attack = Callable[[BaseHTTPRequestHandler], None]


@functools.cache
def _large() -> bytes:
    return b'{"items":[' + b",".join([ITEM.encode()] * 650_000) + b"]}"


@functools.cache
def _compressed() -> bytes:
    return gzip.compress(bytes(100_000_000)) * 10


def prepare() -> None:
    """Build the bodies of the attacks, which takes a second."""
    _large()
    _compressed()


def begin(handler: BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
    """Send the head of an answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Connection", "close")
    handler.end_headers()


def large(handler: BaseHTTPRequestHandler) -> None:
    """Answer with 57 MB of items."""
    begin(handler)
    handler.wfile.write(_large())


def many(handler: BaseHTTPRequestHandler) -> None:
    """Answer with 1 001 items."""
    begin(handler)
    handler.wfile.write(b'{"items":[' + b",".join([ITEM.encode()] * 1001) + b"]}")


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Answer without end, as fast as it is read."""
    begin(handler)
    while True:
        handler.wfile.write(b" " * 65_536)


def slow(handler: BaseHTTPRequestHandler) -> None:
    """Answer without end, one byte after the other; not longer than half a minute."""
    begin(handler)
    for _ in range(60):
        handler.wfile.write(b" ")
        time.sleep(0.5)


def compressed(handler: BaseHTTPRequestHandler) -> None:
    """Answer with 1 MB that becomes 1 GB."""
    begin(handler, Content_Encoding="gzip")
    handler.wfile.write(_compressed())


def repeating(handler: BaseHTTPRequestHandler) -> None:
    """Refuse the request, and repeat its credentials."""
    begin(handler, 403)
    token = handler.headers["Authorization"]
    text = f"not {token} nor {urllib.parse.quote(token)}\x1b[31m {'x' * 5000} {token}"
    handler.wfile.write(json.dumps({"kind": "Status", "message": text}).encode())


class Relay:
    """Listens on 127.0.0.1 with a certificate of its own while its context lasts."""

    def __init__(self, folder: Path, target: str, target_ca: Path) -> None:
        self.ca = folder / "relay.crt"
        self.seen: list[tuple[str, str]] = []
        """Path and Authorization header of each request."""
        self.attack: Attack | None = None
        """Answers requests for values in place of the target."""
        self._target = urllib.parse.urlsplit(target).netloc
        self._context = ssl.create_default_context(cafile=str(target_ca))
        issued = issue_temporary([], now=dt.datetime.now(dt.UTC))
        self.ca.write_bytes(issued.ca_pem)
        chain, key = folder / "relay-chain.crt", folder / "relay.key"
        chain.write_bytes(issued.chain_pem)
        key.write_bytes(issued.key_pem)
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                relay._answer(self)

            def log_message(self, *_args: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve while the context lasts."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        authorization = handler.headers.get("Authorization", "")
        self.seen.append((handler.path, authorization))
        with contextlib.suppress(OSError):
            if self.attack and "/namespaces/" in handler.path:
                self.attack(handler)
                return
            connection = http.client.HTTPSConnection(
                self._target, context=self._context, timeout=30
            )
            with contextlib.closing(connection):
                try:
                    connection.request(
                        "GET", handler.path, headers={"Authorization": authorization}
                    )
                    reply = connection.getresponse()
                except OSError:
                    return  # as if this server had stopped
                begin(handler, reply.status)
                handler.wfile.write(reply.read())
