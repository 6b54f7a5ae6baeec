"""Client certificates of TLS connections, and the users that they name.

`authentication` verifies them against the client CAs.
"""

from __future__ import annotations

import _ssl
import asyncio
import hashlib
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from adapter import errors
from adapter.cache import WeakCache
from adapter.server.auth.user import User, with_authenticated_group
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


_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


def certificate_user(certificate: x509.Certificate) -> User | None:
    """Return the user of the subject; None without a common name.

    Raises Unauthenticated if the subject cannot be decoded or its UID is not a single string.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/x509/x509.go
    """
    subject = _subject(certificate)
    name = _last_value(subject, NameOID.COMMON_NAME)
    if not name:
        return None
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    return with_authenticated_group(
        User(
            name=name,
            groups=_values(subject, NameOID.ORGANIZATION_NAME),
            uid=_uid(subject),
            extra=MappingProxyType({_CREDENTIAL_ID: (f"X509SHA256={digest}",)}),
        )
    )


def common_name(certificate: x509.Certificate) -> str:
    """Return the last common name of the subject, as Go does; empty without one."""
    return _last_value(_subject(certificate), NameOID.COMMON_NAME)


def _subject(certificate: x509.Certificate) -> x509.Name:
    with warnings.catch_warnings():
        # cryptography warns about names longer than X.509 allows; those of Kubernetes often are.
        warnings.simplefilter("ignore")
        try:
            return certificate.subject
        except (TypeError, ValueError) as error:
            raise errors.Unauthenticated(
                f"the subject of the client certificate cannot be decoded: {error}"
            ) from error


def _values(subject: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    values = (attribute.value for attribute in subject if attribute.oid == oid)
    return tuple(value for value in values if isinstance(value, str))


def _last_value(subject: x509.Name, oid: x509.ObjectIdentifier) -> str:
    return (_values(subject, oid) or ("",))[-1]


def _uid(subject: x509.Name) -> str:
    uids = [attribute.value for attribute in subject if attribute.oid == _UID]
    if not uids:
        return ""
    uid = uids[0]
    if len(uids) > 1 or not isinstance(uid, str) or not uid:
        raise errors.Unauthenticated("the UID of the client certificate is not a single string")
    return uid
