"""Resolver that keeps to one address of a name with several, as long as connections to it succeed.

Replicas of Prometheus behind a headless Service scrape at different times. Values that alternate
between them jump, and a series that only one of them has comes and goes.
"""

from __future__ import annotations

import socket
import weakref
from typing import Any

import aiohttp
from aiohttp import abc
from aiohttp.client_proto import ResponseHandler

_HEAD_START = 1.0
"""Seconds after which the next address is tried, too, while a connection is not established."""


class OneAddress(abc.AbstractResolver):
    """Resolver whose first address is that of the last connection, or else the lowest.

    All adapters begin with the same address. The others are tried when it fails.
    """

    def __init__(self, resolver: abc.AbstractResolver | None = None) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._address = ""
        self._connectors: weakref.WeakSet[Connector] = weakref.WeakSet()
        self.addresses: tuple[str, ...] = ()
        """Those that the name had last, in order; empty if the URL has an address."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
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
        self._address = next(iter(later or self.addresses), "")
        for connector in self._connectors:
            connector.renew()

    def connector(self, *, limit: int = 0) -> Connector:
        """Return a connector that resolves anew for each connection (at most `limit`, if not 0)."""
        connector = Connector(
            limit=limit,
            resolver=self,
            use_dns_cache=False,
            happy_eyeballs_delay=_HEAD_START,
            socket_factory=self._socket,
        )
        self._connectors.add(connector)
        return connector

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an attempt to connect; the last attempt is the one that succeeds."""
        family, kind, protocol, _, target = address
        self._address = str(target[0])
        return socket.socket(family, kind, protocol)


class Connector(aiohttp.TCPConnector):
    """Connector whose idle connections can be given up while others are in use."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
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
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            if self._made.setdefault(protocol, self._renewals) == self._renewals:
                self.last = protocol
                return connection
            protocol.abort()
            connection.close()
