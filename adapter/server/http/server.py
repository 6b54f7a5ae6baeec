"""Listener: accepts connections, limits their number, and runs the TLS handshake.

A connection costs a few kilobytes until its first byte arrives; only then are the buffers of TLS
allocated. Beyond a limit, an idle connection is closed for a new one: first those without a client
certificate, but for the newest; of these, of the address that has the most, the one that is idle
for longest. If none is idle, it is one without a certificate whose client does not read. The
connections themselves are in `connection`, routing in `api.router`.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import itertools
import logging
import math
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable

from adapter.background import Pace, gather_or_cancel
from adapter.server.http import listening
from adapter.server.http.connection import (
    CLOSE_SECONDS,
    DEFAULT_TIMEOUT,
    HEAD_SECONDS,
    WRITE_SECONDS,
    Connection,
    Serve,
)
from adapter.server.http.handler import new_server
from adapter.server.http.limits import MemoryBudget, return_freed_buffers

log = logging.getLogger(__name__)

MAX_PENDING = MAX_CONNECTIONS = 1024
"""Maximum number of connections before and after the end of their TLS handshake.

The in-flight limits of Kubernetes allow 600 requests, and an API server may open a connection for
each of them at the same moment.
"""
MAX_HEADS = 64 << 20
"""Bytes of all request heads that are not complete, or large and not answered. Parsed, a head takes
twice its bytes, and up to five times if it has characters beyond the BMP."""
MAX_UNREAD = 128 << 20
"""Bytes of all responses of which a client does not read the rest."""

_ACCEPTED = 8
"""Connections accepted per iteration of the event loop. With one, a burst of some hundred clients
fills the backlog, and others repeat their SYN, too."""
_NEW = 8
"""One in so many connections, the newest ones, is not closed first for lack of a client
certificate: it had no time yet for its first request."""
_REJECTIONS = 60.0
"""Seconds between log lines about rejected client certificates."""
_RETRY_SECONDS = 1.0
"""Pause after a failure to accept, for example because no file descriptor is free."""

# asyncio allocates this buffer, by default 256 KiB, for each TLS connection. A record has 16 KiB.
# uvloop's buffer has 256 KiB, too, but only the part takes memory that was used. The attribute is
# not documented; `tests/adapter/server/http/test_contract.py` fails if it has no effect.
sslproto.SSLProtocol.max_size = 32 << 10


class Listener:
    """Listener on one IP address that creates a `Connection` for each client."""

    def __init__(
        self,
        serve: Serve,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        shutdown_seconds: float = DEFAULT_TIMEOUT,
        head_seconds: float = HEAD_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        max_pending: int = MAX_PENDING,
        max_connections: int = MAX_CONNECTIONS,
        max_heads: int = MAX_HEADS,
        max_unread: int = MAX_UNREAD,
    ) -> None:
        self._ssl_context = ssl_context
        self._host = host
        self._port = port
        self._shutdown_seconds = shutdown_seconds
        self._head_seconds = head_seconds
        self._close_seconds = close_seconds
        self._max_pending = max_pending
        self._max_connections = max_connections
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._new_connection = functools.partial(
            Connection,
            new_server(),
            serve,
            heads=MemoryBudget(max_heads, _give_up("too many large request heads")),
            unread=MemoryBudget(max_unread, _give_up("too many responses that are not read")),
            turn=asyncio.Lock(),
            pace=Pace(),
            head_seconds=head_seconds,
            close_seconds=close_seconds,
            write_seconds=write_seconds,
            closed=self._forget,
        )
        # Both in the order in which they began.
        self._pending: dict[asyncio.Task[None], _Arrival] = {}
        self._waiting: collections.Counter[str] = collections.Counter()
        """Addresses of the clients -> number of their connections in `_pending`."""
        self._connections: dict[Connection, str] = {}
        """Connections with a complete handshake -> addresses of the clients."""
        self._next_rejection = -math.inf
        """Time of the loop before which no rejected client certificate is logged."""

    @property
    def url(self) -> str:
        """The URL of the listener."""
        scheme = "https" if self._ssl_context else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port; if 0 was requested, the one that was assigned."""
        return int(self._listener.getsockname()[1]) if self._listener else self._port

    def start(self, bound: socket.socket | None = None) -> None:
        """Accept connections from `bound`, which listens on the address, or from a new socket.

        Raises OSError if the address is not available.
        """
        self._listener = bound or listening.listen(self._host, self._port)
        return_freed_buffers()
        self._listen()

    async def close(self) -> None:
        """Stop listening, answer the requests in progress, and close all connections."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        pending = tuple(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await gather_or_cancel(
            [each.shutdown(self._shutdown_seconds) for each in self._connections]
        )

    def _accept(self) -> None:
        """Accept some connections. The event loop calls this once per iteration."""
        assert self._listener is not None
        for _ in range(_ACCEPTED):
            try:
                accepted, (address, *_) = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections: %s", error)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_RETRY_SECONDS, self._listen)
                return
            self._admit(accepted, address)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        """Let a connection wait for its handshake; at the limit, close another that waits."""
        accepted.setblocking(False)
        if len(self._pending) >= self._max_pending:
            victim = self._dispensable()
            victim.cancel()
            self._remove(victim)
        arrival = _Arrival(accepted, address)
        task = self._loop.create_task(self._open(arrival))
        self._pending[task] = arrival
        self._waiting[address] += 1

        def ended(_: object) -> None:
            self._remove(task)
            if not arrival.has_data:
                arrival.socket.close()  # also if the task was cancelled before it ran

        task.add_done_callback(ended)

    def _dispensable(self) -> asyncio.Task[None]:
        """Choose the oldest that sent nothing of the addresses with most waiting connections.

        In a flood this runs for each connection, so it looks at few: while it looked at all, the
        backlog filled, and other clients repeated their SYN.
        """
        most = max(self._waiting.values())
        first = None
        for task, arrival in self._pending.items():
            if self._waiting[arrival.address] == most:
                if not arrival.has_data:
                    return task
                first = first or task
        assert first is not None
        return first

    def _remove(self, task: asyncio.Task[None]) -> None:
        arrival = self._pending.pop(task, None)
        if arrival is not None:
            self._waiting[arrival.address] -= 1
            if not self._waiting[arrival.address]:
                del self._waiting[arrival.address]

    def _listen(self) -> None:
        if self._listener is not None and self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    async def _open(self, arrival: _Arrival) -> None:
        """Wait for the first byte, run the handshake and register the connection."""
        tls = self._ssl_context is not None
        try:
            async with asyncio.timeout(self._head_seconds):
                await arrival.first_byte()
                connection = self._new_connection()
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    arrival.socket,
                    ssl=self._ssl_context,
                    ssl_handshake_timeout=self._head_seconds if tls else None,
                    ssl_shutdown_timeout=self._close_seconds if tls else None,
                )
        except (OSError, asyncio.CancelledError) as error:
            # A frame of the traceback refers to a future that refers to the exception. Without this
            # cycle, the buffers are freed at once and not by the garbage collector.
            error.__traceback__ = None
            if isinstance(error, ssl.SSLCertVerificationError):
                self._rejected(arrival.address, error.verify_message)
            else:
                log.debug("no TLS handshake with %s: %s", arrival.address, error)
            return
        if connection.transport is not None:
            self._register(connection, arrival.address)

    def _rejected(self, address: str, why: str) -> None:
        """Log at most once a minute that a client certificate is not of a trusted CA."""
        now = self._loop.time()
        if now < self._next_rejection:
            return
        self._next_rejection = now + _REJECTIONS
        log.warning(
            "rejected the client certificate of %s: %s. If it is the API server, its front-proxy "
            "CA has changed: update --requestheader-client-ca-file, or the ConfigMap kube-system/"
            "extension-apiserver-authentication",
            address,
            why,
        )

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def _register(self, connection: Connection, address: str) -> None:
        """Add a connection. Beyond the limit, close another, or this one if all must stay.

        If none is idle, it is one without a client certificate that does not read its response. A
        new connection with a certificate also replaces one whose request is in progress.
        """
        if len(self._connections) >= self._max_connections:
            closable = [each for each in self._connections if each.is_idle] or [
                each
                for each in self._connections
                if not each.has_certificate and (each.is_sending or connection.has_certificate)
            ]
            counts = collections.Counter(map(self._connections.__getitem__, closable))
            new = set(itertools.islice(reversed(self._connections), self._max_connections // _NEW))

            def precedence(each: Connection) -> tuple[bool, bool, bool, int, float]:
                count = counts[self._connections[each]]
                kept = each.has_certificate or each in new
                return not each.is_closing, not each.is_sending, kept, -count, each.idle_since

            victim = min(closable, key=precedence, default=connection)
            # At once: a close may take 5 s. Until then, this connection would be chosen again.
            self._connections.pop(victim, None)
            victim.abort()
            if victim is connection:
                return
        self._connections[connection] = address


class _Arrival:
    """Accepted socket whose TLS handshake is not complete."""

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self.socket = accepted
        self.address = address
        self.has_data = False

    async def first_byte(self) -> None:
        """Return when a byte can be read. Raises ConnectionError if the client closes instead."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self.socket, _set, readable)
        try:
            await readable
            self.has_data = bool(self.socket.recv(1, socket.MSG_PEEK))
        finally:
            loop.remove_reader(self.socket)
        if not self.has_data:
            raise ConnectionResetError("closed by the client")


def _give_up(reason: str) -> Callable[[Connection], None]:
    def close(connection: Connection) -> None:
        log.warning("closed connection of %s: %s", connection.address(), reason)
        connection.abort()

    return close


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
