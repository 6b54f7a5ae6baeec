"""What the command line asks for, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adapter.auth.trust import Headers
from adapter.tls.ciphers import TLSOptions
from adapter.tls.files import CertKeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rules come from: a file, or a preset by its name."""

    kind: Literal["config", "preset"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line asks for, checked; each field bears its flag's name.

    Times are in seconds. A file that is not given is None.
    """

    sources: tuple[Source, ...]
    """--config and --preset, in the order of the command line; empty leaves the choice to us."""
    metrics_relist_interval: float
    metrics_max_age: float
    """Never 0: it then is the relist interval."""

    prometheus_url: str
    prometheus_verb: Literal["GET", "POST"]
    prometheus_headers: tuple[tuple[str, str], ...]
    """Names and values, in order."""
    prometheus_timeout: float
    prometheus_token_file: str | None
    prometheus_ca_file: str | None
    prometheus_client_tls_cert_file: str | None
    prometheus_client_tls_key_file: str | None
    prometheus_auth_incluster: bool
    prometheus_auth_config: str | None

    lister_kubeconfig: str | None
    """None: the cluster that the adapter runs in."""
    objects: tuple[str, ...]
    """Manifests that stand for the cluster; with none of them, the cluster itself."""
    discovery_interval: float
    client_qps: float
    client_burst: int

    bind_address: str
    """An IP address, or `localhost`; a loopback address if nobody is asked who they are."""
    secure_port: int
    permit_port_sharing: bool
    tls_cert_file: str | None
    tls_private_key_file: str | None
    cert_dir: str
    tls_options: TLSOptions
    tls_sni: tuple[CertKeyPair, ...]
    service_name: str
    service_namespace: str
    """Empty when not given."""
    shutdown_delay: float

    authentication_kubeconfig: str | None
    token_ttl: float
    skip_lookup: bool
    tolerate_lookup_failure: bool
    client_ca_file: str | None
    requestheader_client_ca_file: str | None
    requestheader: Headers
    authorization_kubeconfig: str | None
    allowed_ttl: float
    denied_ttl: float
    always_allow_paths: tuple[str, ...]

    verbosity: int
    notices: tuple[str, ...]
    """What was given and changes nothing, with the reasons: to be said once, at the start."""
