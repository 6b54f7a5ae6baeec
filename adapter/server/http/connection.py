"""HTTP/1.1 connections: aiohttp's server, with limits on the time and bytes of each client.

A request head may have 1 MiB and take 32 s, as in Go's server. Input that is not HTTP gets a bare
400. No route has a request body, so a request with a body is the last one of its connection. The
listener is in `server`.

aiohttp's side is in `handler`. It gets one complete head at a time. What is received before and
behind it waits here, where it is counted.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web

from adapter.background import Pace
from adapter.server.http.handler import HEAD_BYTES, Handler, Response
from adapter.server.http.limits import Deadline, MemoryBudget
from adapter.server.http.request import Request

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 60.0
"""Seconds that a request may take; `?timeout=` can only shorten it."""
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
_BREAKS = b"\r\n"
"""Before a head, they are ignored."""
_END = b"\r\n\r\n"
"""The end of each head: the parser rejects lines that end otherwise."""
_HEADER_SIZE = 400
"""Bytes that a parsed header takes beside its characters."""
_LARGE = 64 << 10
"""Bytes of a head, with those of its headers, that waits for its turn, and is counted until its
request is answered. To parse 10 000 headers takes 8 ms. The parser keeps its last head, so a large
one is the last one of its connection."""

Serve = Callable[[Request], Awaitable[bytes]]
"""Returns the response, head and body. Raises nothing but CancelledError."""


class _Phase(enum.Enum):
    READING = enum.auto()
    """Between two requests, or within a head."""
    HANDLING = enum.auto()
    SENDING = enum.auto()


class Connection(asyncio.Protocol):
    """One client. `closed` is called once when the connection has ended.

    One request is handled at a time; what follows waits in the socket. At any time one deadline
    applies: that of the head, of the handler, or of a response that the client does not read.
    aiohttp limits the pause between two requests. `heads` has the sizes of the heads, of all
    connections, that are not complete, or that are large and not answered. `turn` is theirs, too:
    it lets one large head be parsed at a time. `unread` has the sizes of responses that wait until
    their client reads. `pace` is that of all requests.
    """

    def __init__(
        self,
        server: web.Server,
        serve: Serve,
        *,
        heads: MemoryBudget[Connection],
        unread: MemoryBudget[Connection],
        turn: asyncio.Lock,
        pace: Pace,
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        closed: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = Handler(self, server, close_seconds)
        self._serve = serve
        self._heads = heads
        self._unread = unread
        self._turn = turn
        self._pace = pace
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
        self._head = b""
        """The present head."""
        self._last = False
        """Whether the connection ends after the present request; all other input is dropped."""
        self._request: Request | None = None
        """The request whose handler runs."""
        self._handler: asyncio.Task[Any] | None = None
        self._parsing: asyncio.Task[None] | None = None
        self.identity: object = None
        self.has_certificate = False
        """Whether the client has shown a certificate of a trusted CA."""
        self.idle_since = self._loop.time()
        """When the last response was written, in the event loop's time."""
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

    @property
    def is_sending(self) -> bool:
        """Whether a response waits until the client reads."""
        return self._phase is _Phase.SENDING

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
        self._http.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the request in progress."""
        self.transport = None
        self._lost.set()
        self._deadline.cancel()
        self._heads.release(self)
        self._input.clear()
        self._http.connection_lost(exc)
        self._http.client = None  # so that both are freed at once
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Let aiohttp parse the next head, or keep it until the request in progress is answered."""
        if self._last or self.transport is None:
            return
        if self._phase is not _Phase.READING:
            self._input += data
            self.transport.pause_reading()
        elif not self._input and 0 <= data.find(_END) == len(data) - 4 and data[0] not in _BREAKS:
            self._parse(data)  # one head, as nearly always
        else:
            self._input += data
            self._read(len(data))

    def pause_writing(self) -> None:
        """Start the time limit of a response that the client does not read."""
        self._writable = self._loop.create_future()
        self._limit_writing()

    def resume_writing(self) -> None:
        """Let the handler write the next piece: most of the last one is sent."""
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # Input

    def _read(self, new: int) -> None:
        """Let aiohttp parse the next head if it is complete.

        The last `new` bytes of the input have not been searched for the end of the head.
        """
        if self._input[0] in _BREAKS:
            self._input = self._input.lstrip(_BREAKS)  # as the parser does
        end = self._input.find(_END, max(0, len(self._input) - new - len(_END)))
        size = len(self._input) if end < 0 else end + len(_END)
        if size > HEAD_BYTES:
            self._reject("431 Request Header Fields Too Large", "it is longer than 1 MiB")
        elif end < 0:
            self._count_partial(size)
        else:
            head = bytes(self._input[:size])
            del self._input[:size]
            self._parse(head)

    def _parse(self, head: bytes) -> None:
        """Let aiohttp parse a head; a large one when it is its turn."""
        self._phase = _Phase.HANDLING
        self._deadline.set(DEFAULT_TIMEOUT, self._time_out)
        size = len(head) + _HEADER_SIZE * head.count(b"\n")
        if size <= _LARGE:
            self._heads.release(self)
            self._parse_now(head)
        else:
            self._last = True
            self._heads.set(self, size)
            self._parsing = self._loop.create_task(self._parse_large(head))

    def _count_partial(self, size: int) -> None:
        """Start the time limit of a head with its first bytes, and count them."""
        if size and not self._heads.size(self):
            self._deadline.set(self._head_seconds, self.close)
        self._heads.set(self, size)

    async def _parse_large(self, head: bytes) -> None:
        """Parse a head when it is its turn."""
        async with self._turn:
            self._parse_now(head)
            await asyncio.sleep(0)  # other connections come before its handler and the next head

    def _parse_now(self, head: bytes) -> None:
        self._head = head
        if not self._http.parse(head):
            self._reject("400 Bad Request", "it is not HTTP/1.1")

    def _reject(self, status: str, reason: str) -> None:
        """Send a bare 4xx for a head that cannot be parsed, and close."""
        self._note_rejected(status, reason)
        if self.transport is not None:
            self.transport.write(_bare(status))
        self.close()

    def rejected(self, reason: str) -> web.StreamResponse:
        """Return a bare 400, the last response, for a head that cannot be parsed."""
        self._note_rejected("400 Bad Request", reason)
        return Response(self, _bare("400 Bad Request"))

    def _note_rejected(self, status: str, reason: str) -> None:
        log.warning("rejected request from %s: %s (%s)", self.address(), status, reason)
        self._heads.release(self)
        self._last = True

    # Requests

    async def answer(self, received: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request."""
        if not self._pace.take():
            await self._pace.wait()
        version = received.version
        if version != HttpVersion11 and version != HttpVersion10:  # noqa: PLR1714 - twice as fast
            return self.rejected("version")
        if (
            self._last
            or not received.keep_alive
            or version != HttpVersion11
            or received.body_exists
            or received.method == hdrs.METH_CONNECT
            or hdrs.UPGRADE in received.headers
        ):
            self._last = True
            self._input.clear()
        self._request = request = Request(received, self._head, self, self._deadline.when)
        self._handler = asyncio.current_task()
        try:
            response = await self._serve(request)
            self._last = self._last or request.is_last
        except Exception:
            log.exception("the handler of a request raised an exception")
            response = _bare("500 Internal Server Error")
            self._last = True
        finally:
            self._request = self._handler = None
        if self._last:
            response = response.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        self._heads.release(self)
        return Response(self, response)

    async def write(self, response: bytes) -> None:
        """Write a response, and wait for the next request."""
        self._phase, self._head = _Phase.SENDING, b""
        self._deadline.forget()
        for start in range(0, len(response), _PIECE):
            if self.transport is None or self.transport.is_closing():
                return
            piece = response if len(response) <= _PIECE else response[start : start + _PIECE]
            self.transport.write(piece)
            if self._writable is not None:
                self._limit_writing()
                self._unread.set(self, len(response))
                try:
                    await self._writable
                finally:
                    self._unread.release(self)
                self._deadline.forget()
        self._read_next()

    def _read_next(self) -> None:
        self._phase = _Phase.READING
        self.idle_since = self._loop.time()
        if self._input and not self._last:
            self._read(len(self._input))
        if self._phase is not _Phase.READING or self.transport is None:
            return
        if not self.transport.is_reading() and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def is_last(self) -> bool:
        """Whether the connection ends after the response."""
        return self._last

    # Limits and the end

    def set_timeout(self, seconds: float) -> float:
        """Cancel the request in progress, and mark it as timed out, in `seconds`.

        Returns when that is, in the event loop's time.
        """
        self._deadline.set(seconds, self._time_out)
        return self._deadline.when

    def _time_out(self) -> None:
        if self._request is None or self._handler is None:
            self.abort()
            return
        self._request.timed_out = True
        self._handler.cancel()
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
        self._http.force_close()

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
