"""Which of several servers of Prometheus is queried: one, as long as it answers.

`OneAddress` keeps to one of the addresses of a name: replicas behind a headless Service scrape at
different times. Values that alternate between them jump, and a series that only one of them has
comes and goes. A Service with a cluster IP has one address, and leads each connection to one of its
replicas: the time at which a process was started, read once over each new connection, says which
one it is.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from socket import AF_INET, AddressFamily
from typing import Any, Self

import aiohttp
from aiohttp import abc
from aiohttp.client_proto import ResponseHandler

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients import transport
from rules.document.sources import DEFAULT
from rules.findings import Finding, degraded, passes

_HEAD_START = 1.0
"""Seconds after which the next address is tried, too, while a connection is not established."""


class OneAddress(abc.AbstractResolver):
    """Resolver whose first address is that of the last connection, or else the lowest.

    All adapters begin with the same address. The others are tried when it fails. `proxy` is the URL
    of the proxy, whose name is then resolved.
    """

    def __init__(
        self, resolver: abc.AbstractResolver | None = None, *, proxy: str | None = None
    ) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._proxy = proxy
        self._address = ""
        self._preferred = ""
        """The first to answer when `prefer_lowest` was last called; empty after a switch."""
        self._connectors: weakref.WeakSet[Connector] = weakref.WeakSet()
        self.addresses: tuple[str, ...] = ()
        """Those that the name had last, in order; empty if the URL has an address."""

    @property
    def servers(self) -> int:
        """How many servers the addresses are of: each may have an IPv4 and an IPv6 address."""
        return max(Counter(":" in each for each in self.addresses).values(), default=0)

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_INET
    ) -> list[abc.ResolveResult]:
        """Return the addresses in the order in which they are tried. Raises OSError."""
        found = await self._resolver.resolve(host, port, family)
        self.addresses = tuple(sorted({each["host"] for each in found}))
        return sorted(found, key=lambda each: (each["host"] != self._address, each["host"]))

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()

    def failed(self) -> None:
        """Begin with the next address: requests to this one fail, although it may be connected."""
        later = [each for each in self.addresses if each > self._address]
        self._switch(next(iter(later or self.addresses), ""))

    def connected(self, address: str) -> None:
        """Keep to the address of a connection that is established."""
        if self._address not in ("", address):
            self._switch(address)
        self._address = address

    async def prefer_lowest(
        self, started: Callable[[aiohttp.ClientSession], Awaitable[object]]
    ) -> None:
        """Return to the address with which adapters begin, once it answers at two calls in a row.

        After a restart, it may lack samples. `started` sends a request.
        """
        last, self._preferred = self._preferred, ""
        new = OneAddress(self._resolver)
        async with aiohttp.ClientSession(connector=new.connector(), proxy=self._proxy) as session:
            try:
                await started(session)
            except errors.Refused:
                pass  # it answers
            except errors.BackendError:
                return
        self._preferred = new._address
        if last == new._address:
            self.connected(last)

    def _switch(self, address: str) -> None:
        self._address, self._preferred = address, ""
        for connector in self._connectors:
            connector.renew()

    def connector(self, *, limit: int = 0) -> Connector:
        """Return a connector that resolves anew for each connection (at most `limit`, if not 0)."""
        connector = Connector(
            self, limit=limit, use_dns_cache=False, happy_eyeballs_delay=_HEAD_START
        )
        self._connectors.add(connector)
        return connector


class Connector(aiohttp.TCPConnector):
    """Connector whose idle connections can be given up while others are in use."""

    def __init__(self, addresses: OneAddress, **options: Any) -> None:
        super().__init__(resolver=addresses, **options)
        self._addresses = addresses
        self._made: weakref.WeakKeyDictionary[ResponseHandler, int] = weakref.WeakKeyDictionary()
        self._renewals = 0
        self.last: ResponseHandler | None = None
        """Connection of the latest request."""

    def renew(self) -> None:
        """Use no connection again that was made before: each is closed instead."""
        self._renewals += 1

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Return a connection that was made since the last renewal."""
        while True:
            renewals = self._renewals
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            if self._made.setdefault(protocol, renewals) == self._renewals:
                transport = connection.transport
                if peer := transport and transport.get_extra_info("peername"):
                    self._addresses.connected(str(peer[0]))
                self._made[protocol] = self._renewals
                self.last = protocol
                return connection
            protocol.abort()
            connection.close()


log = logging.getLogger(__name__)

_CONNECTIONS = 10
"""Connections that find out whether replicas answer: one of two is missed once in 512 times."""
_TRIES = 20
"""Connections that are made until the process counts as gone: one of two is missed once in 10^6."""
_PROBES = 9
"""Further requests on one connection that find out whether a proxy balances requests."""
_CLOSED = 3
"""Times that a request is sent again because its connection was closed after the check."""

Started = Callable[[aiohttp.ClientSession], Coroutine[Any, Any, str]]
"""Returns when the process was started that answers a session. Raises BackendError."""


@dataclass(eq=False, slots=True)
class _Lane:
    """Session for one request at a time, and what its connection is known to lead to."""

    session: aiohttp.ClientSession
    connector: Connector
    checked: ResponseHandler | None = None
    process: str = ""


