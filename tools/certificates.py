"""Test certificates with chosen issuer, validity, usages and names."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.bundle import Bundle

NOW = dt.datetime(2026, 11, 20, 20, 25, 37, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
INSECURE = ssl.create_default_context()
"""TLS context of clients that verify nothing."""
INSECURE.check_hostname, INSECURE.verify_mode = False, ssl.CERT_NONE
_SERIAL = itertools.count(1)


class Holder:
    """A certificate and its key, issued by another holder or self-signed.

    `since` and `until` are relative to `now`; without `keys` the key identifiers are left out.
    """

    def __init__(
        self,
        name: str,
        issuer: Holder | None = None,
        *,
        ca: bool | None = None,
        usages: Sequence[x509.ObjectIdentifier] = (),
        since: dt.timedelta = -DAY,
        until: dt.timedelta = DAY,
        keys: bool = True,
        now: dt.datetime = NOW,
        groups: Sequence[str] = (),
        dns: Sequence[str] = (),
        addresses: Sequence[str] = (),
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        issuer = issuer or self
        self.name = _name(name, groups)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(issuer.name)
            .public_key(self.key.public_key())
            .serial_number(next(_SERIAL))
            .not_valid_before(now + since)
            .not_valid_after(now + until)
        )
        if ca is not None:
            builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        if dns or addresses:
            names: list[x509.GeneralName] = [x509.DNSName(each) for each in dns]
            names += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if keys:
            point = issuer.key.public_key()
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(point), False
            ).add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
        self.certificate = builder.sign(issuer.key, hashes.SHA256())

    @property
    def der(self) -> bytes:
        """The certificate in DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def bundle(self) -> Bundle:
        """The certificate and key for a server."""
        return Bundle(chain=(self.certificate,), key=self.key)

    def client(self, context: ssl.SSLContext, tmp_path: Path, *others: Holder) -> None:
        """Load this certificate, followed by `others`, into the TLS context of a client."""
        files = tmp_path / f"{id(self)}.crt", tmp_path / f"{id(self)}.key"
        files[0].write_bytes(self.pem + b"".join(each.pem for each in others))
        files[1].write_bytes(self.bundle.key_pem)
        context.load_cert_chain(*files)

    @property
    def pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
