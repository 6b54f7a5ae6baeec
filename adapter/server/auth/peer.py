"""Client certificates of TLS connections, and the users that they name.

`authentication` verifies them against the client CAs.
"""

from __future__ import annotations

import _ssl
import asyncio
import hashlib
import warnings
from dataclasses import dataclass
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from adapter import errors
from adapter.server.auth.trust import Trust
from adapter.server.auth.user import User, with_authenticated_group
from adapter.server.http.request import ClientConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """Result of verifying the certificates of a connection."""

    trust: Trust
    """What they were verified against."""
    is_front_proxy: bool
    user: User | None
    failures: tuple[str, ...]
    expires: float
    """Unix time until which the result may be cached: no certificate used has expired by then."""


@dataclass(slots=True)
class Peer:
    """Client of a connection, with the certificates of its handshake."""

    chain: tuple[bytes, ...] = ()
    """Certificates in DER, the client's own first, not verified yet; empty without TLS or if the
    client sent none."""
    identity: PeerIdentity | None = None
    """Cached by `authentication`."""


def peer_of(client: ClientConnection) -> Peer:
    """Return the peer of a connection, which is read once: that takes 10 µs."""
    peer = client.identity
    if not isinstance(peer, Peer):
        peer = client.identity = Peer(read_chain(client.transport))
    return peer


def read_chain(transport: asyncio.BaseTransport | None) -> tuple[bytes, ...]:
    """Return the certificates of a client; none without TLS or without a client certificate."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # get_unverified_chain() returns [None] if the client sent no certificate.
    if tls is None or not tls.getpeercert(binary_form=True):
        return ()
    chain = tls._sslobj.get_unverified_chain()  # noqa: SLF001 - public from Python 3.13 on
    return tuple(certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain)


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
