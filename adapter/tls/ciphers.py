"""What TLS may be spoken: versions and cipher suites, from the names that Go gives them.

OpenSSL has its own names for the same suites, and lacks those that are broken.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
"""Go's names of versions, as Kubernetes' flags take them."""

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
"""Every suite that Go implements (crypto/tls, cipher_suites.go), with OpenSSL's name for it."""

_OF_TLS13 = frozenset(name for name, here in SUITES.items() if name == here)
"""These cannot be chosen, there as here: TLS 1.3 always has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """The TLS that a server speaks."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""
    """Suites of TLS 1.2 by OpenSSL's names, separated by colons; empty for what it prefers."""
    notices: tuple[str, ...] = ()
    """What was asked for and is not had, with the consequence."""


def terms(version: str = "", suites: Sequence[str] = ()) -> TLSOptions:
    """The terms that Go's names ask for; nothing asked leaves the default.

    Raises ValueError, whose text says which names there are.
    """
    if version and version not in VERSIONS:
        raise ValueError(f"unknown TLS version {version!r}: must be one of {', '.join(VERSIONS)}")
    if unknown := [name for name in suites if name not in SUITES]:
        raise ValueError(
            f"unknown cipher suites {', '.join(unknown)}: must be among {', '.join(SUITES)}"
        )
    notices: list[str] = []
    if version in VERSIONS[:2]:
        notices.append(f"{version} is refused as insecure: TLS 1.2 is the lowest that is spoken")
    minimum = ssl.TLSVersion.TLSv1_3 if version == VERSIONS[3] else ssl.TLSVersion.TLSv1_2
    chosen = [name for name in suites if name not in _OF_TLS13]
    if lacking := [name for name in chosen if SUITES[name] not in _had()]:
        notices.append(f"cipher suites that OpenSSL has not are left out: {', '.join(lacking)}")
    ciphers = dict.fromkeys(SUITES[name] for name in chosen if name not in lacking)
    if suites and not ciphers:
        # None of TLS 1.2 is wanted, so TLS 1.2 cannot be spoken.
        minimum = ssl.TLSVersion.TLSv1_3
    return TLSOptions(minimum=minimum, ciphers=":".join(ciphers), notices=tuple(notices))


@functools.cache
def _had() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:COMPLEMENTOFALL")
    return frozenset(str(each["name"]) for each in context.get_ciphers())
