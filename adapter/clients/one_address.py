"""Resolver that keeps to one address of a name with several, as long as connections to it succeed.

Replicas of Prometheus behind a headless Service scrape at different times. Values that alternate
between them jump, and a series that only one of them has comes and goes.
"""

from __future__ import annotations

import socket

import aiohttp
from aiohttp import abc

_HEAD_START = 1.0
"""Seconds after which the next address is tried, too, while a connection is not established."""


class OneAddress(abc.AbstractResolver):
    """Resolver whose first address is that of the last connection, or else the lowest.

    All adapters begin with the same address. The others are tried when it fails.
    """

    def __init__(self, resolver: abc.AbstractResolver | None = None) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._address = ""
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

    def connector(self) -> aiohttp.TCPConnector:
        """Return a connector that resolves anew for each connection."""
        return aiohttp.TCPConnector(
            limit=0,
            resolver=self,
            use_dns_cache=False,
            happy_eyeballs_delay=_HEAD_START,
            socket_factory=self._socket,
        )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an attempt to connect; the last attempt is the one that succeeds."""
        family, kind, protocol, _, target = address
        self._address = str(target[0])
        return socket.socket(family, kind, protocol)
