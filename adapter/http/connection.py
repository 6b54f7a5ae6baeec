"""HTTP/1.1 connections: parse request heads, call the handler, write responses; with time limits.

A request head may have 1 MiB and take 32 s, as in Go's server. Input that is not HTTP gets a bare
400. Request bodies are discarded: no route has one. The listener is in `server`.

aiohttp's own connection class starts a task for each request, and writes head and body apart; this
one takes half its CPU time. The parser is aiohttp's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import http_exceptions
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter.http.request import Request

log = logging.getLogger(__name__)

KEEPALIVE = 95.0
"""Seconds; longer than the 90 s for which Go's clients keep an idle connection."""
DEFAULT_TIMEOUT = 60.0
"""Seconds that a request may take; `?timeout=` can only shorten it."""
HEAD_BYTES = 1 << 20
HEAD_SECONDS = 32.0
"""Time limit of a TLS handshake, and of each request head."""
CLOSE_SECONDS = 5.0
"""Time limit for the client to receive the rest of a response and close the connection."""
WRITE_SECONDS = 30.0
"""A client that has received nothing of its response for so long is disconnected."""
_TICK = 10.0
"""Maximum seconds until the timer of a connection runs. It runs while nothing has expired, so that
a request does not have to start a timer: each would take 2 µs."""
_PIECE = 256 << 10
"""Bytes that are written at once. What is written is buffered without limit if the client does not
read; after a piece, the next waits until the client has received most of it."""
_MAX_HEADERS = 10_000
_TOO_LARGE = "431 Request Header Fields Too Large"

Serve = Callable[[Request], Awaitable[bytes]]
"""Returns the response, head and body. Raises nothing but CancelledError."""


