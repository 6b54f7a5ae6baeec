"""HTTP server: listeners, and connections that limit the request head as Go's server does.

A request head may have 1 MiB and take 32 s. aiohttp's own size limits are smaller, and it has no
time limit. Input that is not HTTP is answered with a bare 400. Routing is in `api.router`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import ssl

from aiohttp import http_exceptions, web

from adapter.http import responses

log = logging.getLogger(__name__)

KEEPALIVE = 95.0
"""Seconds; longer than the 90 s for which Go's clients keep an idle connection."""
HEAD_BYTES = 1 << 20
HEAD_SECONDS = 32.0
"""Time limit of a TLS handshake, and of each request head."""
CLOSE_SECONDS = 5.0
"""Time limit for the client to receive the rest of a response and close the connection."""
_MAX_HEADERS = 10_000
_TOO_LARGE = "431 Request Header Fields Too Large"

_ACCEPT_ITERATIONS = 3
"""Iterations of the event loop from accepting a socket to registering its connection."""


class _Sent(web.StreamResponse):
    """Placeholder for a response that is already written to the transport."""

    async def prepare(self, request: web.BaseRequest) -> None:  # noqa: ARG002 - aiohttp's signature
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        return None


class Connection(web.RequestHandler):
    """Connection with limits on the size and the duration of a request head."""

    __slots__ = ("_close_seconds", "_head_bytes", "_head_seconds", "_head_timer", "_lost")

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        head_seconds: float,
        close_seconds: float,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=KEEPALIVE,
            access_log=None,  # type: ignore[arg-type]  # None disables it
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
        )
        self._head_bytes = 0
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._close_seconds = close_seconds
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first request head."""
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer and let `shutdown` return."""
        self._head_done()
        self._lost.set()
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Answer the request in progress, send the whole response and wait for the close."""
        # aiohttp has already closed the connections that waited for a request. One that was
        # accepted just before did not wait yet, so it needs another close.
        self.close()
        # The handler has returned if its response is being sent: only `close_seconds` apply.
        sending = self._request_in_progress and self._current_request is None
        handler_timeout = 0.0 if sending else timeout
        limit = None if handler_timeout is None else handler_timeout + self._close_seconds
        try:
            async with asyncio.timeout(limit):
                await super().shutdown(timeout)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._close_seconds):
                await self._lost.wait()

    def data_received(self, data: bytes) -> None:
        """Parse `data`, and enforce the limits while it belongs to a request head."""
        requests = self._request_count
        super().data_received(data)
        in_progress = self._waiter is None and requests > 0
        if self._request_count != requests or in_progress:
            # A head is complete, or the data is the body of the request in progress. Before the
            # first request `_waiter` may be None too: with TLS, data can come with the end of
            # the handshake.
            self._head_done()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._reject(_TOO_LARGE, "the request head is longer than 1 MiB")
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - repeats what was received
    ) -> web.StreamResponse:
        """Send a bare 4xx for a request that cannot be parsed, or a 500 if the handler raised."""
        if isinstance(exc, http_exceptions.LineTooLong):
            self._reject(_TOO_LARGE, "the request head is longer than 1 MiB")
        elif status == http.HTTPStatus.BAD_REQUEST:
            self._reject("400 Bad Request", type(exc).__name__)
        else:
            log.error("the handler of a request raised an exception", exc_info=exc)
            self._reject("500 Internal Server Error", "see the exception above")
        return _Sent()

    def _head_done(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reject(self, status: str, reason: str) -> None:
        peer = self.peername[0] if self.peername else "an unknown address"
        log.warning("rejected request from %s: %s (%s)", peer, status, reason)
        if self.transport is not None:
            head = f"HTTP/1.1 {status}\r\nContent-Type: {responses.PLAIN}\r\nConnection: close"
            self.transport.write(f"{head}\r\n\r\n{status}".encode())
        self.force_close()


class Site(web.BaseSite):
    """Listener that creates a `Connection` for each client."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context)
        self._host = host
        self._port = port
        self._reuse_port = reuse_port
        self._head_seconds = head_seconds
        self._close_seconds = close_seconds

    @property
    def name(self) -> str:
        """The URL of the listener."""
        scheme = "https" if self._ssl_context else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port; if 0 was requested, the one that was assigned."""
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else self._port

    async def start(self) -> None:
        """Listen. Raises OSError if the address is not available."""
        await super().start()
        loop = asyncio.get_running_loop()
        tls = self._ssl_context is not None
        server = self._runner.server
        assert server is not None
        self._server = await loop.create_server(
            lambda: Connection(
                server,
                loop=loop,
                head_seconds=self._head_seconds,
                close_seconds=self._close_seconds,
            ),
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=self._head_seconds if tls else None,
            ssl_shutdown_timeout=self._close_seconds if tls else None,
            backlog=self._backlog,
            reuse_port=self._reuse_port,
        )

    async def stop(self) -> None:
        """Stop listening.

        Register the accepted connections first. asyncio forgets a socket that it accepted just
        before its server closes, and leaves it open, so its client would hang.
        """
        loop = asyncio.get_running_loop()
        for listener in getattr(self._server, "sockets", ()):
            loop.remove_reader(listener.fileno())
        for _ in range(_ACCEPT_ITERATIONS):
            await asyncio.sleep(0)
        await super().stop()


def runner(
    handler: responses.WebHandler, *, shutdown_timeout: float = responses.DEFAULT_TIMEOUT
) -> web.ServerRunner:
    """Return a runner that passes every request to `handler`.

    `handler` is cancelled when its client disconnects. There is no aiohttp router, because it
    answers some methods and malformed targets itself.
    """
    server = web.Server(handler, handler_cancellation=True)
    return web.ServerRunner(server, shutdown_timeout=shutdown_timeout)
