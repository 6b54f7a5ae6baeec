"""Options of a connection to a Prometheus, and their checks.

Each field of `PrometheusConnection` is declared here once. The flags
(`adapter.settings.prometheus`) and the keys of `sources` in a rules file
(`rules.document.sources`) follow from the declarations.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
"""RFC 9110, 5.1; also empty."""
_OF_ENDPOINT = re.compile(
    r"(/api/v1(/(query|query_range|series|labels|metadata|read|write|remote_write))?|/graph)/*$"
)
"""End of the path of a URL below the base URL of a Prometheus."""


def check_url(text: str) -> urllib.parse.SplitResult:
    """Return the parts of the base URL of a Prometheus. Raises ValueError for any other text."""
    url = check_host(text)
    if found := _OF_ENDPOINT.search(url.path):
        raise ValueError(f"must be the base URL of Prometheus: remove {found[0]} from its end")
    return url


def check_host(text: str) -> urllib.parse.SplitResult:
    """Return the parts of an HTTP URL. Raises ValueError for any other text."""
    message = "must be an http or https URL with a host"
    try:
        url = urllib.parse.urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError as error:
        raise ValueError(message) from error
    if not valid:
        raise ValueError(message)
    return url


def is_plain_text(url: str) -> bool:
    """Return whether requests to a URL that is valid are not encrypted."""
    return urllib.parse.urlsplit(url).scheme == "http"


def check_header_value(value: str) -> None:
    """Raise ValueError for what HTTP does not allow as the value of a header (RFC 9110, 5.5)."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise ValueError("the value contains a control character")


Verb = Literal["GET", "POST"]
Identity = Literal["aws", "azure", "google"]
IDENTITIES: Sequence[Identity] = get_args(Identity)
VERBS: Sequence[Verb] = get_args(Verb)
Kind = Literal[
    "url", "token url", "verb", "headers", "files", "duration", "text", "file", "identity", "switch"
]
"""Type of an option. `headers` are names and values; `files` are names and files with the values,
or values that may be secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Declaration of one option."""

    kind: Kind
    help: str
    """Description of the flag."""
    flag: str
    """Name of the flag, after `--prometheus-`; empty if it is the field's, with hyphens."""
    default: str
    """Text as on the command line."""
    value: Any
    """Value of `default`."""


_DEFAULTS: Mapping[Kind, Any] = {"token url": "", "text": "", "headers": (), "files": ()}