class Connection(asyncio.Protocol):
    """One client. `closed` is called once when the connection has ended.

    At any time one limit applies, `_deadline` with `_on_deadline`: that of the request head, of the
    handler, of the response that the client does not read, or of the pause between two requests.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        closed: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._head_seconds = head_seconds
        self._close_seconds = close_seconds
        self._write_seconds = write_seconds
        self._closed = closed
        self.transport: asyncio.Transport | None = None
        """None after the end of the connection."""
        self._parser: Any = HttpRequestParser(
            self,  # type: ignore[arg-type]  # all that it uses are the two methods below
            self._loop,
            _PIECE,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        self._message: RawRequestMessage | None = None
        """The next request, until the task takes it."""
        self._has_more = False
        """Whether the parser may have kept the beginning of the next head."""
        self._early = b""
        """What the client sent after a request before it got the response."""
        self._malformed: Exception | None = None
        """Error of the parser in the body of the request in progress."""
        self._payload: StreamReader = EMPTY_PAYLOAD
        self._head_bytes = 0
        self._request: Request | None = None
        """The request whose handler runs."""
        self._is_sending = False
        """Whether a response is being sent."""
        self.has_requests = False
        """Whether a request has been received."""
        self._task: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        """What the task waits for between two requests."""
        self._writable: asyncio.Future[None] | None = None
        """Set while the client does not read."""
        self._unsent = 0
        self._last = False
        """Whether the response in progress, or the last one, ends the connection."""
        self._deadline = self._loop.time() + head_seconds
        self._on_deadline: Callable[[], None] = self.close
        self._timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()

    @property
    def is_closing(self) -> bool:
        """Whether most of the last response is sent, and the client has not closed yet."""
        closing = self.transport is not None and self.transport.is_closing()
        return closing and self._writable is None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        busy = self._message is not None or self._request is not None or self._is_sending
        return not busy or self.is_closing

    def address(self) -> str:
        """Return the address of the client, for the log."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(name[0]) if name else "an unknown address"

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the first request head."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._limit(self._head_seconds, self.close)

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel the request in progress."""
        self.transport = None
        self._lost.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Parse `data`; if a request is complete, let the task answer it."""
        if self.transport is None or self._malformed is not None:
            return
        in_body = not self._payload.is_eof()
        if not in_body:
            if self._last:
                return
            if not self.is_idle:
                # One request at a time. The others wait in the socket.
                self._early += data
                self.transport.pause_reading()
                return
        try:
            messages, upgraded, _ = self._parser.feed_data(data)
        except http_exceptions.HttpProcessingError as error:
            self._malformed = error
            if self.is_idle:
                self._reject(error)
            return
        if messages:
            ((self._message, self._payload),) = messages
            if upgraded:
                self._last = True
            # Nothing follows if the end of the head is the end of the data.
            self._has_more = data.find(b"\r\n\r\n") != len(data) - 4
            self._head_bytes = 0
            self.has_requests = True
            self._wake_task()
        elif not in_body and data:
            self._count_head(len(data))
        if self._payload is not EMPTY_PAYLOAD:
            self._payload.read_nowait()
            if in_body and self._payload.is_eof() and self._last and self.is_idle:
                self.close()

    def _count_head(self, size: int) -> None:
        if not self._head_bytes:
            self._limit(self._head_seconds, self.close)
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._reject(http_exceptions.LineTooLong(b"", HEAD_BYTES))

    def eof_received(self) -> bool:
        """Close the connection."""
        return False

    def pause_writing(self) -> None:
        """Start the time limit of a response that the client does not read."""
        self._writable = self._loop.create_future()
        self._limit_writing()

    def resume_writing(self) -> None:
        """Let the task write the next piece: most of the last one is sent."""
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # Called by the parser, for bodies that are not read fast enough

    def pause_reading(self) -> None:
        """Do nothing: bodies are discarded as they arrive."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Do nothing."""

    # Requests

    def _wake_task(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        elif self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _run(self) -> None:
        """Answer requests until the connection ends."""
        while True:
            if self._message is None:
                self._wakeup = self._loop.create_future()
                await self._wakeup
            assert self._message is not None
            request, self._message = Request(self._message, self), None
            await self._answer(request)
            if self.transport is None:
                return
            if self._malformed is None and not self._payload.is_eof():
                # To close now could discard the response at the client, which still sends.
                self._limit(self._close_seconds, self.close)
                return
            if self._last or self._malformed is not None:
                self.close()
                return
            self._next(self.transport)

    async def _answer(self, request: Request) -> None:
        self._request = request
        self._last = self._last or request.is_last
        request.set_timeout(DEFAULT_TIMEOUT)
        try:
            response = await self._serve(request)
        except Exception:
            log.exception("the handler of a request raised an exception")
            response = _bare("500 Internal Server Error")
            self._last = True
        else:
            self._last = self._last or request.is_last or not self._payload.is_eof()
            if self._last:
                response = response.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        self._request = None
        self._is_sending = True
        await self._write(response)
        self._is_sending = False

    async def _write(self, response: bytes) -> None:
        for start in range(0, len(response), _PIECE):
            if self.transport is None:
                return
            piece = response if len(response) <= _PIECE else response[start : start + _PIECE]
            self.transport.write(piece)
            if self._writable is not None:
                self._limit_writing()
                await self._writable

    def _next(self, transport: asyncio.Transport) -> None:
        """Wait for the next request, which the client may have sent already."""
        self._parser.message_consumed()
        self._limit(KEEPALIVE, self.close)
        early, self._early = self._early, b""
        if early or self._has_more:
            self.data_received(early)
        if not transport.is_reading() and self.is_idle:
            transport.resume_reading()

    def _reject(self, error: Exception) -> None:
        """Send a bare 4xx for a request that cannot be parsed, and close."""
        if isinstance(error, http_exceptions.LineTooLong):
            status, reason = _TOO_LARGE, "the request head is longer than 1 MiB"
        else:
            status, reason = "400 Bad Request", type(error).__name__
        log.warning("rejected request from %s: %s (%s)", self.address(), status, reason)
        if self.transport is not None:
            self.transport.write(_bare(status))
        self.close()

    # Limits and the end

    def set_timeout(self, seconds: float) -> None:
        """Cancel the request in progress, and mark it as timed out, in `seconds`."""
        self._limit(seconds, self._time_out)

    def _time_out(self) -> None:
        if self._request is not None and self._task is not None:
            self._request.timed_out = True
            self._task.cancel()

    def _limit(self, seconds: float, on_deadline: Callable[[], None]) -> None:
        self._deadline = self._loop.time() + seconds
        self._on_deadline = on_deadline
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return
            self._timer.cancel()
        self._start_timer()

    def _start_timer(self) -> None:
        when = min(self._deadline, self._loop.time() + _TICK)
        self._timer = self._loop.call_at(when, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._start_timer()
        else:
            self._on_deadline()

    def _limit_writing(self) -> None:
        if self.transport is not None:
            self._unsent = self.transport.get_write_buffer_size()
            self._limit(self._write_seconds, self._check_progress)

    def _check_progress(self) -> None:
        """Abort the connection unless the client has received a part of the response."""
        if self.transport is None or self._writable is None:
            return
        if self.transport.get_write_buffer_size() < self._unsent:
            self._limit_writing()
            return
        log.warning("closed connection of %s: it does not read its response", self.address())
        self.transport.abort()

    def close(self) -> None:
        """Close the connection once what is written has been sent."""
        self._last = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection without waiting until the client closes its side of TLS."""
        if self.transport is not None:
            self.transport.abort()

    async def shutdown(self, timeout: float) -> None:
        """Answer the request in progress, send the whole response and wait for the close.

        `timeout` is the time limit of the handler, in seconds.
        """
        if self.is_idle:
            self.close()
        if self.is_idle or self._is_sending:
            timeout = 0.0
        self._last = True
        try:
            async with asyncio.timeout(timeout + self._close_seconds):
                await self._lost.wait()
        except TimeoutError:
            self.abort()


def _bare(status: str) -> bytes:
    """Return a response that ends the connection."""
    fields = "Content-Type: text/plain; charset=utf-8\r\nConnection: close"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n{status}".encode()
