"""Flags for the authentication and the authorization of callers."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.settings.flag import FILE, SWITCH, FlagGroup, comma_separated, duration, flag

_CONFIG_MAP = "the ConfigMap kube-system/extension-apiserver-authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings(FlagGroup):
    """TokenReviews, client certificates and the front proxy."""

    TITLE = "Authentication"

    kubeconfig: str | None = flag(
        "authentication-kubeconfig",
        FILE,
        "Kubeconfig of the cluster for TokenReviews, APIServices and "
        f"{_CONFIG_MAP}. Without it, --lister-kubeconfig.",
    )
    token_ttl: float = flag(
        "authentication-token-webhook-cache-ttl",
        duration(),
        "How long the result of a TokenReview is cached.",
        default="10s",
    )
    skip_lookup: bool = flag("authentication-skip-lookup", SWITCH, f"Do not read {_CONFIG_MAP}.")
    tolerate_lookup_failure: bool = flag(
        "authentication-tolerate-lookup-failure",
        SWITCH,
        f"Start even if {_CONFIG_MAP} cannot be read. Until it can be, requests through the API "
        "server may count as anonymous.",
    )
    client_ca_file: str | None = flag(
        "client-ca-file",
        FILE,
        f"PEM file with the CAs of client certificates. Without it, those in {_CONFIG_MAP}.",
    )
    requestheader_client_ca_file: str | None = flag(
        "requestheader-client-ca-file",
        FILE,
        "PEM file with the CAs of the front proxy's client certificate. Without it, the CAs and "
        f"all other request-header settings are those in {_CONFIG_MAP}.",
    )
    requestheader_allowed_names: tuple[str, ...] = flag(
        "requestheader-allowed-names",
        comma_separated(),
        "Comma-separated common names of front proxies; an empty list allows every name.",
    )
    requestheader_username_headers: tuple[str, ...] = flag(
        "requestheader-username-headers",
        comma_separated(),
        "Comma-separated headers with the user name that the front proxy sends.",
        default="x-remote-user",
    )
    requestheader_uid_headers: tuple[str, ...] = flag(
        "requestheader-uid-headers",
        comma_separated(),
        "Comma-separated headers with the UID of the user.",
    )
    requestheader_group_headers: tuple[str, ...] = flag(
        "requestheader-group-headers",
        comma_separated(),
        "Comma-separated headers with the groups of the user.",
        default="x-remote-group",
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = flag(
        "requestheader-extra-headers-prefix",
        comma_separated(),
        "Comma-separated prefixes of headers with further attributes of the user.",
        default="x-remote-extra-",
    )


def _check_paths(paths: tuple[str, ...]) -> None:
    for path in paths:
        if "*" in path[:-1]:
            raise ValueError(f"{path}: * is allowed at the end of a path only")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings(FlagGroup):
    """SubjectAccessReviews, and paths that need none."""

    TITLE = "Authorization"

    kubeconfig: str | None = flag(
        "authorization-kubeconfig",
        FILE,
        "Kubeconfig of the cluster for SubjectAccessReviews. Without it, "
        "--authentication-kubeconfig.",
    )
    allowed_ttl: float = flag(
        "authorization-webhook-cache-authorized-ttl",
        duration(),
        "How long a SubjectAccessReview that allows the access is cached. The original caches it "
        "for 10s.",
        default="1m0s",
    )
    denied_ttl: float = flag(
        "authorization-webhook-cache-unauthorized-ttl",
        duration(),
        "How long a SubjectAccessReview that denies the access is cached.",
        default="10s",
    )
    always_allow_paths: tuple[str, ...] = flag(
        "authorization-always-allow-paths",
        comma_separated(_check_paths),
        "Comma-separated paths that everybody may read; a `*` at the end matches every path with "
        "that prefix.",
        default="/healthz,/readyz,/livez",
    )
