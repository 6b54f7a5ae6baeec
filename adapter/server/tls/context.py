"""TLS contexts of the server: TLS 1.2 or later, HTTP/1.1, certificates that can be replaced.

The handshake accepts only client certificates of the configured CAs. `adapter.server.auth`
decides which user a certificate identifies.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from adapter import telemetry
from adapter.background import Condition
from adapter.files import FileWatcher, read_file
from adapter.settings.ciphers import TLSOptions
from adapter.settings.serving import CertKeyPair
from certs.bundle import UNREADABLE, Bundle, CertificateError, Named, by_name
from rules.findings import Finding, degraded, passes

_DEFAULTS = TLSOptions()
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which Python does not define."""


class ReloadingContext:
    """TLS context whose certificates and client CAs can be replaced while it is in use.

    Give `context` to the listener once. A change takes effect with the next handshake and does not
    affect open connections. A change that fails leaves everything as it was.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        options: TLSOptions = _DEFAULTS,
        meter: telemetry.CertificateMetrics | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Serve `bundle` by default. Raises CertificateError if OpenSSL refuses it."""
        self._options = options
        self._meter = meter
        self._clock = clock
        self._client_cas = b""
        self._named: tuple[Named, ...] = ()
        self.bundle = bundle
        """Default certificate, for clients whose SNI name no other certificate has."""
        self._contexts = self._build(bundle, (), b"")
        self.context = self._contexts[""]
        self.context.sni_callback = self._select
        self._update_meter()

    def serve(self, bundle: Bundle) -> None:
        """Replace the default certificate. Raises CertificateError if OpenSSL refuses it."""
        self._contexts = self._build(bundle, self._named, self._client_cas)
        self.bundle = bundle
        self._update_meter()

    def serve_sni(self, named: Iterable[Named]) -> None:
        """Replace the certificates for SNI. Raises CertificateError if OpenSSL refuses one."""
        certificates = tuple(named)
        self._contexts = self._build(self.bundle, certificates, self._client_cas)
        self._named = certificates

    def request_client_certs(self, client_cas: Iterable[bytes]) -> None:
        """Request client certificates that were issued by one of these CAs (PEM bundles).

        Clients may send none. The handshake fails for a certificate of another CA or for another
        purpose, but not for an expired one. Raises CertificateError if a bundle cannot be read.
        """
        der = b"".join(_to_der(each) for each in client_cas if each.strip())
        if der == self._client_cas:
            return
        self._contexts = self._build(self.bundle, self._named, der)
        self._client_cas = der
        # OpenSSL takes the verify mode, unlike the CAs, from the context that the connection
        # started with, not from the one that SNI selects.
        self.context.verify_mode = ssl.CERT_OPTIONAL if der else ssl.CERT_NONE

    def check(self) -> Finding:
        """Return for /readyz how long the certificate is valid.

        An expired one leaves the pod ready: no replica has another, and not all clients verify it.
        """
        if self._clock() >= self.bundle.until:
            return degraded(f"the serving certificate expired at {self.bundle.until}")
        return passes(f"valid until {self.bundle.until}")

    def _build(
        self, bundle: Bundle, named: Iterable[Named], client_cas: bytes
    ) -> Mapping[str, ssl.SSLContext]:
        """Build the contexts by SNI name; "" is the default.

        New contexts are built for every change, because a context never forgets a CA.
        """
        bundles = {"": bundle, **by_name(named)}
        contexts = {id(each): context(each, self._options, client_cas) for each in bundles.values()}
        return {name: contexts[id(each)] for name, each in bundles.items()}

    def _select(
        self,
        connection: ssl.SSLSocket | ssl.SSLObject,
        server_name: str | None,
        _initial: ssl.SSLContext,
    ) -> None:
        """Set the context of a connection by SNI (callback of OpenSSL)."""
        contexts = self._contexts
        name = (server_name or "").lower()
        wildcard = f"*.{name.partition('.')[2]}"
        connection.context = contexts.get(name) or contexts.get(wildcard) or contexts[""]

    def _update_meter(self) -> None:
        if self._meter is not None:
            self._meter.serving_expiry.set(self.bundle.until.timestamp())