class Replicas:
    """Sessions for requests to a Prometheus, of which there may be several.

    Without `addresses`, which makes the connections of `session`, all requests use `session`. Else,
    once `count` has seen several processes behind one address, each request gets a session whose
    connection leads to the same process, as long as that answers. `proxy` is the URL of the proxy.
    Requests at a time bound the number of sessions; idle ones close their connection. `source` is
    the name that rules use, for the log.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        addresses: OneAddress | None = None,
        *,
        proxy: str | None = None,
        source: str = DEFAULT,
    ) -> None:
        self.session = session
        self.addresses = addresses
        self.processes = 1
        """Number of servers that answered behind one address when they were counted."""
        self.kept = False
        """Whether only one of them is queried."""
        self._proxy = proxy
        self._source = source
        self._process = ""
        self._avoided = ""
        self._switched = 0.0
        """When the process or the address was last changed, in Unix seconds."""
        self._free: list[_Lane] = []
        self._sessions = contextlib.AsyncExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, *, proxy: str | None, source: str) -> AsyncIterator[Self]:
        """Yield replicas with sessions of their own, which are closed at the end."""
        addresses = OneAddress(proxy=proxy)
        async with aiohttp.ClientSession(connector=addresses.connector(), proxy=proxy) as session:
            replicas = cls(session, addresses, proxy=proxy, source=source)
            async with replicas._sessions:
                yield replicas

    def status(self) -> Finding:
        """Return for /readyz which server answers."""
        number = self.processes
        if number > 1 and self.kept:
            return passes(f"answers; {number} servers answer behind one address, one is queried")
        if number > 1:
            return degraded(
                f"{number} servers answer behind one address, and each request may go to another, "
                "so values alternate (query one directly, or one that deduplicates)"
            )
        addresses = self.addresses.servers if self.addresses else 1
        if addresses > 1:
            return passes(f"answers; its name has {addresses} addresses, one is queried")
        return passes("answers")

    async def count(self, started: Started) -> None:
        """Count the processes that answer on several connections. Raises BackendError.

        Replicas behind one address are seen only if new connections are balanced between them. From
        then on, the oldest is queried while it answers. Calls also return to it, or to the lowest
        of several addresses: otherwise, adapters would query different replicas after a failure.
        """
        if self.addresses:
            await self.addresses.prefer_lowest(started)
        first = await started(self.session)
        others = await gather_or_cancel(started(self.session) for _ in range(_CONNECTIONS))
        starts = {first, *others}
        if self.addresses and len(starts) > 1:
            await self._choose_oldest(min(starts), started)
        self.processes = len(starts)

    async def _choose_oldest(self, process: str, started: Started) -> None:
        """Keep to `process`, unless an older one is kept or a proxy balances each request.

        Raises BackendError.
        """
        with self._borrowed() as lane:
            starts = {await started(lane.session)}
            connection = lane.connector.last
            for _ in range(_PROBES):
                starts.add(await started(lane.session))
            if lane.connector.last is connection:
                self.kept = len(starts) == 1
        if self.kept and (not self._process or process < self._process):
            self._choose(process)

    def failed(self, *, began: float) -> None:
        """Query another process or address, if there are several: requests to this one fail.

        Requests that began before the last switch, in Unix seconds, say nothing of the present one.
        """
        if began >= self._switched:
            self._switched = time.time()
            self._leave()
            if self.addresses:
                self.addresses.failed()

    def _leave(self) -> None:
        self._avoided, self._process = self._process, ""

    @contextlib.contextmanager
    def used(
        self, started: Started
    ) -> Iterator[tuple[aiohttp.ClientSession, Sequence[aiohttp.ClientMiddlewareType]]]:
        """Yield a session for one request, and the middlewares that the request needs."""
        if not self.kept:
            yield self.session, ()
            return
        with self._borrowed() as lane:

            async def middleware(
                request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
            ) -> aiohttp.ClientResponse:
                for _ in range(_CLOSED):
                    await self._check(lane, started)
                    response = await handler(request)
                    if lane.connector.last is lane.checked:
                        return response
                    async with transport.abort_on_exit(response):
                        pass
                raise errors.Unreachable("the connection is closed after each response")

            yield lane.session, (middleware,)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Lane]:
        """Yield the lane that was used last, whose connection is probably open, or a new one."""
        lane = self._free.pop() if self._free else self._open()
        try:
            yield lane
        finally:
            self._free.append(lane)

    def _open(self) -> _Lane:
        assert self.addresses is not None  # else there is no process to keep to
        connector = self.addresses.connector(limit=1)
        session = aiohttp.ClientSession(connector=connector, proxy=self._proxy)
        self._sessions.push_async_callback(session.close)
        return _Lane(session, connector)

    async def _check(self, lane: _Lane, started: Started) -> None:
        """Have the connection of `lane` lead to the process; choose another if none does."""
        if lane.connector.last is lane.checked and lane.checked is not None:
            if lane.process == self._process:
                return
            lane.connector.renew()
        tries, wanted = 0, self._process
        while True:
            if wanted != self._process:
                tries, wanted = 0, self._process
            tries += 1
            found: str | None = None
            try:
                found = await started(lane.session)
            except errors.Refused:
                found = self._process  # it does not tell
            except errors.BackendError:
                if tries >= _TRIES and not wanted:
                    raise
            if found and not self._process and (found != self._avoided or tries >= _TRIES):
                self._choose(found)
            if found == self._process:
                lane.checked, lane.process = lane.connector.last, found
                return
            lane.connector.renew()
            if tries >= _TRIES and wanted == self._process:
                self._leave()

    def _choose(self, process: str) -> None:
        self._process = process
        log.info(
            "several servers answer behind the address of Prometheus (source %s): "
            "the one started at %s is queried",
            self._source,
            process,
        )
