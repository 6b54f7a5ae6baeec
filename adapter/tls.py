"""The server's side of TLS: 1.2 at least, HTTP/1.1, with a certificate that is given or our own."""

from __future__ import annotations

import _ssl
import asyncio
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from certs import issue
from certs.bundle import Bundle, CertificateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a client showed of itself in the handshake."""

    chain: tuple[bytes, ...]
    """Its certificates in DER, its own first; not verified here, and never empty."""
    connection: object
    """The same for all requests of one connection; hashable, and can be referenced weakly."""


def peer(transport: asyncio.BaseTransport | None) -> Peer | None:
    """The client at the other end; None without TLS, a certificate or a connection."""
    secured = None if transport is None else transport.get_extra_info("ssl_object")
    # Without a certificate the chain is `[None]`.
    if secured is None or not secured.getpeercert(binary_form=True):
        return None
    # Public only from Python 3.13 on.
    chain = secured._sslobj.get_unverified_chain()  # noqa: SLF001
    certificates = tuple(each.public_bytes(_ssl.ENCODING_DER) for each in chain)
    return Peer(chain=certificates, connection=secured)


def load(certificate: Path, key: Path) -> Bundle:
    """The certificate and key of two PEM files. Raises CertificateError, which names the files."""
    try:
        return Bundle.parse(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise CertificateError(f"{error.filename} cannot be read: {error.strerror}") from error
    except CertificateError as error:
        raise CertificateError(f"{certificate} and {key}: {error}") from error


def issued(bind_address: str, *, now: datetime, hosts: Iterable[str] = ()) -> Bundle:
    """A certificate of our own for this machine, for where none is given."""
    return issue.throw_away((bind_address, *hosts), now=now)


def context(bundle: Bundle) -> ssl.SSLContext:
    """A context that serves `bundle`. Raises CertificateError where OpenSSL refuses it."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    # OpenSSL reads files only; the directory is ours alone and gone at once.
    with tempfile.TemporaryDirectory(prefix="certificate-") as directory:
        chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        chain.write_bytes(bundle.chain_pem)
        key.touch(mode=0o600)
        key.write_bytes(bundle.key_pem)
        try:
            made.load_cert_chain(chain, key)
        except ssl.SSLError as error:
            raise CertificateError(
                f"the certificate of {bundle.subject} cannot be served: {error.reason}"
            ) from error
    return made
