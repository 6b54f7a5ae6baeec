"""Authorities of our own, and the serving certificates that they issue: ECDSA on P-256.

Each authority has a name of its own, so that two of them are never mistaken for one another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.bundle import Bundle, CertificateError, pkcs8

LOCAL = ("localhost", "127.0.0.1", "::1")
"""The names that every throw-away certificate is good for."""
VALID = timedelta(days=365)
BACKDATED = timedelta(hours=1)
"""How long before it is issued a certificate begins: clocks differ."""

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, *, now: datetime, valid: timedelta = VALID) -> Self:
        """A new one, called `NAME-ca@SECONDS`, good from an hour before `now`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"{name}-ca", now)
        certificate = (
            _builder(subject, subject, key.public_key(), key.public_key(), now, now + valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate=certificate, key=key)

    @classmethod
    def parse(cls, certificate: bytes, key: bytes) -> Self:
        """Read PEM. Raises CertificateError, also for what cannot issue certificates."""
        bundle = Bundle.parse(certificate, key)
        try:
            constraints = bundle.leaf.extensions.get_extension_for_class(x509.BasicConstraints)
        except (x509.ExtensionNotFound, ValueError) as error:
            raise CertificateError(f"{bundle.subject} is no CA: {error}") from error
        if not constraints.value.ca:
            raise CertificateError(f"{bundle.subject} is no CA")
        if not isinstance(bundle.key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"the key of {bundle.subject} is not for ECDSA")
        return cls(certificate=bundle.leaf, key=bundle.key)

    def issue(
        self, hosts: Iterable[str], *, name: str, now: datetime, valid: timedelta = VALID
    ) -> Bundle:
        """A serving certificate for `hosts` (names or addresses), good from an hour before `now`.

        It does not outlive the authority. Unspecified addresses (`0.0.0.0`, `::`) name no host and
        are left out. Raises CertificateError for a host that is neither a name nor an address.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + valid, self.certificate.not_valid_after_utc)
        public, own = key.public_key(), self.key.public_key()
        leaf = (
            _builder(_name(name, now), self.certificate.subject, public, own, now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(_hosts(hosts)), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Bundle(chain=(leaf, self.certificate), key=key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return pkcs8(self.key)


def throw_away(
    hosts: Iterable[str], *, now: datetime, valid: timedelta = VALID, name: str = "localhost"
) -> Bundle:
    """A certificate for `LOCAL` and `hosts`, of an authority whose key is kept by nobody.

    It stands in where no certificate is given, as the original's does: for clients on this machine
    that trust `Bundle.ca_pem` or nothing at all. Raises CertificateError as `Authority.issue`.
    """
    authority = Authority.create(name, now=now, valid=valid)
    return authority.issue((*LOCAL, *hosts), name=name, now=now, valid=valid)


def _name(common: str, now: datetime) -> x509.Name:
    """RFC 5280 gives a common name 64 characters, which OpenSSL enforces."""
    serial = f"@{int(now.timestamp())}"
    shown = common[: _LONGEST_NAME - len(serial)] + serial
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, shown)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hosts(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            try:
                names.append(x509.DNSName(host))
            except ValueError as error:
                raise CertificateError(
                    f"no certificate can be made for the host {host!r}: {error}"
                ) from error
            continue
        if not address.is_unspecified:
            names.append(x509.IPAddress(address))
    return list(dict.fromkeys(names))
