"""Flags for another server of external metrics, such as KEDA's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import FlagType, Group, flag
from adapter.settings.flag_types import FILE

_SERVICE = re.compile(
    r"(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)/(?P<name>[a-z]([-a-z0-9]*[a-z0-9])?)"
    r"(:(?P<port>[0-9]{1,5}))?"
)
_URL = re.compile(r"https://[^/?#@\s]+")


def _url(server: str) -> str:
    if _URL.fullmatch(server):
        return server
    if service := _SERVICE.fullmatch(server):
        host = f"{service['name']}.{service['namespace']}.svc"
        return f"https://{host}:{service['port'] or 443}"
    raise ValueError("must be NAMESPACE/SERVICE, NAMESPACE/SERVICE:PORT or https://HOST:PORT")


def _server(text: str) -> str | None:
    if not text:
        return None
    _url(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback(Group):
    """Which server has the external metrics that no rule produces."""

    TITLE = "External metrics of another server"

    server: str | None = flag(
        "external-fallback",
        FlagType(name="service", parse=_server),
        "Server of external.metrics.k8s.io, such as KEDA's, as NAMESPACE/SERVICE[:PORT] or "
        "https://HOST:PORT. Requests for external metrics that no rule produces are forwarded to "
        "it with the adapter's own credentials, and its metrics are listed, too.",
    )
    ca_file: str | None = flag(
        "external-fallback-ca-file",
        FILE,
        "PEM file with the CA of that server's certificate. Read again when it changes.",
    )

    @property
    def url(self) -> str:
        """URL of the server, which must be given."""
        return _url(self.server or "")

    def problems(self) -> Iterator[str]:
        """Yield a problem if the server could not be verified."""
        if self.server and not self.ca_file:
            yield (
                "--external-fallback: requires --external-fallback-ca-file with the CA of its "
                "certificate, for KEDA the key ca.crt of the Secret kedaorg-certs"
            )
