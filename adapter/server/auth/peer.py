"""Client certificate chain of a TLS connection; `authentication` verifies it."""

from __future__ import annotations

import _ssl
import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

from adapter.cache import WeakCache
from adapter.server.http.request import ClientConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Client of a TLS connection, with the certificates of its handshake."""

    chain: tuple[bytes, ...]
    """Certificates in DER, the client's own first; never empty, not verified yet."""
    connection: Hashable
    """Key for all requests of one connection: hashable and weakly referenceable."""


class Peers:
    """Cache of the clients of open connections: to read one takes 10 µs."""

    def __init__(self) -> None:
        self.cache: WeakCache[ClientConnection, tuple[Peer | None]] = WeakCache()

    def get(self, client: ClientConnection) -> Peer | None:
        """Return the peer of a connection; None without TLS or without a client certificate."""
        cached = self.cache.get(client)
        if cached is None:
            cached = (read_peer(client.transport),)
            self.cache.set(client, cached)
        return cached[0]


def read_peer(transport: asyncio.BaseTransport | None) -> Peer | None:
    """Return the client of `transport`; None without TLS or without a client certificate."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # get_unverified_chain() returns [None] if the client sent no certificate.
    if tls is None or not tls.getpeercert(binary_form=True):
        return None
    chain = tls._sslobj.get_unverified_chain()  # noqa: SLF001 - public from Python 3.13 on
    return Peer(
        chain=tuple(certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain),
        connection=tls,
    )
