"""HTTP/1.1 connections: parse request heads, call the handler, write responses; with time limits.

A request head may have 1 MiB and take 32 s, as in Go's server. Input that is not HTTP gets a bare
400. No route has a request body, so a request with a body is the last one of its connection. The
listener is in `server`.

aiohttp's own connection class starts a task for each request, and writes head and body apart; this
one takes 0.7 to 0.8 times its CPU time for a constant response. The parser is aiohttp's. A head
gets a new one, because a parser keeps its last message; it gets the head alone, so nothing else of
its state matters. `tests/adapter/server/http/test_contract.py` has what this relies on.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import http_exceptions
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

from adapter.background import Pace
from adapter.server.http.limits import Deadline, MemoryBudget
from adapter.server.http.request import Request

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
RECEIVED = 32 << 10
"""Bytes that wait, decrypted or not, behind a request."""
_PIECE = 32 << 10
"""Bytes that are written at once. OpenSSL keeps a buffer for the largest piece until the connection
ends. What is written is buffered without limit if the client does not read; so the next piece waits
until it has."""
_UNSENT = 64 << 10
"""Bytes of a response that may be unsent while the connection counts as idle."""
_END = b"\r\n\r\n"
"""The end of each head: the parser rejects lines that end otherwise."""
_MAX_HEADERS = 10_000
_HEADER_SIZE = 400
"""Bytes that a parsed header takes beside its characters."""
_LARGE = 64 << 10
"""Bytes of a head, with those of its headers, that waits for its turn, and is counted until its
request is answered. To parse 10 000 headers takes 8 ms."""
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
    """What the parser tells to pause while a body is not read. It gets no body, only heads."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self, *, resume_parser: bool = True) -> None:
        pass


