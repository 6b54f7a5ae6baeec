"""Flags for the connection to Prometheus."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.settings.flag import (
    FILE,
    STRING,
    SWITCH,
    Flag,
    FlagGroup,
    FlagType,
    choice,
    duration,
    repeated,
)
from rules import connection
from rules.connection import PrometheusConnection
from rules.findings import Finding


def _url(text: str) -> str:
    connection.check_url(text)
    return text


def _without_secrets(url: str) -> str:
    """Return a URL without its user and its query string."""
    return re.sub(r"\?[^#]*", "?...", re.sub("//[^/@]*@", "//...@", url))


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not connection.HEADER_NAME.fullmatch(name):
        raise ValueError("must be Name=value, where Name is a valid name")
    connection.check_header_value(value)
    return name, value


def _without_value(header: str) -> str:
    """Return the name only. A likely mistake is `Authorization: Bearer ...`, with a secret."""
    name = connection.HEADER_NAME.match(header)
    return f"{name[0] if name else ''}..."


def _token_url(text: str) -> str:
    if text:
        connection.check_host(text)
    return text


def _identity(text: str) -> connection.Identity | None:
    return choice(*connection.IDENTITIES).parse(text) if text else None


_HEADER = repeated("string", _header, redact=_without_value)
_TYPES: Mapping[connection.Kind, FlagType[Any]] = {
    "url": FlagType(name="url", parse=_url, redact=_without_secrets),
    "token url": FlagType(name="url", parse=_token_url, redact=_without_secrets),
    "verb": choice(*connection.VERBS),
    "headers": _HEADER,
    "files": _HEADER,
    "duration": duration(positive=True),
    "text": STRING,
    "file": FILE,
    "identity": FlagType(name="string", parse=_identity),
    "switch": SWITCH,
}
_FLAGS = {
    field: Flag(
        name=f"prometheus-{option.flag or field.replace('_', '-')}",
        type=_TYPES[option.kind],
        help=option.help,
        default=option.default,
    )
    for field, option in connection.OPTIONS.items()
}


def flag_of(field: str) -> str:
    """Return the flag that sets a field of Connection."""
    return f"--{_FLAGS[field].name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings(PrometheusConnection, FlagGroup):
    """The Prometheus that rules without a `source` use."""

    TITLE = "Prometheus"

    @classmethod
    def flags(cls) -> Iterable[tuple[str, Flag[Any]]]:
        """Return the flag of each option of a connection."""
        return _FLAGS.items()

    def problems(self) -> Iterator[Finding]:
        """Yield conflicts between credentials."""
        if self.auth_in_cluster and self.auth_config:
            yield Finding(
                subject=f"--prometheus-auth-config={self.auth_config}",
                fact="conflicts with --prometheus-auth-incluster; remove one of them",
            )
        for given, missing in connection.incomplete(self):
            yield Finding(subject=flag_of(given), fact=f"needs {flag_of(missing)}")
        for field, other in connection.conflicts(self):
            yield Finding(
                subject=flag_of(field), fact=f"conflicts with {flag_of(other)}; remove one of them"
            )

    def notices(self) -> Iterator[str]:
        """Yield a notice if credentials are never sent, or sent in plain text."""
        if any(name.lower() == "authorization" for name, _ in self.headers):
            reason = "the Authorization header in --prometheus-header takes precedence"
        elif urllib.parse.urlsplit(self.url).username is not None:
            reason = "the user in --prometheus-url takes precedence"
        else:
            reason = ""
        ways = connection.authorizations(self)
        if reason:
            yield from (f"{flag_of(each)}: has no effect: {reason}" for each in ways)
        elif (ways or self.auth_in_cluster) and connection.is_plain_text(self.url):
            flag = flag_of(next(iter(ways), "auth_in_cluster"))
            yield (
                f"--prometheus-url={_without_secrets(self.url)}: is not https, so everybody on the "
                f"path can read the credentials of {flag}; use https"
            )
        if connection.is_plain_text(self.oauth2_token_url):
            yield (
                "--prometheus-oauth2-token-url: is not https, so everybody on the path can read "
                "the client secret; use https"
            )
