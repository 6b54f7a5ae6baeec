"""Parses `sources`: the Prometheus servers that rules can name, besides the one of the flags.

Secrets are in files, never in the rules file itself, which many people can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rules import connection
from rules.connection import PrometheusConnection
from rules.document.schema import Fields
from rules.document.where import Where, where_of
from rules.document.yaml import MappingEntry, MappingNode, Scalar, is_null
from rules.findings import State

DEFAULT = "default"
"""Name of the Prometheus of the flags."""
EMBEDDED = "embedded"
"""Name of the Prometheus in the adapter's own pod, which presets read."""
FILLING = "embedded-filling"
"""Source of rules that no Prometheus has data of the whole window for: their queries fail."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""As of objects in Kubernetes: it is part of metrics and of a path below /readyz."""
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource(PrometheusConnection):
    """One entry of `sources`: a Prometheus with a name."""

    name: str
    where: Where = field(repr=False, compare=False)


def parse(top: Fields) -> tuple[PrometheusSource, ...]:
    """Parse `sources` of a rules file."""
    return tuple(_source(top, *each) for each in top.entries("sources"))


def _source(top: Fields, path: str, entry: MappingEntry) -> PrometheusSource:
    name = entry.key.text
    if name in {DEFAULT, EMBEDDED, FILLING}:
        flag = "--prometheus-url" if name == DEFAULT else "--embedded-prometheus-url"
        message = f"the {name} source is that of {flag}: choose another name"
        top.record.report(State.FAILURE, path, entry.key, message)
    elif not _NAME.fullmatch(name):
        message = "the name must have lower-case letters, digits and hyphens, at most 63"
        top.record.report(State.FAILURE, path, entry.key, message)
    record = top.record.below(path)
    fields = Fields(record, entry.value, known=[*map(key_of, connection.OPTIONS)])
    values = {each: _value(fields, each, entry) for each in connection.OPTIONS}
    source = PrometheusSource(name=name, where=where_of(record, entry.value), **values)
    _check_conflicts(fields, source)
    return source


def _value(fields: Fields, name: str, entry: MappingEntry) -> Any:
    """Return the value of one option, or its default."""
    key, option = key_of(name), connection.OPTIONS[name]
    match option.kind:
        case "url":
            return _url(fields, entry)
        case "token url":
            return _token_url(fields)
        case "verb":
            return fields.choice(key, connection.VERBS)
        case "identity":
            return fields.choice(key, connection.IDENTITIES) if fields.get(key) else None
        case "headers" | "files" as kind:
            return tuple(_headers(fields, key, secret=kind == "files"))
        case "duration":
            return _seconds(fields, key) or option.value
        case "switch":
            return bool(fields.flag(key))
        case "text":
            return fields.text(key)
        case "file":
            return fields.text(key) or None


def _seconds(fields: Fields, key: str) -> float | None:
    nanoseconds = fields.duration(key)
    if nanoseconds == 0:
        fields.error(key, "must be longer than 0s")
    return nanoseconds / 1e9 if nanoseconds else None


def _url(fields: Fields, entry: MappingEntry) -> str:
    if fields.get("url") is None:
        if isinstance(entry.value, MappingNode) or is_null(entry.value):
            fields.record.report(
                State.FAILURE, "", entry.value, "has no url: add that of a Prometheus"
            )
        return ""
    text = fields.text("url")
    try:
        user = connection.check_url(text).username
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
            connection.check_host(text)
    except ValueError as error:
        fields.error("oauth2TokenUrl", str(error))
    return text


def _headers(fields: Fields, key: str, *, secret: bool) -> Iterator[tuple[str, str]]:
    """Yield the entries of a mapping whose keys are headers; `secret` ones are in files."""
    for path, entry in fields.entries(key):
        name = entry.key.text
        value = entry.value.text if isinstance(entry.value, Scalar) else ""
        problem = "" if isinstance(entry.value, Scalar) else "must be text"
        if not name or not connection.HEADER_NAME.fullmatch(name):
            problem = "is not a valid name of a header"
        elif name.lower() in SECRET_HEADERS and not secret:
            problem = "would be a secret in the rules file: put it into a file, and set headerFiles"
        try:
            connection.check_header_value(value)
        except ValueError as error:
            problem = problem or str(error)
        if problem:
            fields.record.report(State.FAILURE, path, entry.key, problem)
        yield name, value


def _check_conflicts(fields: Fields, source: PrometheusSource) -> None:
    if source.auth_in_cluster and source.auth_config:
        fields.error("authConfig", "conflicts with authInCluster: remove one of them")
    for given, missing in connection.incomplete(source):
        fields.error(key_of(given), f"needs {key_of(missing)}")
    for given, other in connection.conflicts(source):
        fields.error(key_of(given), f"conflicts with {key_of(other)}: remove one of them")


def key_of(field: str) -> str:
    """Return the key that sets a field of Connection."""
    first, *others = field.split("_")
    return first + "".join(map(str.title, others))