def _to_der(pem: bytes) -> bytes:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except UNREADABLE as error:
        raise CertificateError(f"client CAs cannot be read: {error}") from error
    return b"".join(each.public_bytes(serialization.Encoding.DER) for each in certificates)


def context(
    bundle: Bundle, options: TLSOptions = _DEFAULTS, client_cas: bytes = b""
) -> ssl.SSLContext:
    """Build a context that serves `bundle` and accepts the client CAs (concatenated DER).

    Raises CertificateError if OpenSSL refuses the bundle or the CAs, or the files that it reads
    cannot be written.
    """
    built = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    built.minimum_version = options.minimum
    if options.ciphers:
        built.set_ciphers(options.ciphers)
    built.set_alpn_protocols(["http/1.1"])
    # A resumed session would keep a client certificate whose CA was removed since.
    built.options |= ssl.OP_NO_TICKET
    built.num_tickets = 0
    # Clients with an expired certificate get 401, which needs a connection.
    built.verify_flags |= _NO_CHECK_TIME
    if client_cas:
        try:
            built.load_verify_locations(cadata=client_cas)
        except ssl.SSLError as error:
            raise CertificateError(f"OpenSSL cannot read the client CAs: {error}") from error
        built.verify_mode = ssl.CERT_OPTIONAL
    # OpenSSL reads the key only from a file. The directory is private and removed at once.
    try:
        with tempfile.TemporaryDirectory(prefix="certificate-") as directory:
            chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            chain.write_bytes(bundle.chain_pem)
            key.touch(mode=0o600)
            key.write_bytes(bundle.key_pem)
            built.load_cert_chain(chain, key)
    except OSError as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error
        raise CertificateError(
            f"the certificate of {bundle.subject} cannot be served: {reason}"
        ) from error
    return built


log = logging.getLogger(__name__)

_INTERVAL = 1.0
_FALLBACK = "the previous certificate stays in use"


class CertificateWatcher:
    """Serves the certificate of `default` by default, and those of `named` to clients by SNI.

    `tls` serves the first value of `default`. Without it, `serving_certificate` sets the default.
    A pair that cannot be loaded or served is logged once and changes nothing, so the two files need
    not be replaced at once.
    """

    def __init__(
        self,
        tls: ReloadingContext,
        default: FileWatcher[Bundle] | None,
        named: Iterable[CertKeyPair] = (),
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Serve the certificates of `named`. Raises CertificateError for an unusable one."""
        self._tls = tls
        self._default = default
        self._named = tuple((watch(each), each.domains) for each in named)
        self._sleep = sleep
        self._condition = Condition()
        self._serve_named()

    def poll(self) -> None:
        """Serve the certificates whose files have changed, or that could not be served before."""
        problem, failed = "", bool(self._condition.problem)
        try:
            if self._default is not None and (self._default.poll() or failed):
                self._tls.serve(self._default.value)
            changed = [watcher.poll() for watcher, _ in self._named]
            if any(changed) or failed:
                self._serve_named()
        except CertificateError as error:  # refused by OpenSSL, or no space for its files
            problem = str(error)
        if self._condition.becomes(problem) and problem:
            log.warning("%s; %s", problem, _FALLBACK)

    async def run(self) -> None:
        """Poll the files every second."""
        while True:
            await self._sleep(_INTERVAL)
            self.poll()

    def _serve_named(self) -> None:
        self._tls.serve_sni(
            [Named(bundle=watcher.value, domains=domains) for watcher, domains in self._named]
        )


def watch(pair: CertKeyPair) -> FileWatcher[Bundle]:
    """Return a watcher of a certificate and its key. Raises CertificateError, naming the files."""

    def load() -> Bundle:
        try:
            return Bundle.parse(read_file(pair.certificate), read_file(pair.key))
        except OSError as error:
            raise CertificateError(f"{error.filename} cannot be read: {error.strerror}") from error
        except CertificateError as error:
            raise CertificateError(f"{pair.certificate} and {pair.key}: {error}") from error

    return FileWatcher(
        pair.certificate, pair.key, load=load, failure=CertificateError, fallback=_FALLBACK
    )
