"""A serving certificate made on the spot, from a CA of its own whose key is thrown away.

It stands in where no certificate is given, as the original's does: good for the names of this
machine, and for clients that trust `Bundle.ca_pem` or nothing at all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.bundle import Bundle, CertificateError

LOCAL = ("localhost", "127.0.0.1", "::1")
"""The names that every such certificate is good for."""
VALID = timedelta(days=365)

_BACKDATED = timedelta(hours=1)
"""Clocks differ."""


def throw_away(
    hosts: Iterable[str], *, now: datetime, valid: timedelta = VALID, name: str = "localhost"
) -> Bundle:
    """A certificate for `LOCAL` and `hosts` (names or addresses), good from an hour before `now`.

    Unspecified addresses (`0.0.0.0`, `::`) name no host and are left out. Raises CertificateError
    for a host that is neither a name nor an address.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issued = int(now.timestamp())
    ca_name = _name(f"{name}-ca@{issued}")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), ca_key.public_key(), now, valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        _builder(
            _name(f"{name}@{issued}"), ca_name, key.public_key(), ca_key.public_key(), now, valid
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_hosts(hosts)), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Bundle(chain=(leaf, ca), key=key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + valid)
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
    for host in dict.fromkeys((*LOCAL, *hosts)):
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
