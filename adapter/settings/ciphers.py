"""TLS versions and cipher suites, from Go's names to OpenSSL's.

OpenSSL names the same suites differently and lacks those that are broken.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
"""Go's names of TLS versions, which the flags of Kubernetes accept, the lowest first."""

SUITES = {
    "TLS_AES_128_GCM_SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384": "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256": "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
"""Go's name -> OpenSSL's name of every suite in Go's crypto/tls, cipher_suites.go."""

_TLS13 = frozenset(name for name, openssl_name in SUITES.items() if name == openssl_name)
"""Suites of TLS 1.3. Neither Go nor Python can select them: all are always enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """TLS settings of a server."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""
    """TLS 1.2 suites by OpenSSL's names, separated by colons; empty for OpenSSL's default."""
    notices: tuple[str, ...] = ()
    """Requested settings that are not supported, with the consequence, for the log."""


def parse_tls_options(version: str = "", suites: Sequence[str] = ()) -> TLSOptions:
    """Convert Go's names of the minimum version and of cipher suites; empty means the default.

    Raises ValueError, listing the known names, for an unknown one.
    """
    if version and version not in VERSIONS:
        raise ValueError(f"unknown TLS version {version!r}: must be one of {', '.join(VERSIONS)}")
    if unknown := [name for name in suites if name not in SUITES]:
        raise ValueError(
            f"unknown cipher suites {', '.join(unknown)}: must be among {', '.join(SUITES)}"
        )
    notices: list[str] = []
    if version in VERSIONS[:2]:
        notices.append(f"{version} is insecure and refused: TLS 1.2 is the lowest version served")
    minimum = ssl.TLSVersion.TLSv1_3 if version == VERSIONS[3] else ssl.TLSVersion.TLSv1_2
    selectable = [name for name in suites if name not in _TLS13]
    if unsupported := [name for name in selectable if SUITES[name] not in _openssl_suites()]:
        notices.append(
            f"cipher suites that OpenSSL does not support are left out: {', '.join(unsupported)}"
        )
    ciphers = dict.fromkeys(SUITES[name] for name in selectable if name not in unsupported)
    if suites and not ciphers:
        minimum = ssl.TLSVersion.TLSv1_3  # no suite of TLS 1.2 is allowed
    return TLSOptions(minimum=minimum, ciphers=":".join(ciphers), notices=tuple(notices))


@functools.cache
def _openssl_suites() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:COMPLEMENTOFALL")
    return frozenset(str(each["name"]) for each in context.get_ciphers())
