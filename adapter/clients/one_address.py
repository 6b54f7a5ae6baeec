"""Resolver that keeps to one address of a name with several, as long as connections to it succeed.

Replicas of Prometheus behind a headless Service scrape at different times. Values that alternate
between them jump, and a series that only one of them has comes and goes.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from socket import AF_INET, AddressFamily
from typing import Any

import aiohttp
from aiohttp import abc
from aiohttp.client_proto import ResponseHandler

from adapter import errors

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
