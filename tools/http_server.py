"""HTTP servers on the loopback address, each on threads of this process."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, str, bytes]
"""Status, content type and body."""
METRICS = "text/plain; version=0.0.4"
"""Content type of metrics in the text format."""


@contextlib.contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler, bytes], Answer],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
    keep_alive: bool = False,
) -> Iterator[int]:
    """Serve until the context ends; yield the port, which is a free one for 0.

    `answer` takes a request and its body. With `context`, the server speaks TLS. Connections that
    are kept outlive the context.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content_type, body = answer(self, sent)
            with contextlib.suppress(OSError):  # the client may have gone
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - name of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    # A daemon thread: Ctrl-C may come before the `try` below that would stop it.
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