def option(
    kind: Kind, description: str, *, flag: str = "", text: str = "", value: Any = None
) -> Any:
    """Declare a field of PrometheusConnection.

    `text` and `value` are its default, else that of its kind.
    """
    if value is None:
        value = _DEFAULTS.get(kind)
    declared = Option(kind=kind, help=description, flag=flag, default=text, value=value)
    return dataclasses.field(default=value, metadata={Option: declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusConnection:
    """Where a Prometheus is, and how the adapter authenticates to it."""

    url: str = option(
        "url",
        "Base URL of Prometheus, without /api/v1. Its query string, such as `nocache=1`, is sent "
        "with each request.",
        text="https://localhost",
        value="https://localhost",
    )
    verb: Verb = option(
        "verb", "HTTP method of requests to Prometheus: GET or POST.", text="GET", value="GET"
    )
    headers: tuple[tuple[str, str], ...] = option(
        "headers",
        "HTTP header of requests to Prometheus, as `Name=value`. Repeatable.",
        flag="header",
    )
    timeout: float = option(
        "duration",
        "Maximum duration of a query; requests for names of series have three times as long.",
        text="10s",
        value=10.0,
    )
    """Seconds."""
    token_file: str | None = option(
        "file",
        "File with the bearer token for Prometheus, reread every minute. An Authorization header "
        "in --prometheus-header, or a user in --prometheus-url, takes precedence.",
    )
    username_file: str | None = option(
        "file",
        "File with the user name for basic authentication to Prometheus, reread every minute. "
        "Requires --prometheus-password-file.",
    )
    password_file: str | None = option(
        "file",
        "File with the password of the user in --prometheus-username-file, reread every minute.",
    )
    oauth2_token_url: str = option(
        "token url",
        "URL of the token server that issues bearer tokens for Prometheus, by the client "
        "credentials grant of OAuth 2.0. Requires a client ID and a client secret.",
    )
    oauth2_client_id: str = option("text", "Client ID for the token server.")
    oauth2_client_secret_file: str | None = option(
        "file", "File with the client secret for the token server, reread for each token."
    )
    oauth2_parameters: tuple[tuple[str, str], ...] = option(
        "files",
        "Parameter of requests to the token server, as `Name=value`, such as `scope=metrics.read`. "
        "Repeatable.",
        flag="oauth2-parameter",
    )
    oauth2_ca_file: str | None = option(
        "file",
        "PEM file with the CAs of the token server, reread every minute. Without it, the CAs of "
        "the operating system.",
    )
    identity: Identity | None = option(
        "identity",
        "Authenticate to Prometheus with the identity of the pod in a cloud: aws (Signature "
        "Version 4), azure or google. Requires an image with the libraries of the clouds.",
    )
    aws_region: str | None = option(
        "file", "Region of the Prometheus in AWS. Without it, that of the environment."
    )
    aws_profile: str | None = option(
        "file", "Profile in the configuration file of AWS, such as one with a role to assume."
    )
    header_files: tuple[tuple[str, str], ...] = option(
        "files",
        "HTTP header of requests to Prometheus, as `Name=file`: the file has its value, and is "
        "reread every minute. Repeatable.",
        flag="header-file",
    )
    ca_file: str | None = option(
        "file",
        "PEM file with the CAs that may have signed the certificate of Prometheus, reread every "
        "minute. Without it, the CA of --prometheus-auth-config or --prometheus-auth-incluster, "
        "else the CAs of the operating system.",
    )
    client_cert_file: str | None = option(
        "file",
        "PEM file with the client certificate for Prometheus, reread every minute. Requires "
        "--prometheus-client-tls-key-file.",
        flag="client-tls-cert-file",
    )
    client_key_file: str | None = option(
        "file",
        "PEM file with the private key of --prometheus-client-tls-cert-file.",
        flag="client-tls-key-file",
    )
    auth_in_cluster: bool = option(
        "switch",
        "Authenticate to Prometheus with the token of the pod's service account, and trust the CA "
        "of the cluster. --prometheus-token-file and --prometheus-ca-file take precedence.",
        text="false",
        value=False,
        flag="auth-incluster",
    )
    auth_config: str | None = option(
        "file",
        "Kubeconfig with the credentials for Prometheus and the CA to trust; its server address "
        "is not used. The flags for a token, a CA and a client certificate take precedence.",
    )


OPTIONS: Mapping[str, Option] = {
    field.name: field.metadata[Option] for field in dataclasses.fields(PrometheusConnection)
}
"""Field of PrometheusConnection -> its declaration."""

_AUTHORIZATIONS = ("token_file", "username_file", "oauth2_token_url", "identity")
_NEEDS = (
    ("client_cert_file", "client_key_file"),
    ("client_key_file", "client_cert_file"),
    ("username_file", "password_file"),
    ("password_file", "username_file"),
    ("oauth2_token_url", "oauth2_client_id"),
    ("oauth2_client_id", "oauth2_client_secret_file"),
    ("oauth2_client_secret_file", "oauth2_token_url"),
    ("oauth2_parameters", "oauth2_token_url"),
    ("oauth2_ca_file", "oauth2_token_url"),
    ("aws_region", "identity"),
    ("aws_profile", "identity"),
)
"""Fields of which the first needs the second."""


def authorizations(connection: PrometheusConnection) -> Sequence[str]:
    """Return the fields of `connection` that set the Authorization header, except headers."""
    return [field for field in _AUTHORIZATIONS if getattr(connection, field)]


def incomplete(connection: PrometheusConnection) -> Iterator[tuple[str, str]]:
    """Yield each field of `connection` that is set without one that it needs, and that one."""
    for given, needed in _NEEDS:
        if getattr(connection, given) and not getattr(connection, needed):
            yield given, needed


def conflicts(connection: PrometheusConnection) -> Iterator[tuple[str, str]]:
    """Yield each pair of fields of `connection` that would set the same header."""
    first, *others = *authorizations(connection), ""
    yield from ((other, first) for other in others if other)
    headers, files = (
        {name.lower() for name, _ in getattr(connection, field)}
        for field in ("headers", "header_files")
    )
    if headers & files:
        yield "header_files", "headers"
    if first and "authorization" in files:
        yield "header_files", first
