"""HTTP/1.1 connections: parse request heads, call the handler, write responses; with time limits.

A request head may have 1 MiB and take 32 s, as in Go's server. Input that is not HTTP gets a bare
400. No route has a request body, so a request with a body is the last one of its connection. The
listener is in `server`.

aiohttp's own connection class starts a task for each request, and writes head and body apart; this
one takes half its CPU time. The parser is aiohttp's.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import http_exceptions
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter.http.limits import Budget, Deadline
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
_PIECE = 256 << 10
"""Bytes that are written at once. What is written is buffered without limit if the client does not
read; after a piece, the next waits until the client has received most of it."""
_UNSENT = 64 << 10
"""Bytes of a response that may be unsent while the connection counts as idle."""
_MAX_HEADERS = 10_000
_VERSIONS = ((1, 0), (1, 1))
_TOO_LARGE = "431 Request Header Fields Too Large"

Serve = Callable[[Request], Awaitable[bytes]]
"""Returns the response, head and body. Raises nothing but CancelledError."""


class _Phase(enum.Enum):
    READING = enum.auto()
    """Between two requests, or within a head."""
    HANDLING = enum.auto()
    SENDING = enum.auto()


class _BodyBuffer:
    """What the parser tells to pause while a body is not read. It never needs to: see `_read`."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self, *, resume_parser: bool = True) -> None:
        pass


