"""What a request asks for, read from its URL once, exactly as Kubernetes' RequestInfo reads it.

Pure: authorization needs every field before any handler runs. What is wrong with a list option is
kept (`options_error`, `timeout_error`) and raised by whoever comes to that option, because
Kubernetes refuses each at its own stage.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote_to_bytes

from rules import quantity
from rules.errors import DurationError, SelectorError
from rules.quoting import quote
from rules.selectors import selectors

REMEMBERED = 2048
"""How many URLs are kept, each of them at most as many characters long as `_LONGEST_KEPT`."""
_LONGEST_KEPT = 2048

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INTEGER = re.compile(r"[+-]?[0-9]+")

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class MalformedError(Exception):
    """A URL that Go's parser refuses, so that no handler ever sees the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """One request. Text that is not UTF-8 carries its bytes as lone surrogates."""

    method: str
    path: str
    """Percent-decoded; nothing is cleaned."""
    query: Mapping[str, tuple[str, ...]]

    is_resource_request: bool
    verb: str
    group: str
    version: str
    namespace: str
    resource: str
    subresource: str
    name: str
    parts: tuple[str, ...]
    """The path from the resource on, its namespace left out."""

    label_selector: str
    field_selector: str
    metric_label_selector: str
    watch: bool
    limit: int
    timeout_seconds: int | None
    options_error: str
    """Why the list options are no list options, selectors aside; empty when they are."""

    timeout: float | None
    """`?timeout=` in seconds; None leaves the server's own."""
    timeout_error: str
    pretty: bool | None
    """`?pretty=`; None leaves it to the headers."""

    @property
    def below_version(self) -> tuple[str, ...]:
        """The segments below `/apis/GROUP/VERSION`, empty ones included."""
        return tuple(self.path.split("/")[4:])


def parse(raw_path: str, raw_query: str = "", method: str = "GET") -> RequestInfo:
    """The Ask of a request line's target, cut at the first `?`. Raises MalformedError.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go
    """
    if len(raw_path) + len(raw_query) > _LONGEST_KEPT:
        return _parse(raw_path, raw_query, method)
    return _remembered(raw_path, raw_query, method)


def _parse(raw_path: str, raw_query: str, method: str) -> RequestInfo:
    path = _decoded_path(raw_path)
    query = _decoded_query(raw_query)
    timeout, timeout_error = _timeout(_first(query, "timeout"))
    limit, timeout_seconds, options_error = _integers(query)
    pretty = _first(query, "pretty")
    return RequestInfo(
        method=method,
        path=path,
        query=query,
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        metric_label_selector=_first(query, "metricLabelSelector"),
        watch=_truthy(query, "watch"),
        limit=limit,
        timeout_seconds=timeout_seconds,
        options_error=options_error,
        timeout=timeout,
        timeout_error=timeout_error,
        pretty=pretty in _TRUE if pretty else None,
        **_request_info(path, query, method, options_error),
    )


_remembered = functools.lru_cache(maxsize=REMEMBERED)(_parse)


def _decoded_path(raw: str) -> str:
    origin = _ORIGIN.match(raw)
    if origin:
        raw = raw[origin.end() :]
    if _BAD_ESCAPE.search(raw) or _CONTROL.search(raw):
        raise MalformedError(raw)
    return _unquoted(raw)


def _decoded_query(raw: str) -> Mapping[str, tuple[str, ...]]:
    """Pairs that are malformed are dropped, as Go's `URL.Query` drops them."""
    found: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        found.setdefault(_unquoted(key), []).append(_unquoted(value))
    return MappingProxyType({key: tuple(values) for key, values in found.items()})


def _unquoted(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")


def _first(query: Mapping[str, tuple[str, ...]], key: str) -> str:
    return query.get(key, ("",))[0]


def _truthy(query: Mapping[str, tuple[str, ...]], key: str) -> bool:
    return key in query and query[key][0].lower() not in {"false", "0"}


def _integers(query: Mapping[str, tuple[str, ...]]) -> tuple[int, int | None, str]:
    found: dict[str, int] = {}
    for key in ("timeoutSeconds", "limit"):
        if key not in query:
            continue
        text = query[key][0]
        if not _INTEGER.fullmatch(text):
            return 0, None, f"strconv.ParseInt: parsing {quote(text)}: invalid syntax"
        # int() itself refuses text of thousands of digits; none of them is in range.
        found[key] = int(text) if len(text.lstrip("+-0")) <= 19 else 1 << 64
        if not -(1 << 63) <= found[key] < 1 << 63:
            return 0, None, f"strconv.ParseInt: parsing {quote(text)}: value out of range"
    return found.get("limit", 0), found.get("timeoutSeconds"), ""


def _timeout(text: str) -> tuple[float | None, str]:
    if not text:
        return None, ""
    try:
        return quantity.go_duration(text) / 1e9, ""
    except DurationError as error:
        return None, f"invalid timeout specified in the request URL - {error}"


def _request_info(
    path: str, query: Mapping[str, tuple[str, ...]], method: str, options_error: str
) -> dict[str, Any]:
    info: dict[str, Any] = {
        "is_resource_request": False,
        "verb": method.lower(),
        "group": "",
        "version": "",
        "namespace": "",
        "resource": "",
        "subresource": "",
        "name": "",
        "parts": (),
    }
    segments = path.strip("/").split("/")
    if segments[0] == "api" and len(segments) >= 3:
        _, version, *rest = segments
    elif segments[0] == "apis" and len(segments) >= 4:
        _, info["group"], version, *rest = segments
    else:
        return info
    info |= {"is_resource_request": True, "version": version, "verb": _VERBS.get(method, "")}
    if rest[0] in {"proxy", "watch"}:
        info["verb"] = rest.pop(0)
    if len(rest) > 1 and rest[0] == "namespaces":
        info["namespace"] = rest[1]
        if len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            rest = rest[2:]
    padded = (*rest, "", "", "")
    info |= {"parts": tuple(rest), "resource": padded[0], "name": padded[1]}
    if info["verb"] != "proxy":
        info["subresource"] = padded[2]
    if not info["name"] and info["verb"] == "get":
        info["verb"] = "watch" if _truthy(query, "watch") else "list"
        if not options_error:
            info["name"] = _selected_name(query)
    elif not info["name"] and info["verb"] == "delete":
        info["verb"] = "deletecollection"
    return info


def _selected_name(query: Mapping[str, tuple[str, ...]]) -> str:
    """The one name that the field selector allows; empty when a selector does not parse."""
    text = _first(query, "fieldSelector")
    if not text:
        return ""
    try:
        selectors.parse(_first(query, "labelSelector"))
        requirements = selectors.parse_fields(text)
    except SelectorError:
        return ""
    for requirement in requirements:
        if requirement.field == "metadata.name" and requirement.operator == "=":
            value = requirement.value
            return "" if value in {".", ".."} or "/" in value or "%" in value else value
    return ""
