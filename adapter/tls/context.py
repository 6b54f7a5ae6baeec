"""The server's side of TLS: 1.2 at least, HTTP/1.1, certificates that can change while served.

The handshake collects a client's certificate, and keeps out those of CAs that nobody here knows;
who a client is gets decided elsewhere, from its `Peer`.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from adapter.tls.ciphers import TLSOptions
from certs import issue
from certs.bundle import UNREADABLE, Bundle, CertificateError, Named, by_name

_USUAL = TLSOptions()
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, to which Python gives no name."""


class Meter(Protocol):
    """Knows how to show what is served."""

    def serving(self, until: float) -> None:
        """The serving certificate expires at `until`, in Unix seconds."""


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


class ReloadingContext:
    """A TLS context whose certificates, and whom they ask for one, change while it is served.

    `context` is given to the listener once. What changes holds from the next handshake on, and
    connections that there are go on. A change that cannot be made leaves everything as it is.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        terms: TLSOptions = _USUAL,
        meter: Meter | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raises CertificateError where OpenSSL refuses the bundle."""
        self._terms = terms
        self._meter = meter
        self._clock = clock
        self._client_cas = b""
        self._named: tuple[Named, ...] = ()
        self._bundle = bundle
        self._chosen = self._build(bundle, (), b"")
        self.context = context(bundle, terms)
        self.context.sni_callback = self._choose
        self._measure()

    @property
    def bundle(self) -> Bundle:
        """What is served to those who ask for no name, or for one that nothing else has."""
        return self._bundle

    def serve(self, bundle: Bundle) -> None:
        """Raises CertificateError where OpenSSL refuses the bundle."""
        self._chosen = self._build(bundle, self._named, self._client_cas)
        self._bundle = bundle
        self._measure()

    def sni(self, named: Iterable[Named]) -> None:
        """Serve these to clients that ask for their names. Raises CertificateError."""
        everything = tuple(named)
        self._chosen = self._build(self._bundle, everything, self._client_cas)
        self._named = everything

    def request_client_certs(self, client_cas: Iterable[bytes]) -> None:
        """Ask clients for a certificate of one of these CAs (PEM bundles, each perhaps empty).

        A client may come without one; with one of another CA, or that is not for clients, it is not
        let in. Expired ones are. Raises CertificateError where a bundle cannot be read.
        """
        together = b"".join(_der(each) for each in client_cas if each.strip())
        if together == self._client_cas:
            return
        self._chosen = self._build(self._bundle, self._named, together)
        self._client_cas = together
        # OpenSSL takes this, unlike the CAs, from the context that a connection began with.
        self.context.verify_mode = ssl.CERT_OPTIONAL if together else ssl.CERT_NONE

    def check(self) -> str:
        """For /readyz: until when the certificate is good. Raises RuntimeError once it is not."""
        if self._clock() >= self._bundle.until:
            raise RuntimeError(f"the serving certificate expired at {self._bundle.until}")
        return f"good until {self._bundle.until}"

    def _build(
        self, bundle: Bundle, named: Iterable[Named], client_cas: bytes
    ) -> Mapping[str, ssl.SSLContext]:
        """Contexts by name; that of `bundle` has the name "". A new one forgets dropped CAs."""
        made = {"": bundle, **by_name(named)}
        contexts = {id(each): context(each, self._terms, client_cas) for each in made.values()}
        return {name: contexts[id(each)] for name, each in made.items()}

    def _choose(
        self,
        connection: ssl.SSLSocket | ssl.SSLObject,
        name: str | None,
        _front: ssl.SSLContext,
    ) -> None:
        chosen = self._chosen
        asked = (name or "").lower()
        wildcard = f"*.{asked.partition('.')[2]}"
        connection.context = chosen.get(asked) or chosen.get(wildcard) or chosen[""]

    def _measure(self) -> None:
        if self._meter is not None:
            self._meter.serving(self._bundle.until.timestamp())


def _der(pem: bytes) -> bytes:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except UNREADABLE as error:
        raise CertificateError(f"the CAs of clients cannot be read: {error}") from error
    return b"".join(each.public_bytes(serialization.Encoding.DER) for each in certificates)


def context(bundle: Bundle, terms: TLSOptions = _USUAL, client_cas: bytes = b"") -> ssl.SSLContext:
    """A context that serves `bundle`, with the CAs of clients in DER, one after the other.

    Raises CertificateError where OpenSSL refuses the bundle or the CAs.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = terms.minimum
    if terms.ciphers:
        made.set_ciphers(terms.ciphers)
    made.set_alpn_protocols(["http/1.1"])
    # A resumed session would keep the certificate of a CA that was dropped meanwhile.
    made.options |= ssl.OP_NO_TICKET
    made.num_tickets = 0
    # An expired client is to be told 401, which needs a connection.
    made.verify_flags |= _NO_CHECK_TIME
    if client_cas:
        try:
            made.load_verify_locations(cadata=client_cas)
        except ssl.SSLError as error:
            raise CertificateError(f"OpenSSL cannot read the CAs of clients: {error}") from error
        made.verify_mode = ssl.CERT_OPTIONAL
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