class Connection(asyncio.Protocol):
    """One client. `closed` is called once when the connection has ended.

    One request is handled at a time, by one task per connection; what follows waits in the socket.
    At any time one deadline applies: that of the head, of the handler, of a response that the
    client does not read, or of the pause between two requests. `partial_heads` has the sizes of the
    heads that are not complete, of all connections.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        partial_heads: Budget[Connection],
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        closed: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        self._serve = serve
        self._partial_heads = partial_heads
        self._loop = asyncio.get_running_loop()
        self._head_seconds = head_seconds
        self._close_seconds = close_seconds
        self._write_seconds = write_seconds
        self._closed = closed
        self.transport: asyncio.Transport | None = None
        """None after the end of the connection."""
        self._deadline = Deadline(self._loop)
        self._parser: Any = HttpRequestParser(
            _BodyBuffer(),  # type: ignore[arg-type]  # all that it uses
            self._loop,
            _PIECE,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
            max_msg_queue_size=1,  # the parser keeps what follows a head
        )
        self._phase = _Phase.READING
        self._message: RawRequestMessage | None = None
        """The next request, until the task takes it."""
        self._body: StreamReader = EMPTY_PAYLOAD
        self._early = b""
        """What the client sent before it got its response."""
        self._within_head = False
        """Whether the last data may have ended within a head."""
        self._is_whole = False
        """Whether the last data was one head, so that the parser keeps nothing of it."""
        self._last = False
        """Whether the connection ends after the present request; all other input is dropped."""
        self._request: Request | None = None
        """The request whose handler runs."""
        self.has_requests = False
        """Whether a request has been received."""
        self._task: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        """What the task waits for between two requests."""
        self._writable: asyncio.Future[None] | None = None
        """Set while the client does not read."""
        self._unsent = 0
        self._lost = asyncio.Event()

    @property
    def is_closing(self) -> bool:
        """Whether only the client's own close, or a small rest of a response, is missing."""
        closing = self.transport is not None and self.transport.is_closing()
        return closing and self._writable is None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self._phase is _Phase.READING or self.is_closing

    def address(self) -> str:
        """Return the address of the client, for the log."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(name[0]) if name else "an unknown address"

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the first request head."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.transport.set_write_buffer_limits(high=_UNSENT)
        self._deadline.set(self._head_seconds, self.close)

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel the request in progress."""
        self.transport = None
        self._lost.set()
        self._deadline.cancel()
        self._partial_heads.release(self)
        if self._task is not None:
            self._task.cancel()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, or keep it until the request in progress is answered."""
        if self.transport is None or self._last:
            return
        if self._phase is _Phase.READING:
            self._read(data)
        else:
            self._early += data
            self.transport.pause_reading()

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

    # Input

    def _read(self, data: bytes) -> None:
        """Parse `data`, which may be empty; if a head is complete, let the task answer it."""
        try:
            messages, _, _ = self._parser.feed_data(data)
        except http_exceptions.HttpProcessingError as error:
            self._reject(error)
            return
        if data:
            self._is_whole = not self._within_head and data.find(b"\r\n\r\n") == len(data) - 4
            self._within_head = not data.endswith(b"\r\n\r\n")
        if not messages:
            self._count_head(len(data))
            return
        self._partial_heads.release(self)
        ((message, self._body),) = messages
        if message.version not in _VERSIONS:
            self._reject(http_exceptions.BadStatusLine("version"))
            return
        if self._body is not EMPTY_PAYLOAD:
            self._body.read_nowait()  # frees what came with the head
        self._last = (
            self._body is not EMPTY_PAYLOAD
            or message.should_close
            or message.upgrade
            or message.method == "CONNECT"
            or message.version != _VERSIONS[-1]
        )
        self._phase, self._message = _Phase.HANDLING, message
        self.has_requests = True
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        elif self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def _count_head(self, size: int) -> None:
        """Start the time limit of a head with its first bytes; reject one that is too large."""
        if not self._partial_heads.size(self) and self._within_head:
            self._deadline.set(self._head_seconds, self.close)
        if size:
            self._partial_heads.add(self, size)
            if self._partial_heads.size(self) > HEAD_BYTES:
                self._reject(http_exceptions.LineTooLong(b"", HEAD_BYTES))

    def _reject(self, error: Exception) -> None:
        """Send a bare 4xx for a request that cannot be parsed, and close."""
        if isinstance(error, http_exceptions.LineTooLong):
            status, reason = _TOO_LARGE, "the request head is longer than 1 MiB"
        else:
            status, reason = "400 Bad Request", type(error).__name__
        log.warning("rejected request from %s: %s (%s)", self.address(), status, reason)
        self._partial_heads.release(self)
        if self.transport is not None:
            self.transport.write(_bare(status))
        self.close()

    # Requests

    async def _run(self) -> None:
        """Answer requests until the connection ends."""
        try:
            while True:
                if self._message is None:
                    self._wakeup = self._loop.create_future()
                    await self._wakeup
                assert self._message is not None
                request, self._message = Request(self._message, self), None
                await self._answer(request)
                if self._last or self.transport is None or self.transport.is_closing():
                    return
                if self._read_next(self.transport):
                    await asyncio.sleep(0)  # other connections come before the next request
        finally:
            self._finish()

    async def _answer(self, request: Request) -> None:
        self._request = request
        request.set_timeout(DEFAULT_TIMEOUT)
        try:
            response = await self._serve(request)
        except Exception:
            log.exception("the handler of a request raised an exception")
            response = _bare("500 Internal Server Error")
            self._last = True
        else:
            self._last = self._last or request.is_last
            if self._last:
                response = response.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        self._request, self._phase = None, _Phase.SENDING
        await self._write(response)

    async def _write(self, response: bytes) -> None:
        for start in range(0, len(response), _PIECE):
            if self.transport is None or self.transport.is_closing():
                return
            piece = response if len(response) <= _PIECE else response[start : start + _PIECE]
            self.transport.write(piece)
            if self._writable is not None:
                self._limit_writing()
                await self._writable

    def _read_next(self, transport: asyncio.Transport) -> bool:
        """Wait for the next request; return whether the client has sent it already."""
        self._phase = _Phase.READING
        self._deadline.set(KEEPALIVE, self.close)
        self._parser.message_consumed()
        early, self._early = self._early, b""
        if early or not self._is_whole:
            self._read(early)
        has_next = self._message is not None
        if not has_next and not transport.is_reading():
            transport.resume_reading()
        return has_next

    def _finish(self) -> None:
        """Close the connection, but not while the client still sends a body.

        It might discard the response otherwise.
        """
        self._phase, self._last = _Phase.READING, True
        if self.transport is None:
            return
        if self._body.is_eof():
            self.close()
            return
        if not self.transport.is_reading():
            self.transport.resume_reading()
        self._deadline.set(self._close_seconds, self.close)

    # Limits and the end

    def set_timeout(self, seconds: float) -> float:
        """Cancel the request in progress, and mark it as timed out, in `seconds`.

        Returns when that is, in the event loop's time.
        """
        self._deadline.set(seconds, self._time_out)
        return self._deadline.when

    def _time_out(self) -> None:
        if self._request is not None and self._task is not None:
            self._request.timed_out = True
            self._task.cancel()
            self._deadline.set(self._close_seconds, self.abort)

    def _limit_writing(self) -> None:
        if self.transport is not None:
            self._unsent = self.transport.get_write_buffer_size()
            self._deadline.set(self._write_seconds, self._check_progress)

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
        if self._phase is not _Phase.HANDLING:
            timeout = 0.0
        if self.is_idle:
            self.close()
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
