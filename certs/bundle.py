"""A certificate with its chain and its key, checked to belong together when it is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

UNREADABLE = (ValueError, x509.InvalidVersion)
"""What `cryptography` raises where bytes are no certificate that it knows."""


class CertificateError(Exception):
    """A certificate or a key that cannot be used: what is wrong, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a TLS server needs."""

    chain: tuple[x509.Certificate, ...]
    """The server's own certificate first, then the issuers that it sends along."""
    key: PrivateKeyTypes

    @classmethod
    def parse(cls, chain: bytes, key: bytes) -> Bundle:
        """Read PEM. Raises CertificateError, also where the two do not belong together."""
        try:
            certificates = tuple(x509.load_pem_x509_certificates(chain))
        except UNREADABLE as error:
            raise CertificateError(
                f"no certificate can be read: {error}; give a PEM file with the server's own "
                "certificate first"
            ) from error
        try:
            private = serialization.load_pem_private_key(key, password=None)
        except TypeError as error:
            raise CertificateError("the key is encrypted; give it without a passphrase") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise CertificateError(
                f"no private key can be read: {error}; give a PEM file with the key alone"
            ) from error
        bundle = cls(chain=certificates, key=private)
        if _public(bundle.leaf.public_key()) != _public(private.public_key()):
            raise CertificateError(
                f"the key is not that of the certificate of {bundle.subject}; give the pair that "
                "was issued together, the server's own certificate first"
            )
        return bundle

    @property
    def leaf(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def subject(self) -> str:
        return self.leaf.subject.rfc4514_string()

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names that the certificate is good for; the first label may be `*`."""
        try:
            found = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return ()
        return tuple(found.value.get_values_for_type(x509.DNSName))

    @property
    def until(self) -> datetime:
        """When the server's own certificate expires."""
        return self.leaf.not_valid_after_utc

    @property
    def chain_pem(self) -> bytes:
        return b"".join(
            certificate.public_bytes(serialization.Encoding.PEM) for certificate in self.chain
        )

    @property
    def key_pem(self) -> bytes:
        return pkcs8(self.key)

    @property
    def ca_pem(self) -> bytes:
        """What a client has to trust: the last certificate of the chain."""
        return self.chain[-1].public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A bundle for clients that ask for certain names."""

    bundle: Bundle
    domains: tuple[str, ...] = ()
    """Names, whose first label may be `*`; none of them stands for the certificate's own."""


def by_name(named: Iterable[Named]) -> dict[str, Bundle]:
    """Who serves which name, in lower case: the first that has it, by `domains` before its own.

    As Kubernetes' BuildNamedCertificates has it, but for the common name, which no client reads.
    """
    explicit: dict[str, Bundle] = {}
    own: dict[str, Bundle] = {}
    for each in named:
        for name in each.domains:
            explicit.setdefault(name.lower(), each.bundle)
        if not each.domains:
            for name in each.bundle.names:
                own.setdefault(name.lower(), each.bundle)
    return {**own, **explicit}


def pkcs8(key: PrivateKeyTypes) -> bytes:
    """In PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]  # all have it; no class says so
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
