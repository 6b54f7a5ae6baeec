"""Checks of the URL and the headers of a Prometheus, as flags and rules files have them."""

from __future__ import annotations

import re
import urllib.parse

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
"""RFC 9110, 5.1; also empty."""
_OF_ENDPOINT = re.compile(
    r"(/api/v1(/(query|query_range|series|labels|metadata|read|write|remote_write))?|/graph)/*$"
)
"""End of the path of a URL below the base URL of a Prometheus."""


def check_url(text: str) -> urllib.parse.SplitResult:
    """Return the parts of the base URL of a Prometheus. Raises ValueError for any other text."""
    message = "must be an http or https URL with a host"
    try:
        url = urllib.parse.urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError as error:
        raise ValueError(message) from error
    if not valid:
        raise ValueError(message)
    if found := _OF_ENDPOINT.search(url.path):
        raise ValueError(f"must be the base URL of Prometheus: remove {found[0]} from its end")
    return url


def is_plain_text(url: str) -> bool:
    """Return whether requests to a URL that `check_url` accepts are not encrypted."""
    return urllib.parse.urlsplit(url).scheme == "http"


def check_header_value(value: str) -> None:
    """Raise ValueError for what HTTP does not allow as the value of a header (RFC 9110, 5.5)."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise ValueError("the value contains a control character")
