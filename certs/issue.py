"""Private CAs, and the serving certificates that they issue: ECDSA on P-256.

Each CA has a unique subject, so that clients can tell an old CA from its successor.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.bundle import Bundle, CertificateError, pem_of, pkcs8

BACKDATED = timedelta(hours=1)
"""How long before its issue a certificate becomes valid, because clocks differ."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_TEMPORARY_LIFETIME = timedelta(days=365)
_MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA: its certificate and private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, *, now: datetime, valid: timedelta) -> Self:
        """Create a CA with the subject `NAME-ca@SECONDS`, valid from one hour before `now`."""
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
        """Parse PEM. Raises CertificateError if it is invalid or not a CA with an ECDSA key."""
        bundle = Bundle.parse(certificate, key)
        try:
            constraints = bundle.leaf.extensions.get_extension_for_class(x509.BasicConstraints)
        except (x509.ExtensionNotFound, ValueError) as error:
            raise CertificateError(f"{bundle.subject} is not a CA: {error}") from error
        if not constraints.value.ca:
            raise CertificateError(f"{bundle.subject} is not a CA")
        if not isinstance(bundle.key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"the key of {bundle.subject} is not an ECDSA key")
        return cls(certificate=bundle.leaf, key=bundle.key)

    def issue(self, hosts: Iterable[str], *, name: str, now: datetime, valid: timedelta) -> Bundle:
        """Issue a serving certificate for DNS names and addresses, valid from an hour before `now`.

        It expires with the CA at the latest. Unspecified addresses (`0.0.0.0`, `::`) are left out.
        Raises CertificateError if the CA has expired, and for a host that is neither a DNS name nor
        an address.
        """
        ca_until = self.certificate.not_valid_after_utc
        if now >= ca_until:
            subject = self.certificate.subject.rfc4514_string()
            raise CertificateError(f"{subject} expired at {ca_until}; use another CA")
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + valid, ca_until)
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
        """The CA certificate in PEM."""
        return pem_of([self.certificate])

    @property
    def key_pem(self) -> bytes:
        """The private key in PEM."""
        return pkcs8(self.key)


def issue_temporary(hosts: Iterable[str], *, now: datetime) -> Bundle:
    """Issue a certificate for this machine and `hosts` by a CA whose key is discarded.

    Used if no certificate is configured, as in the original. Clients must trust `Bundle.ca_pem` or
    skip verification. Raises CertificateError like `Authority.issue`.
    """
    name, valid = "localhost", _TEMPORARY_LIFETIME
    authority = Authority.create(name, now=now, valid=valid)
    return authority.issue((*_LOCAL_HOSTS, *hosts), name=name, now=now, valid=valid)


def _name(common_name: str, now: datetime) -> x509.Name:
    """Return a subject that is unique by its time; a common name has at most 64 characters."""
    suffix = f"@{int(now.timestamp())}"
    unique = common_name[: _MAX_COMMON_NAME - len(suffix)] + suffix
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, unique)])


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
                    f"cannot issue a certificate for host {host!r}: {error}"
                ) from error
            continue
        if not address.is_unspecified:
            names.append(x509.IPAddress(address))
    return list(dict.fromkeys(names))
