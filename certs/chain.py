"""Whether the certificates that a client showed lead to an authority that is trusted.

The rules are those of Go's x509.Verify with the key usage clientAuth, as the API server applies
them: no name is asked for, and usages bind, an authority too, only where a certificate has them.
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

_CLIENTS = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A client's own certificate, of a chain that is trusted."""

    leaf: x509.Certificate
    until: datetime
    """When the first certificate of the chain expires."""


class Authorities:
    """The certificates of one PEM bundle, as those whose clients are trusted."""

    def __init__(self, pem: bytes) -> None:
        """Raises CertificateError where there is none, or one cannot be read."""
        try:
            self._store = verification.Store(x509.load_pem_x509_certificates(pem))
        except UNREADABLE as error:
            raise CertificateError(f"no bundle of CA certificates: {error}") from error

    def verify(self, chain: Sequence[bytes], *, now: datetime) -> Verified:
        """Judge a chain in DER, the client's own certificate first, the rest in any order.

        Raises CertificateError, which says why it is not trusted.
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
                # What is odd about a stranger's certificate is no news to an operator.
                warnings.simplefilter("ignore")
                leaf, *others = map(x509.load_der_x509_certificate, chain)
                verified = verifier.verify(leaf, others)
        except Exception as error:  # a certificate's own oddities are exceptions of many kinds
            raise CertificateError(f"the client's certificate is not trusted: {error}") from error
        until = min(each.not_valid_after_utc for each in verified.chain)
        return Verified(leaf=leaf, until=until)


def _is_for_clients(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    extension: x509.ExtendedKeyUsage | None,
) -> None:
    if extension is not None and _CLIENTS.isdisjoint(extension):
        raise ValueError("it is not for clients")


def _signs_certificates(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    extension: x509.KeyUsage | None,
) -> None:
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("its key is not for signing certificates")


_CA_POLICY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _signs_certificates)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _is_for_clients)
)
_CLIENT_POLICY = ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _is_for_clients
)
