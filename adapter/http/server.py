"""HTTP server: listeners and connections with Go's limits on the request head.

A request head may have 1 MiB and 32 s, where aiohttp's own limits are smaller or missing. Requests
that are not HTTP are answered with a bare 400. Routing is in `api.router`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import ssl
from typing import Any

from aiohttp import http_exceptions, web

from adapter.http import responses

log = logging.getLogger(__name__)

KEEPALIVE = 95.0
"""Seconds; longer than the 90 s for which Go's clients keep an idle connection."""
HEAD_BYTES = 1 << 20
HEAD_SECONDS = 32.0
"""For a TLS handshake, and then for each head."""
GOODBYE_SECONDS = 5.0
"""How long a client may take to receive the end of what it was sent, and to hang up."""
_MOST_HEADERS = 10_000
_TOO_LARGE = "431 Request Header Fields Too Large"

_TURNS_TO_CONNECT = 3
"""Turns of the event loop from a socket's acceptance to its being the server's."""


class _Written(web.StreamResponse):
    """Stands for an answer that was written already, without aiohttp's headers."""

    async def prepare(self, request: web.BaseRequest) -> None:  # noqa: ARG002 - aiohttp's signature
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - as above
        return None


class Connection(web.RequestHandler):
    """One connection, which has to say in time, and in bounds, what it wants."""

    __slots__ = ("_goodbye_seconds", "_head_bytes", "_head_seconds", "_head_timer", "_lost")

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        head_seconds: float,
        goodbye_seconds: float,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=KEEPALIVE,
            access_log=None,  # type: ignore[arg-type]  # None: there is none
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MOST_HEADERS,
        )
        self._head_bytes = 0
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._goodbye_seconds = goodbye_seconds
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_done()
        self._lost.set()
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Answer what is asked already, and see the answer off before the process may end."""
        # Again: one that was made just before it was first told so began to wait only afterwards,
        # for a request that would not be heard.
        self.close()
        # What is found already is only to be received.
        sending = self._request_in_progress and self._current_request is None
        patience = 0.0 if sending else timeout
        limit = None if patience is None else patience + self._goodbye_seconds
        try:
            async with asyncio.timeout(limit):
                await super().shutdown(timeout)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._goodbye_seconds):
                await self._lost.wait()

    def data_received(self, data: bytes) -> None:
        requests = self._request_count
        super().data_received(data)
        under_way = self._waiter is None and requests > 0
        if self._request_count != requests or under_way:
            # A head is complete, or what arrives is the body of a request under way. Before the
            # first head nobody may be waiting yet: over TLS it begins with the handshake's end.
            self._head_done()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(_TOO_LARGE, "its head is longer than 1 MiB")
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - echoes what was received
    ) -> web.StreamResponse:
        """Answer what cannot be parsed; every handler answers for its own errors."""
        if isinstance(exc, http_exceptions.LineTooLong):
            self._refuse(_TOO_LARGE, "its head is longer than 1 MiB")
        elif status == http.HTTPStatus.BAD_REQUEST:
            self._refuse("400 Bad Request", type(exc).__name__)
        else:
            log.error("a request could not be answered", exc_info=exc)
            self._refuse("500 Internal Server Error", "see above")
        return _Written()

    def _head_done(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: str, why: str) -> None:
        peer = self.peername[0] if self.peername else "a client"
        log.warning("said %s to %s, whose request cannot be read: %s", status, peer, why)
        if self.transport is not None:
            head = f"HTTP/1.1 {status}\r\nContent-Type: {responses.PLAIN}\r\nConnection: close"
            self.transport.write(f"{head}\r\n\r\n{status}".encode())
        self.force_close()


class Site(web.BaseSite):
    """A listener whose connections are `Connection`s."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        head_seconds: float = HEAD_SECONDS,
        goodbye_seconds: float = GOODBYE_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context)
        self._host = host
        self._port = port
        self._head_seconds = head_seconds
        self._goodbye_seconds = goodbye_seconds
        self._options = options

    @property
    def name(self) -> str:
        scheme = "https" if self._ssl_context else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port that is listened on, which is another than asked for if that was 0."""
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else self._port

    async def start(self) -> None:
        """Listen. Raises OSError where that cannot be had."""
        await super().start()
        loop = asyncio.get_running_loop()
        secured = self._ssl_context is not None
        server = self._runner.server
        assert server is not None
        self._server = await loop.create_server(
            lambda: Connection(
                server,
                loop=loop,
                head_seconds=self._head_seconds,
                goodbye_seconds=self._goodbye_seconds,
            ),
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=self._head_seconds if secured else None,
            ssl_shutdown_timeout=self._goodbye_seconds if secured else None,
            backlog=self._backlog,
            **self._options,
        )

    async def stop(self) -> None:
        """Listen no more.

        Whoever was let in becomes a connection first: asyncio drops one that it accepted just
        before its server was closed, without closing the socket; that client would wait in vain.
        """
        loop = asyncio.get_running_loop()
        for listener in getattr(self._server, "sockets", ()):
            loop.remove_reader(listener.fileno())
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)
        await super().stop()


def runner(
    answer: responses.WebHandler, *, shutdown_timeout: float = responses.DEFAULT_TIMEOUT
) -> web.ServerRunner:
    """A runner that has `answer` answer every request, and stops that where a client has gone.

    There is no router, which would have answers of its own to methods, targets and expectations.
    """
    server = web.Server(answer, handler_cancellation=True)
    return web.ServerRunner(server, shutdown_timeout=shutdown_timeout)
