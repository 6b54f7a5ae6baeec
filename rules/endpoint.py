"""Checks of the URL, headers and credentials of a Prometheus, as flags and rules files have them.

`connection` has the fields of `PrometheusSource`, which those of the flags have, too.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

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


Identity = Literal["aws", "azure", "google"]
IDENTITIES: Sequence[Identity] = get_args(Identity)
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


def authorizations(connection: object) -> Sequence[str]:
    """Return the fields of `connection` that set the Authorization header, except headers."""
    return [field for field in _AUTHORIZATIONS if getattr(connection, field)]


def incomplete(connection: object) -> Iterator[tuple[str, str]]:
    """Yield each field of `connection` that is set without one that it needs, and that one."""
    for given, needed in _NEEDS:
        if getattr(connection, given) and not getattr(connection, needed):
            yield given, needed


def conflicts(connection: object) -> Iterator[tuple[str, str]]:
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
