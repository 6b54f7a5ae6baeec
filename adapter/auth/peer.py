"""The client certificate that a connection carries; verified in `auth.authentication`."""

from __future__ import annotations

import _ssl
import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a client showed of itself in the handshake."""

    chain: tuple[bytes, ...]
    """Its certificates in DER, its own first; not verified here, and never empty."""
    connection: object
    """The same for all requests of one connection; hashable, and can be referenced weakly."""


def read_peer(transport: asyncio.BaseTransport | None) -> Peer | None:
    """The client at the other end; None without TLS, a certificate or a connection."""
    secured = None if transport is None else transport.get_extra_info("ssl_object")
    # Without a certificate the chain is `[None]`.
    if secured is None or not secured.getpeercert(binary_form=True):
        return None
    chain = secured._sslobj.get_unverified_chain()  # noqa: SLF001 - public from Python 3.13 on
    certificates = tuple(each.public_bytes(_ssl.ENCODING_DER) for each in chain)
    return Peer(chain=certificates, connection=secured)