class Connection(asyncio.Protocol):
    """One client. `closed` is called once when the connection has ended.

    One request is handled at a time, by one task per connection; what follows waits in the socket.
    At any time one deadline applies: that of the head, of the handler, of a response that the
    client does not read, or of the pause between two requests. `heads` has the sizes of the heads,
    of all connections, that are not complete, or that are large and not answered. `turn` is theirs,
    too: it lets one large head be parsed at a time. `pace` is that of all requests.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        heads: MemoryBudget[Connection],
        turn: asyncio.Lock,
        pace: Pace,
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        closed: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        self._serve = serve
        self._heads = heads
        self._turn = turn
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._head_seconds = head_seconds
        self._close_seconds = close_seconds
        self._write_seconds = write_seconds
        self._closed = closed
        self.transport: asyncio.Transport | None = None
        """None after the end of the connection."""
        self._deadline = Deadline(self._loop)
        self._phase = _Phase.READING
        self._input = bytearray()
        """What is received and not parsed: the beginning of a head, or what came behind one."""
        self._head: bytes | None = None
        """The next request, until the task takes it."""
        self._has_body = False
        self._last = False
        """Whether the connection ends after the present request; all other input is dropped."""
        self._request: Request | None = None
        """The request whose handler runs."""
        self.has_certificate = False
        """Whether the client has shown a certificate of a trusted CA."""
        self.idle_since = self._loop.time()
        """When the last response was written, in the event loop's time."""
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
        self.has_certificate = bool(transport.get_extra_info("peercert"))
        if transport.get_extra_info("sslcontext") is not None:
            cast(Any, transport).set_read_buffer_limits(high=RECEIVED, low=RECEIVED)
        self._deadline.set(self._head_seconds, self.close)

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel the request in progress."""
        self.transport = None
        self._lost.set()
        self._deadline.cancel()
        self._heads.release(self)
        self._input.clear()
        if self._task is not None:
            self._task.cancel()
        self._task = self._wakeup = None  # cancelled, they refer to frames that refer to this
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, or keep it until the request in progress is answered."""
        if self.transport is None or self._last:
            return
        self._input += data
        if self._phase is _Phase.READING:
            self._read(len(data))
        else:
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

    def _read(self, new: int) -> None:
        """Parse the next head if it is complete, and let the task answer it.

        The last `new` bytes of the input have not been searched for the end of the head.
        """
        if self._input.startswith((b"\r", b"\n")):
            self._input = self._input.lstrip(b"\r\n")  # as the parser does
        end = self._input.find(_END, max(0, len(self._input) - new - len(_END)))
        size = len(self._input) if end < 0 else end + len(_END)
        if size > HEAD_BYTES:
            self._reject(http_exceptions.LineTooLong(b"", HEAD_BYTES))
        elif end < 0:
            self._count_partial(size)
        else:
            self._head = bytes(self._input[:size])
            del self._input[:size]
            size += _HEADER_SIZE * self._head.count(b"\n")
            self._heads.set(self, size if size > _LARGE else 0)
            self._phase = _Phase.HANDLING
            if self._task is None:
                self._task = self._loop.create_task(self._run())
            elif self._wakeup is not None and not self._wakeup.done():
                self._wakeup.set_result(None)

    def _count_partial(self, size: int) -> None:
        """Start the time limit of a head with its first bytes, and count them."""
        if size and not self._heads.size(self):
            self._deadline.set(self._head_seconds, self.close)
        self._heads.set(self, size)

    async def _parse(self, head: bytes) -> RawRequestMessage | None:
        """Parse a head; a large one when it is its turn. Return None if it is rejected."""
        if not self._heads.size(self):
            return self._parse_now(head)
        async with self._turn:
            message = self._parse_now(head)
            await asyncio.sleep(0)  # other connections come before its handler and the next head
            return message

    def _parse_now(self, head: bytes) -> RawRequestMessage | None:
        parser = HttpRequestParser(
            _BodyBuffer(),  # type: ignore[arg-type]  # all that it uses
            self._loop,
            _PIECE,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
        )
        try:
            messages, _, _ = parser.feed_data(head)
        except http_exceptions.HttpProcessingError as error:
            self._reject(error)
            return None
        if len(messages) != 1 or messages[0][0].version not in _VERSIONS:
            self._reject(http_exceptions.BadStatusLine("version"))
            return None
        ((message, body),) = messages
        self._has_body = body is not EMPTY_PAYLOAD
        self._last = (
            self._last
            or self._has_body
            or message.should_close
            or message.upgrade
            or message.method == "CONNECT"
            or message.version != _VERSIONS[-1]
        )
        if self._last:
            self._input.clear()
        return message

    def _reject(self, error: Exception) -> None:
        """Send a bare 4xx for a request that cannot be parsed, and close."""
        if isinstance(error, http_exceptions.LineTooLong):
            status, reason = _TOO_LARGE, "the request head is longer than 1 MiB"
        else:
            status, reason = "400 Bad Request", type(error).__name__
        log.warning("rejected request from %s: %s (%s)", self.address(), status, reason)
        self._heads.release(self)
        if self.transport is not None:
            self.transport.write(_bare(status))
        self.close()

    # Requests

    async def _run(self) -> None:
        """Answer requests until the connection ends."""
        try:
            while True:
                if self._head is None:
                    self._wakeup = self._loop.create_future()
                    await self._wakeup
                await self._pace.next()
                assert self._head is not None
                head, self._head = self._head, None
                message = await self._parse(head)
                del head
                if message is None:
                    return
                response = await self._answer(Request(message, self))
                del message
                self._heads.release(self)
                await self._write(response)
                del response
                if self._last or self.transport is None or self.transport.is_closing():
                    return
                if self._read_next(self.transport):
                    await asyncio.sleep(0)  # other connections come before the next request
        finally:
            self._finish()

    async def _answer(self, request: Request) -> bytes:
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
        return response

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
        self.idle_since = self._loop.time()
        self._deadline.set(KEEPALIVE, self.close)
        if self._input:
            self._read(len(self._input))
        has_next = self._head is not None
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
        if not self._has_body:
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
        self._input.clear()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()  # only once: later, asyncio's abort() does nothing

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
