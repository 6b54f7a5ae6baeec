"""Verification of client certificate chains against trusted CAs.

Follows Go's x509.Verify with the key usage clientAuth, as the API server does: names are not
checked, and a certificate without key usages, CA or not, may be used for everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy

from certs.bundle import UNREADABLE, CertificateError

_CLIENT_USAGES = frozenset(
    {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A client certificate with a trusted chain."""

    leaf: x509.Certificate
    until: datetime
    """When the first certificate of the chain, CA included, expires."""


class ClientCAs:
    """The CA certificates of one PEM bundle, which client certificates must chain to."""

    def __init__(self, pem: bytes) -> None:
        """Parse the bundle. Raises CertificateError if it is empty or invalid."""
        try:
            self._store = verification.Store(x509.load_pem_x509_certificates(pem))
        except UNREADABLE as error:
            raise CertificateError(f"cannot read a CA bundle: {error}") from error

    def verify(self, chain: Sequence[bytes], *, now: datetime) -> Verified:
        """Verify a chain in DER: the client's certificate first, the others in any order.

        Raises CertificateError with the reason if it is not trusted.
        """
        verifier = (
            verification.PolicyBuilder()
            .store(self._store)
            .time(now)
            .extension_policies(ca_policy=_CA_POLICY, ee_policy=_CLIENT_POLICY)
            .build_client_verifier()
        )
        try:
            with warnings.catch_warnings():
                # Warnings about a client's certificate do not help an operator.
                warnings.simplefilter("ignore")
                leaf, *others = map(x509.load_der_x509_certificate, chain)
                verified = verifier.verify(leaf, others)
        except Exception as error:  # malformed certificates raise exceptions of many classes
            raise CertificateError(f"client certificate is not trusted: {error}") from error
        until = min(each.not_valid_after_utc for each in verified.chain)
        return Verified(leaf=leaf, until=until)


def _check_client_usage(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    extension: x509.ExtendedKeyUsage | None,
) -> None:
    if extension is not None and _CLIENT_USAGES.isdisjoint(extension):
        raise ValueError("extended key usage lacks clientAuth")


def _check_ca_usage(
    _policy: verification.Policy, _certificate: x509.Certificate, extension: x509.KeyUsage | None
) -> None:
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("key usage of a CA lacks keyCertSign")


_CA_POLICY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _check_ca_usage)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _check_client_usage)
)
_CLIENT_POLICY = ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _check_client_usage
)
