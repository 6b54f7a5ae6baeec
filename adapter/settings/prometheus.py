"""Flags for the connection to Prometheus."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from adapter.settings.flag import FlagType, Group, fields_of, flag
from adapter.settings.flag_types import FILE, STRING, SWITCH, choice, duration, repeated
from rules import endpoint


def _url(text: str) -> str:
    endpoint.check_url(text)
    return text


def _without_secrets(url: str) -> str:
    """Return a URL without its user and its query string."""
    return re.sub(r"\?[^#]*", "?...", re.sub("//[^/@]*@", "//...@", url))


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not endpoint.HEADER_NAME.fullmatch(name):
        raise ValueError("must be Name=value, where Name is a valid name")
    endpoint.check_header_value(value)
    return name, value


def _without_value(header: str) -> str:
    """Return the name only. A likely mistake is `Authorization: Bearer ...`, with a secret."""
    name = endpoint.HEADER_NAME.match(header)
    return f"{name[0] if name else ''}..."


def _token_url(text: str) -> str:
    if text:
        endpoint.check_host(text)
    return text


def _identity(text: str) -> endpoint.Identity | None:
    return choice(*endpoint.IDENTITIES).parse(text) if text else None


def _freshness(text: str) -> float | None:
    return None if text == "auto" else duration().parse(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus(Group):
    """Where Prometheus is, and how the adapter authenticates to it."""

    TITLE = "Prometheus"

    url: str = flag(
        "prometheus-url",
        FlagType(name="url", parse=_url, redact=_without_secrets),
        "Base URL of Prometheus, without /api/v1. Its query string, such as `nocache=1`, is sent "
        "with each request.",
        default="https://localhost",
    )
    verb: Literal["GET", "POST"] = flag(
        "prometheus-verb",
        choice("GET", "POST"),
        "HTTP method of requests to Prometheus: GET or POST.",
        default="GET",
    )
    headers: tuple[tuple[str, str], ...] = flag(
        "prometheus-header",
        repeated("string", _header, redact=_without_value),
        "HTTP header of requests to Prometheus, as `Name=value`. Repeatable.",
    )
    timeout: float = flag(
        "prometheus-timeout",
        duration(positive=True),
        "Maximum duration of a request to Prometheus.",
        default="30s",
    )
    query_freshness: float | None = flag(
        "query-freshness",
        FlagType(name="duration", parse=_freshness),
        "Time for which the result of a query answers later requests; the timestamp of a value "
        "tells its age. `auto` means 1s, stretched to fifty times the duration of the query, at "
        "most 5s. With 0, each request is queried, as in the original. A rule may set its own "
        "`freshness`.",
        default="auto",
    )
    allow_partial_responses: bool = flag(
        "allow-partial-responses",
        SWITCH,
        "Serve values that lack what Prometheus says that its response lacks, as while a storage "
        "node is down. Without it, requests for them fail, except those for the metrics of all "
        "selected pods. A rule may set its own `allowPartialResponse`.",
        default="false",
    )
    token_file: str | None = flag(
        "prometheus-token-file",
        FILE,
        "File with the bearer token for Prometheus, reread every minute. An Authorization header "
        "in --prometheus-header, or a user in --prometheus-url, takes precedence.",
    )
    username_file: str | None = flag(
        "prometheus-username-file",
        FILE,
        "File with the user name for basic authentication to Prometheus, reread every minute. "
        "Requires --prometheus-password-file.",
    )
    password_file: str | None = flag(
        "prometheus-password-file",
        FILE,
        "File with the password of the user in --prometheus-username-file, reread every minute.",
    )
    oauth2_token_url: str = flag(
        "prometheus-oauth2-token-url",
        FlagType(name="url", parse=_token_url, redact=_without_secrets),
        "URL of the token server that issues bearer tokens for Prometheus, by the client "
        "credentials grant of OAuth 2.0. Requires a client ID and a client secret.",
    )
    oauth2_client_id: str = flag(
        "prometheus-oauth2-client-id", STRING, "Client ID for the token server."
    )
    oauth2_client_secret_file: str | None = flag(
        "prometheus-oauth2-client-secret-file",
        FILE,
        "File with the client secret for the token server, reread for each token.",
    )
    oauth2_parameters: tuple[tuple[str, str], ...] = flag(
        "prometheus-oauth2-parameter",
        repeated("string", _header, redact=_without_value),
        "Parameter of requests to the token server, as `Name=value`, such as `scope=metrics.read`. "
        "Repeatable.",
    )
    oauth2_ca_file: str | None = flag(
        "prometheus-oauth2-ca-file",
        FILE,
        "PEM file with the CAs of the token server, reread every minute. Without it, the CAs of "
        "the operating system.",
    )
    identity: Literal["aws", "azure", "google"] | None = flag(
        "prometheus-identity",
        FlagType(name="string", parse=_identity),
        "Authenticate to Prometheus with the identity of the pod in a cloud: aws (Signature "
        "Version 4), azure or google. Requires an image with the libraries of the clouds.",
    )
    aws_region: str | None = flag(
        "prometheus-aws-region",
        FILE,
        "Region of the Prometheus in AWS. Without it, that of the environment.",
    )
    aws_profile: str | None = flag(
        "prometheus-aws-profile",
        FILE,
        "Profile in the configuration file of AWS, such as one with a role to assume.",
    )
    header_files: tuple[tuple[str, str], ...] = flag(
        "prometheus-header-file",
        repeated("string", _header, redact=_without_value),
        "HTTP header of requests to Prometheus, as `Name=file`: the file has its value, and is "
        "reread every minute. Repeatable.",
    )
    ca_file: str | None = flag(
        "prometheus-ca-file",
        FILE,
        "PEM file with the CAs that may have signed the certificate of Prometheus, reread every "
        "minute. Without it, the CA of --prometheus-auth-config or --prometheus-auth-incluster, "
        "else the CAs of the operating system.",
    )
    client_cert_file: str | None = flag(
        "prometheus-client-tls-cert-file",
        FILE,
        "PEM file with the client certificate for Prometheus, reread every minute. Requires "
        "--prometheus-client-tls-key-file.",
    )
    client_key_file: str | None = flag(
        "prometheus-client-tls-key-file",
        FILE,
        "PEM file with the private key of --prometheus-client-tls-cert-file.",
    )
    auth_in_cluster: bool = flag(
        "prometheus-auth-incluster",
        SWITCH,
        "Authenticate to Prometheus with the token of the pod's service account, and trust the CA "
        "of the cluster. --prometheus-token-file and --prometheus-ca-file take precedence.",
        default="false",
    )
    auth_config: str | None = flag(
        "prometheus-auth-config",
        FILE,
        "Kubeconfig with the credentials for Prometheus and the CA to trust; its server address "
        "is not used. The flags for a token, a CA and a client certificate take precedence.",
    )

    def problems(self) -> Iterator[str]:
        """Yield conflicts between credentials."""
        if self.auth_in_cluster and self.auth_config:
            yield (
                f"--prometheus-auth-config={self.auth_config}: conflicts with "
                "--prometheus-auth-incluster; remove one of them"
            )
        for given, missing in endpoint.incomplete(self):
            yield f"{self._flag(given)}: needs {self._flag(missing)}"
        for field, other in endpoint.conflicts(self):
            yield f"{self._flag(field)}: conflicts with {self._flag(other)}; remove one of them"

    def notices(self) -> Iterator[str]:
        """Yield a notice if credentials are never sent, or sent in plain text."""
        if any(name.lower() == "authorization" for name, _ in self.headers):
            reason = "the Authorization header in --prometheus-header takes precedence"
        elif urllib.parse.urlsplit(self.url).username is not None:
            reason = "the user in --prometheus-url takes precedence"
        else:
            reason = ""
        ways = endpoint.authorizations(self)
        if reason:
            yield from (f"{self._flag(each)}: has no effect: {reason}" for each in ways)
        elif (ways or self.auth_in_cluster) and endpoint.is_plain_text(self.url):
            flag = self._flag(next(iter(ways), "auth_in_cluster"))
            yield (
                f"--prometheus-url={_without_secrets(self.url)}: is not https, so everybody on the "
                f"path can read the credentials of {flag}; use https"
            )
        if endpoint.is_plain_text(self.oauth2_token_url):
            yield (
                "--prometheus-oauth2-token-url: is not https, so everybody on the path can read "
                "the client secret; use https"
            )

    def _flag(self, field: str) -> str:
        """Return the flag that sets a field."""
        return next(f"--{flag.name}" for name, flag in fields_of(type(self)) if name == field)
