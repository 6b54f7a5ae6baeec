"""Flags for another server of external metrics, such as KEDA's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import FILE, FlagGroup, FlagType, flag
from rules.findings import Finding
from rules.names import is_namespace

_SERVICE = re.compile(
    r"(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)/(?P<name>[a-z]([-a-z0-9]*[a-z0-9])?)"
    r"(:(?P<port>[0-9]{1,5}))?"
)
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ACCOUNT = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_URL = re.compile(r"https://[^/?#@\s]+")


def _url(server: str) -> str:
    if _URL.fullmatch(server):
        return server
    if service := _SERVICE.fullmatch(server):
        host = f"{service['name']}.{service['namespace']}.svc"
        return f"https://{host}:{service['port'] or 443}"
    raise ValueError("must be NAMESPACE/SERVICE, NAMESPACE/SERVICE:PORT or https://HOST:PORT")


def _account(text: str) -> tuple[str, str] | None:
    """Return namespace and name; the namespace is empty if it is the adapter's."""
    if not text:
        return None
    namespace, slash, name = text.rpartition("/")
    if (slash and not is_namespace(namespace)) or not _ACCOUNT.fullmatch(name):
        raise ValueError("must be NAME or NAMESPACE/NAME of a ServiceAccount")
    return namespace, name


def _server(text: str) -> str | None:
    if not text:
        return None
    _url(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSettings(FlagGroup):
    """Which server has the external metrics that no rule produces."""

    TITLE = "External metrics of another server"

    server: str | None = flag(
        "external-fallback",
        FlagType(name="service", parse=_server),
        "Server of external.metrics.k8s.io, such as KEDA's, as NAMESPACE/SERVICE[:PORT] or "
        "https://HOST:PORT. Requests for external metrics that no rule produces are forwarded to "
        "it with a token of --external-fallback-service-account, and its metrics are listed, too.",
    )
    account: tuple[str, str] | None = flag(
        "external-fallback-service-account",
        FlagType(name="account", parse=_account),
        "ServiceAccount, as NAME in the adapter's namespace or NAMESPACE/NAME, that may only read "
        "external metrics. That server gets a token of it, for at most an hour; it never gets the "
        "adapter's own.",
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

    def problems(self) -> Iterator[Finding]:
        """Yield a problem if the server could not be verified, or had no token of its own."""
        if self.server and not self.ca_file:
            yield Finding(
                subject="--external-fallback",
                fact="requires --external-fallback-ca-file with the CA of its certificate, for "
                "KEDA the key ca.crt of the Secret kedaorg-certs",
            )
        if self.server and not self.account:
            yield Finding(
                subject="--external-fallback",
                fact="requires --external-fallback-service-account with a ServiceAccount that may "
                "only read external metrics, because that server no longer gets the adapter's own "
                "token; manifests/components/external-fallback has one",
            )
