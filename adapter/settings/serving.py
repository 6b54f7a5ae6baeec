"""Flags for the HTTPS listener and its certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adapter.settings import ciphers
from adapter.settings.flag import (
    FILE,
    STRING,
    SWITCH,
    FlagGroup,
    FlagType,
    choice,
    comma_separated,
    duration,
    flag,
    integer,
    repeated,
)
from rules.findings import Finding


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


def _address(text: str) -> str:
    address = text.strip()
    try:
        if address != "localhost":
            ipaddress.ip_address(address)
    except ValueError as error:
        raise ValueError("must be an IP address or localhost") from error
    return address


def _tls_version(text: str) -> str:
    ciphers.parse_tls_options(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings(FlagGroup):
    """Listener, serving certificate and shutdown."""

    TITLE = "Serving"

    event_loop: Literal["asyncio", "uvloop"] = flag(
        "event-loop",
        choice("asyncio", "uvloop"),
        "Event loop of the server. uvloop needs less CPU time.",
        default="uvloop",
    )
    bind_address: str = flag(
        "bind-address",
        FlagType(name="address", parse=_address),
        "IP address to listen on, or `localhost`. With --objects it must be a loopback address, "
        "and is 127.0.0.1 by default.",
        default="0.0.0.0",  # noqa: S104 - as in the original, for a server in its own pod
    )
    port: int = flag(
        "secure-port",
        integer(1, 65535),
        "HTTPS port. The original accepts 0 to serve nothing; this is an error here.",
        default="443",
    )
    tls_cert_file: str | None = flag(
        "tls-cert-file",
        FILE,
        "PEM file with the serving certificate and its chain, reread every second. Requires "
        "--tls-private-key-file.",
    )
    tls_key_file: str | None = flag(
        "tls-private-key-file", FILE, "PEM file with the private key of --tls-cert-file."
    )
    cert_dir: str = flag(
        "cert-dir",
        FlagType(name="directory", parse=str),
        "Directory with the serving certificate in `apiserver.crt` and `apiserver.key`, unless "
        "--tls-cert-file is given. If the files do not exist, the adapter issues a certificate: "
        "from a CA that all replicas share in a Secret and publish in the APIServices, or, with "
        "--objects, a new one at each start.",
        default="apiserver.local.config/certificates",
    )
    tls_min_version: str = flag(
        "tls-min-version",
        FlagType(name="string", parse=_tls_version),
        "Minimum TLS version: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 are "
        "accepted and mean VersionTLS12, which is also the default.",
    )
    tls_cipher_suites: tuple[str, ...] = flag(
        "tls-cipher-suites",
        comma_separated(lambda suites: ciphers.parse_tls_options(suites=suites)),
        "Comma-separated cipher suites of TLS 1.2, by the names that Go gives them. Without it, "
        "OpenSSL chooses.",
    )
    sni: tuple[CertKeyPair, ...] = flag(
        "tls-sni-cert-key",
        repeated("string", parse_sni_pair),
        "Additional serving certificate for clients that request other names, as "
        "`CERT,KEY[:DOMAIN,...]`. Repeatable.",
    )
    service_name: str = flag(
        "service-name",
        STRING,
        "Name of the Service in front of the adapter. The issued certificate is valid for its DNS "
        "names, and the caBundle is published in the APIServices that refer to it.",
        default="gpu-metrics-adapter",
    )
    service_namespace: str = flag(
        "service-namespace",
        STRING,
        "Namespace of that Service and of the Secret with the CA. Without it, `$POD_NAMESPACE`, "
        "else `gpu-metrics-adapter`.",
    )
    permit_port_sharing: bool = flag(
        "permit-port-sharing",
        SWITCH,
        "Listen with SO_REUSEPORT, so that another process can listen on the same port.",
    )
    causes_in_messages: bool = flag(
        "causes-in-messages",
        SWITCH,
        "Append the reason and one sentence to the message of a 404 or 500 for a metric, for "
        "callers who may read discovery. `kubectl describe hpa` then shows why a metric has no "
        "value. `false` keeps the original's text.",
        default="true",
    )
    errors_for_empty_lists: bool = flag(
        "errors-for-empty-lists",
        SWITCH,
        "Answer 404 with the reason, not an empty list, if a custom metric has no value for any of "
        "the matched objects, or an external metric has none. The HPA controller takes both for a "
        "metric without a value; of the 404, `kubectl describe hpa` shows the reason. `false` "
        "answers an empty list, as the original.",
        default="true",
    )
    shutdown_delay: float = flag(
        "shutdown-delay",
        duration(),
        "Time to continue serving after SIGTERM or SIGINT while /readyz fails, so that load "
        "balancers can remove the pod first. A second signal ends the process immediately. The "
        "original has no such flag and does not wait.",
        default="0s",
    )

    @property
    def tls_options(self) -> ciphers.TLSOptions:
        """TLS versions and cipher suites."""
        return ciphers.parse_tls_options(self.tls_min_version, self.tls_cipher_suites)

    def problems(self) -> Iterator[Finding]:
        """Yield a problem for a certificate without key, or a key without certificate."""
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            yield Finding(fact="--tls-cert-file and --tls-private-key-file must be given together")
