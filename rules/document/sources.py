"""Parses `sources`: the Prometheus servers that rules can name, besides the one of the flags.

Secrets are in files, never in the rules file itself, which many people can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from rules import endpoint
from rules.document.schema import Fields
from rules.document.where import Where, where_of
from rules.document.yaml import Entry, MappingNode, Scalar, is_null

DEFAULT = "default"
"""Name of the Prometheus of the flags."""

Verb = Literal["GET", "POST"]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""As of objects in Kubernetes: it is part of metrics and of a path below /readyz."""
_KEYS = (
    "url",
    "verb",
    "headers",
    "headerFiles",
    "timeout",
    "tokenFile",
    "usernameFile",
    "passwordFile",
    "oauth2TokenUrl",
    "oauth2ClientId",
    "oauth2ClientSecretFile",
    "oauth2Parameters",
    "oauth2CaFile",
    "identity",
    "awsRegion",
    "awsProfile",
    "caFile",
    "clientCertFile",
    "clientKeyFile",
    "authInCluster",
    "authConfig",
)
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
_TIMEOUT = 30.0
"""Seconds; the default of --prometheus-timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource:
    """One entry of `sources`. Each field is what the flag of the same name sets for the default."""

    name: str
    url: str
    verb: Verb
    headers: tuple[tuple[str, str], ...]
    timeout: float
    """Seconds."""
    token_file: str | None
    username_file: str | None
    password_file: str | None
    oauth2_token_url: str
    oauth2_client_id: str
    oauth2_client_secret_file: str | None
    oauth2_parameters: tuple[tuple[str, str], ...]
    oauth2_ca_file: str | None
    identity: endpoint.Identity | None
    aws_region: str | None
    aws_profile: str | None
    header_files: tuple[tuple[str, str], ...]
    ca_file: str | None
    client_cert_file: str | None
    client_key_file: str | None
    auth_in_cluster: bool
    auth_config: str | None
    where: Where = field(repr=False, compare=False)


def parse(top: Fields) -> tuple[PrometheusSource, ...]:
    """Parse `sources` of a rules file."""
    return tuple(_source(top, *each) for each in top.entries("sources"))


def _source(top: Fields, path: str, entry: Entry) -> PrometheusSource:
    name = entry.key.text
    if name == DEFAULT:
        message = "the default source is that of --prometheus-url: choose another name"
        top.record.report("error", path, entry.key, message)
    elif not _NAME.fullmatch(name):
        message = "the name must have lower-case letters, digits and hyphens, at most 63"
        top.record.report("error", path, entry.key, message)
    record = top.record.below(path)
    fields = Fields(record, entry.value, known=_KEYS)
    timeout = fields.duration("timeout")
    if timeout == 0:
        fields.error("timeout", "must be longer than 0s")
    source = PrometheusSource(
        name=name,
        url=_url(fields, entry),
        verb=cast("Verb", fields.choice("verb", get_args(Verb))),
        headers=tuple(_headers(fields, "headers", secret=False)),
        timeout=timeout / 1e9 if timeout else _TIMEOUT,
        token_file=fields.text("tokenFile") or None,
        username_file=fields.text("usernameFile") or None,
        password_file=fields.text("passwordFile") or None,
        oauth2_token_url=_token_url(fields),
        oauth2_client_id=fields.text("oauth2ClientId"),
        oauth2_client_secret_file=fields.text("oauth2ClientSecretFile") or None,
        oauth2_parameters=tuple(_headers(fields, "oauth2Parameters", secret=True)),
        oauth2_ca_file=fields.text("oauth2CaFile") or None,
        identity=_identity(fields),
        aws_region=fields.text("awsRegion") or None,
        aws_profile=fields.text("awsProfile") or None,
        header_files=tuple(_headers(fields, "headerFiles", secret=True)),
        ca_file=fields.text("caFile") or None,
        client_cert_file=fields.text("clientCertFile") or None,
        client_key_file=fields.text("clientKeyFile") or None,
        auth_in_cluster=bool(fields.flag("authInCluster")),
        auth_config=fields.text("authConfig") or None,
        where=where_of(record, entry.value),
    )
    _check_conflicts(fields, source)
    return source


def _url(fields: Fields, entry: Entry) -> str:
    if fields.get("url") is None:
        if isinstance(entry.value, MappingNode) or is_null(entry.value):
            fields.record.report("error", "", entry.value, "has no url: add that of a Prometheus")
        return ""
    text = fields.text("url")
    try:
        user = endpoint.check_url(text).username
    except ValueError as error:
        fields.error("url", str(error))
        return ""
    if user is not None:
        fields.error("url", "contains a user: set usernameFile and passwordFile")
    return text


def _token_url(fields: Fields) -> str:
    text = fields.text("oauth2TokenUrl")
    try:
        if text:
            endpoint.check_host(text)
    except ValueError as error:
        fields.error("oauth2TokenUrl", str(error))
    return text


def _identity(fields: Fields) -> endpoint.Identity | None:
    if fields.get("identity") is None:
        return None
    return cast("endpoint.Identity", fields.choice("identity", endpoint.IDENTITIES))


def _headers(fields: Fields, key: str, *, secret: bool) -> Iterator[tuple[str, str]]:
    """Yield the entries of a mapping whose keys are headers; `secret` ones are in files."""
    for path, entry in fields.entries(key):
        name = entry.key.text
        value = entry.value.text if isinstance(entry.value, Scalar) else ""
        problem = "" if isinstance(entry.value, Scalar) else "must be text"
        if not name or not endpoint.HEADER_NAME.fullmatch(name):
            problem = "is not a valid name of a header"
        elif name.lower() in SECRET_HEADERS and not secret:
            problem = "would be a secret in the rules file: put it into a file, and set headerFiles"
        try:
            endpoint.check_header_value(value)
        except ValueError as error:
            problem = problem or str(error)
        if problem:
            fields.record.report("error", path, entry.key, problem)
        yield name, value


def _check_conflicts(fields: Fields, source: PrometheusSource) -> None:
    if source.auth_in_cluster and source.auth_config:
        fields.error("authConfig", "conflicts with authInCluster: remove one of them")
    for given, missing in endpoint.incomplete(source):
        fields.error(key_of(given), f"needs {key_of(missing)}")
    for given, other in endpoint.conflicts(source):
        fields.error(key_of(given), f"conflicts with {key_of(other)}: remove one of them")


def key_of(field: str) -> str:
    """Return the key that sets a field of PrometheusSource."""
    first, *others = field.split("_")
    return first + "".join(map(str.title, others))
