"""Files of a serving certificate and its key, as flags name them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CertKeyPair:
    """Files of a certificate and its key, and the names that it is served for."""

    certificate: Path
    key: Path
    domains: tuple[str, ...] = ()
    """For SNI; empty for the DNS names in the certificate."""


def parse_sni_pair(text: str) -> CertKeyPair:
    """Parse a value of `--tls-sni-cert-key`: `CERT,KEY[:DOMAIN,...]`.

    Raises ValueError with the messages of Kubernetes' NamedCertKey.
    """
    files, colon, names = text.partition(":")
    if colon and not names.strip():
        raise ValueError("empty names list is not allowed")
    certificate, *keys = files.split(",")
    if len(keys) != 1:
        raise ValueError("expected comma separated certificate and key file paths")
    domains = tuple(name.strip() for name in names.split(",")) if colon else ()
    return CertKeyPair(
        certificate=Path(certificate.strip()), key=Path(keys[0].strip()), domains=domains
    )
