"""HTTP connections that limit the request head as Go's server does, and unread responses.

A request head may have 1 MiB and take 32 s. aiohttp's own size limits are smaller, and it has no
time limits. Input that is not HTTP is answered with a bare 400. The listener is in `server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
from collections.abc import Callable

from aiohttp import http_exceptions, streams, web

from adapter.http import responses

log = logging.getLogger(__name__)

KEEPALIVE = 95.0
"""Seconds; longer than the 90 s for which Go's clients keep an idle connection."""
HEAD_BYTES = 1 << 20
HEAD_SECONDS = 32.0
"""Time limit of a TLS handshake, and of each request head."""
CLOSE_SECONDS = 5.0
"""Time limit for the client to receive the rest of a response and close the connection."""
WRITE_SECONDS = 30.0
"""A client that has received nothing of its response for so long is disconnected."""
_MAX_HEADERS = 10_000
_TOO_LARGE = "431 Request Header Fields Too Large"


class _Sent(web.StreamResponse):
    """Placeholder for a response that is already written to the transport."""

    async def prepare(self, request: web.BaseRequest) -> None:  # noqa: ARG002 - aiohttp's signature
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        return None


class Connection(web.RequestHandler):
    """Connection with limits on request heads, and on the time in which a response is read.

    `closed` is called once when the connection has ended.
    """

    __slots__ = (
        "_close_seconds",
        "_closed",
        "_head_bytes",
        "_head_seconds",
        "_head_timer",
        "_lost",
        "_opened",
        "_payload",
        "_unsent",
        "_write_seconds",
        "_write_timer",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        head_seconds: float,
        close_seconds: float,
        write_seconds: float = WRITE_SECONDS,
        closed: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=KEEPALIVE,
            access_log=None,  # type: ignore[arg-type]  # None disables it
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,  # no handler reads a body
        )
        self._head_bytes = 0
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._close_seconds = close_seconds
        self._lost = asyncio.Event()
        self._opened: asyncio.Transport | None = None
        """The transport; `transport` is None as soon as the connection is being closed."""
        self._write_seconds = write_seconds
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._payload: streams.StreamReader = streams.EMPTY_PAYLOAD
        self._closed = closed

    @property
    def has_requests(self) -> bool:
        """Whether a request has been received."""
        return self._request_count > 0

    @property
    def is_closing(self) -> bool:
        """Whether most of the last response is sent, and the client has not closed yet."""
        closing = self._opened is not None and self._opened.is_closing()
        return closing and self._write_timer is None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        is_waiting = self._waiter is not None and not self._waiter.done()
        return not self.has_requests or is_waiting or self.is_closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first request head."""
        super().connection_made(transport)
        self._opened = self.transport
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer and let `shutdown` return."""
        self._head_done()
        self._stop_write_timer()
        self._lost.set()
        self._opened = None
        super().connection_lost(exc)
        self._closed(self)

    def pause_writing(self) -> None:
        """Start the timer of a response that the client does not read."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """Stop the timer: most of the response is sent."""
        super().resume_writing()
        self._stop_write_timer()

    def abort(self) -> None:
        """Close the connection without waiting until the client closes its side of TLS."""
        if self._opened is not None:
            if not self._opened.is_closing():  # after a second close, abort would do nothing
                self.force_close()
            self._opened.abort()

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
        """Parse `data`, and enforce the limits while it belongs to request heads.

        The heads that a client sends during a request count together as one.
        """
        is_body = not self._payload.is_eof()
        requests = self._request_count
        super().data_received(data)
        if self._messages:
            self._payload = self._messages[-1][1]
        # Before the first request `_waiter` may be None too: with TLS, data can come with the end
        # of the handshake.
        in_progress = self._waiter is None and requests > 0
        if is_body or (self._request_count != requests and not in_progress):
            if not in_progress:
                self._head_done()
            return
        self._head_bytes += len(data)
        if self._head_bytes <= HEAD_BYTES:
            if self._head_timer is None and not in_progress:
                self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)
        elif not in_progress:
            self._reject(_TOO_LARGE, "the request head is longer than 1 MiB")
        elif self.transport is not None:
            # A client would read an error as a part of the response in progress.
            log.warning("closed connection of %s: heads of more than 1 MiB wait", self._peer())
            self.transport.abort()

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

    def _peer(self) -> str:
        return self.peername[0] if self.peername else "an unknown address"

    def _start_write_timer(self) -> None:
        self._stop_write_timer()
        if self.transport is not None:
            self._unsent = self.transport.get_write_buffer_size()
            self._write_timer = self._loop.call_later(self._write_seconds, self._check_progress)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_progress(self) -> None:
        """Abort the connection unless the client has received a part of the response."""
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._unsent:
            self._start_write_timer()
            return
        log.warning("closed connection of %s: it does not read its response", self._peer())
        self.transport.abort()

    def _head_done(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reject(self, status: str, reason: str) -> None:
        log.warning("rejected request from %s: %s (%s)", self._peer(), status, reason)
        if self.transport is not None:
            head = f"HTTP/1.1 {status}\r\nContent-Type: {responses.PLAIN}\r\nConnection: close"
            self.transport.write(f"{head}\r\n\r\n{status}".encode())
        self.force_close()
