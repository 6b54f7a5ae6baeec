"""Certificate chains with their private key, and which names they serve (SNI)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

UNREADABLE = (ValueError, x509.InvalidVersion)
"""Exceptions of `cryptography` for bytes that are not a certificate."""


class CertificateError(Exception):
    """An unusable certificate or key; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Certificate chain and private key of a TLS server."""

    chain: tuple[x509.Certificate, ...]
    """The leaf certificate, then intermediate CAs."""
    key: PrivateKeyTypes

    @classmethod
    def parse(cls, chain: bytes, key: bytes) -> Bundle:
        """Parse PEM. Raises CertificateError if either is invalid or the key does not match."""
        try:
            certificates = tuple(x509.load_pem_x509_certificates(chain))
        except UNREADABLE as error:
            raise CertificateError(
                f"cannot read a certificate: {error}. Use a PEM file with the server's certificate "
                "first"
            ) from error
        try:
            private = serialization.load_pem_private_key(key, password=None)
        except TypeError as error:
            raise CertificateError(
                "the private key is encrypted. Use one without a passphrase"
            ) from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise CertificateError(
                f"cannot read a private key: {error}. Use a PEM file with only the key"
            ) from error
        bundle = cls(chain=certificates, key=private)
        if bundle.leaf.public_key() != private.public_key():
            raise CertificateError(
                f"the private key does not match the certificate of {bundle.subject}. Use the key "
                "of this certificate, and put the server's certificate first"
            )
        return bundle

    @property
    def leaf(self) -> x509.Certificate:
        """The server's certificate."""
        return self.chain[0]

    @property
    def subject(self) -> str:
        """The subject of the leaf, as in RFC 4514."""
        return self.leaf.subject.rfc4514_string()

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names in the leaf's subjectAltName; the first label may be `*`."""
        try:
            extension = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return ()
        return tuple(extension.value.get_values_for_type(x509.DNSName))

    @property
    def until(self) -> datetime:
        """When the leaf expires."""
        return self.leaf.not_valid_after_utc

    @property
    def chain_pem(self) -> bytes:
        """The chain in PEM."""
        return pem_of(self.chain)

    @property
    def key_pem(self) -> bytes:
        """The private key in PEM."""
        return pkcs8(self.key)

    @property
    def ca_pem(self) -> bytes:
        """The last certificate of the chain in PEM; a client must trust it."""
        return pem_of(self.chain[-1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A bundle that is served for certain names (SNI)."""

    bundle: Bundle
    domains: tuple[str, ...] = ()
    """DNS names, whose first label may be `*`; empty for those of the certificate."""


def by_name(bundles: Iterable[Named]) -> dict[str, Bundle]:
    """Return the bundle for each name, in lower case. Explicit `domains` win, then the first.

    Follows Kubernetes' BuildNamedCertificates, except for the common name, which clients ignore.
    """
    explicit: dict[str, Bundle] = {}
    implicit: dict[str, Bundle] = {}
    for each in bundles:
        for name in each.domains:
            explicit.setdefault(name.lower(), each.bundle)
        if not each.domains:
            for name in each.bundle.names:
                implicit.setdefault(name.lower(), each.bundle)
    return {**implicit, **explicit}


def pkcs8(key: PrivateKeyTypes) -> bytes:
    """Return the key as unencrypted PKCS #8 in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return the certificates in PEM."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
