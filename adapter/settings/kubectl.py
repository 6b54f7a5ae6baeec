"""Flags of commands that send requests with the rights of their user: those of kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import (
    FILE,
    STRING,
    SWITCH,
    FlagGroup,
    FlagType,
    duration,
    flag,
    repeated,
)
from rules.findings import Finding
from rules.names import is_namespace


def _timeout(text: str) -> float:
    return float(text) if text.isdecimal() else duration().parse(text)


def _name(text: str) -> str:
    if text and not is_namespace(text):
        raise ValueError("must be the name of a namespace")
    return text


def namespace() -> str:
    """Declare the flag for the namespace of objects that are named without one."""
    return flag(
        "namespace",
        FlagType(name="string", parse=_name),
        "Namespace of an object that is named without one.",
        shorthand="n",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSettings(FlagGroup):
    """Namespaces whose autoscalers are read."""

    TITLE = "Namespaces"

    names: tuple[str, ...] = flag(
        "namespace",
        repeated("string", _name),
        "Namespace whose autoscalers are read. Repeatable. Without it those of all namespaces, or "
        "of that of the context if you may list no others.",
        shorthand="n",
    )
    all: bool = flag(
        "all-namespaces",
        SWITCH,
        "Read autoscalers of all namespaces, and of none if you may not list them.",
        shorthand="A",
    )

    def problems(self) -> Iterator[Finding]:
        """Yield the conflict between the flags."""
        if self.names and self.all:
            yield Finding(subject="--all-namespaces", fact="conflicts with --namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubectlSettings(FlagGroup):
    """The cluster, the context and the user of a kubeconfig, and what replaces parts of them."""

    TITLE = "Cluster, as for kubectl"

    kubeconfig: str | None = flag(
        "kubeconfig",
        FILE,
        "Kubeconfig of the cluster. Without it the files in `$KUBECONFIG`, else `~/.kube/config`, "
        "else the service account of the pod.",
    )
    context: str = flag("context", STRING, "Context of the kubeconfig.")
    cluster: str = flag("cluster", STRING, "Cluster of the kubeconfig.")
    user: str = flag("user", STRING, "User of the kubeconfig.")
    server: str = flag("server", STRING, "URL of the API server.", shorthand="s")
    token: str = flag("token", STRING, "Bearer token for the API server.")
    client_certificate: str | None = flag(
        "client-certificate", FILE, "PEM file with the client certificate for the API server."
    )
    client_key: str | None = flag(
        "client-key", FILE, "PEM file with the key of the client certificate."
    )
    ca_file: str | None = flag(
        "certificate-authority", FILE, "PEM file with the CA of the API server."
    )
    insecure: bool = flag(
        "insecure-skip-tls-verify", SWITCH, "Do not verify the certificate of the API server."
    )
    tls_server_name: str = flag(
        "tls-server-name", STRING, "Host name in the certificate of the API server."
    )
    impersonated: str = flag("as", STRING, "User to impersonate.")
    impersonated_groups: tuple[str, ...] = flag(
        "as-group", repeated("string", str), "Group to impersonate. Repeatable."
    )
    request_timeout: float = flag(
        "request-timeout",
        FlagType(name="duration", parse=_timeout),
        "Maximum duration of a request; a number is in seconds; 0 means that of the command.",
        default="0s",
    )

    @property
    def selects(self) -> bool:
        """Return whether a flag needs a kubeconfig, or replaces a part of it."""
        return bool(
            self.context
            or self.cluster
            or self.user
            or self.server
            or self.token
            or self.client_certificate
            or self.ca_file
            or self.insecure
        )

    def problems(self) -> Iterator[Finding]:
        """Yield the conflicts between the flags."""
        if self.impersonated_groups and not self.impersonated:
            yield Finding(subject="--as-group", fact="needs --as")
        if self.insecure and self.ca_file:
            yield Finding(
                subject="--insecure-skip-tls-verify",
                fact="conflicts with --certificate-authority; remove one of them",
            )
