"""Kubernetes' RequestInfo: what a request asks for, parsed once from its method and its URL.

Pure. Kubernetes rejects a malformed list option or timeout only where it uses the value. Therefore
`parse` keeps such errors in `options_error` and `timeout_error`, and the caller raises them. What
exceeds a limit is rejected here, before anything decodes or expands it.

https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote_to_bytes

from adapter import errors
from rules import quantity
from rules.errors import DurationError, SelectorError
from rules.names import is_path_segment
from rules.quoting import quote_shortened, shorten
from rules.selectors import selectors
from rules.selectors.fields import FieldRequirement, parse_fields
from rules.selectors.selectors import Selector

MAX_PATH = 64 << 10
"""Characters of a path as it is sent. A path of Kubernetes names is shorter than 2 KiB."""
MAX_SELECTOR = 64 << 10
"""Characters of a decoded selector. It takes 20 ms to parse."""
MAX_SELECTOR_TERMS = 1000
"""Requirements and values of a selector. Each takes up to 10 µs to parse."""
MAX_PARAMETERS = 1000
"""Parameters of a query; Kubernetes has 15."""
_MAX_PARAMETER = 3 * MAX_SELECTOR + 64
"""Characters of a key and a value as they are sent: a selector of which each byte is escaped."""
_MAX_TIMEOUT = 64
"""Characters; the longest duration that Go writes has 23."""
_SIZE = 3072
"""Bytes of a RequestInfo beside its text."""
_SEGMENT_SIZE = 200
"""Bytes of a segment of its path."""
_PART_SIZE = 450
"""Bytes of a key or value of the query, or of a requirement or value of a selector."""
_SELECTORS = ("labelSelector", "fieldSelector", "metricLabelSelector")

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
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

_Query = Mapping[str, tuple[str, ...]]


class MalformedError(Exception):
    """URL that Go's `url.Parse` rejects."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestInfo:
    """A parsed request, compared by identity.

    Bytes that are not UTF-8 are lone surrogates in all text fields.
    """

    path: str
    """Percent-decoded, otherwise unchanged."""
    query: _Query

    verb: str
    """Kubernetes' verb; for a non-resource request the HTTP method in lower case."""
    is_resource_request: bool = False
    is_list: bool = False
    """Whether it is a list or a watch of objects, by the method and not by the path."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name_in_path: str = ""
    parts: tuple[str, ...] = ()
    """The path segments from the resource on, without the namespace."""

    label_selector: str
    field_selector: str
    metric_label_selector: str
    watch: bool
    options_error: str
    """Why `limit` or `timeoutSeconds` is not an int64; empty if both are."""

    timeout: float | None
    """`?timeout=` in seconds; None if absent or malformed."""
    timeout_error: str
    pretty: bool | None
    """`?pretty=`; None if the headers decide."""

    @functools.cached_property
    def name(self) -> str:
        """The name in the path; without one, the name that the field selector of a list requires.

        A selector that cannot be parsed requires none.
        """
        if self.name_in_path or self.options_error or not self.is_list or not self.field_selector:
            return self.name_in_path
        try:
            _ = self.labels
            names = [
                each.value
                for each in self.fields
                if each.field == "metadata.name" and each.operator == "="
            ]
        except SelectorError:
            return ""
        return names[0] if names and is_path_segment(names[0]) else ""

    @functools.cached_property
    def size(self) -> int:
        """Estimated bytes, with what is parsed from it and with `without_namespace`."""
        selectors = (self.label_selector, self.field_selector, self.metric_label_selector)
        texts = [self.path, *self.query, *itertools.chain(*self.query.values())]
        return (
            _SIZE
            + _SEGMENT_SIZE * self.path.count("/")
            + _PART_SIZE * (len(texts) + sum(text.count(",") for text in selectors))
            + 3 * sum(map(sys.getsizeof, texts))
        )

    @functools.cached_property
    def meaning(self) -> tuple[str, ...]:
        """What a document can follow from: not all of the URL."""
        return (
            self.path,
            *self.query.get("includeObject", ())[:1],
            self.namespace,
            self.label_selector,
            self.field_selector,
            self.metric_label_selector,
        )

    @functools.cached_property
    def without_namespace(self) -> RequestInfo:
        """The same request at cluster scope; always the same object."""
        return replace(self, namespace="")

    @functools.cached_property
    def labels(self) -> Selector:
        """The label selector, parsed. Raises SelectorError."""
        return selectors.parse(self.label_selector)

    @functools.cached_property
    def metric_labels(self) -> Selector:
        """The metric label selector, parsed. Raises SelectorError."""
        return selectors.parse(self.metric_label_selector)

    @functools.cached_property
    def fields(self) -> tuple[FieldRequirement, ...]:
        """The field selector, parsed. Raises SelectorError."""
        return parse_fields(self.field_selector)

    @functools.cached_property
    def below_version(self) -> tuple[str, ...]:
        """The path segments below `/apis/GROUP/VERSION`, including empty ones."""
        return tuple(self.path.split("/")[4:])


def parse(raw_path: str, raw_query: str = "", method: str = "GET") -> RequestInfo:
    """Parse a request target that was split at its first `?`.

    Raises MalformedError, and ApiError (400) for a target that exceeds a limit.
    """
    if len(raw_path) > MAX_PATH:
        raise _too_large("the path of the request", len(raw_path), MAX_PATH, "characters")
    path = _decode_path(raw_path)
    query = _decode_query(raw_query)
    for key in _SELECTORS:
        _check_selector(key, _first(query, key))
    timeout, timeout_error = _timeout(_first(query, "timeout"))
    pretty = _first(query, "pretty")
    return RequestInfo(
        path=path,
        query=query,
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        metric_label_selector=_first(query, "metricLabelSelector"),
        watch=_is_true(query, "watch"),
        options_error=_integer_error(query),
        timeout=timeout,
        timeout_error=timeout_error,
        pretty=pretty in _TRUE if pretty else None,
        **_path_fields(path, query, method),
    )


def _decode_path(raw: str) -> str:
    origin = _ORIGIN.match(raw)
    if origin:
        raw = raw[origin.end() :]
    if BAD_ESCAPE.search(raw) or _CONTROL.search(raw):
        raise MalformedError(raw)
    return unquote(raw)


def _decode_query(raw: str) -> _Query:
    """Decode a query; malformed pairs are dropped, as Go's `URL.Query` drops them."""
    if (count := raw.count("&") + 1) > MAX_PARAMETERS:
        raise _too_large("the query of the request", count, MAX_PARAMETERS, "parameters")
    values: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if len(pair) > _MAX_PARAMETER:
            key = unquote(shorten(pair.partition("=")[0]))
            raise _too_large(key, len(pair), _MAX_PARAMETER, "characters")
        if not pair or ";" in pair or BAD_ESCAPE.search(pair):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        values.setdefault(unquote(key), []).append(unquote(value))
    return MappingProxyType({key: tuple(each) for key, each in values.items()})


def _check_selector(key: str, text: str) -> None:
    """Raise ApiError (400) if a selector is too long, or has too many terms between its commas."""
    if len(text) > MAX_SELECTOR:
        raise _too_large(key, len(text), MAX_SELECTOR, "characters")
    if (terms := text.count(",") + 1) > MAX_SELECTOR_TERMS:
        raise _too_large(key, terms, MAX_SELECTOR_TERMS, "requirements and values")


def _too_large(what: str, size: int, limit: int, unit: str) -> errors.ApiError:
    return errors.bad_request(f"{what} has {size} {unit}; at most {limit} are accepted")


def unquote(text: str) -> str:
    """Percent-decode `text`; bytes that are not UTF-8 become lone surrogates."""
    raw = text.encode("utf-8", "surrogateescape")
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")


def _first(query: _Query, key: str) -> str:
    return query.get(key, ("",))[0]


def _is_true(query: _Query, key: str) -> bool:
    return key in query and query[key][0].lower() not in {"false", "0"}


def _integer_error(query: _Query) -> str:
    """Return Go's error for the first int64 option that cannot be parsed, else an empty string."""
    for key in ("timeoutSeconds", "limit"):
        if key not in query:
            continue
        text = query[key][0]
        if not _INTEGER.fullmatch(text):
            return f"strconv.ParseInt: parsing {quote_shortened(text)}: invalid syntax"
        # int() raises ValueError for more than 4300 digits, leading zeros included.
        digits = text.lstrip("+-0") or "0"
        maximum = 1 << 63 if text.startswith("-") else (1 << 63) - 1
        if len(digits) > 19 or int(digits) > maximum:
            return f"strconv.ParseInt: parsing {quote_shortened(text)}: value out of range"
    return ""


def _timeout(text: str) -> tuple[float | None, str]:
    """Return the seconds of a Go duration, or None and Kubernetes' error message."""
    if not text:
        return None, ""
    if len(text) > _MAX_TIMEOUT:
        problem = f"it has {len(text)} characters; at most {_MAX_TIMEOUT} are accepted"
        return None, f"invalid timeout specified in the request URL - {problem}"
    try:
        return quantity.go_duration(text) / 1e9, ""
    except DurationError as error:
        return None, f"invalid timeout specified in the request URL - {error}"


def _path_fields(path: str, query: _Query, method: str) -> dict[str, Any]:
    """Return the fields of RequestInfo that follow from the path."""
    fields: dict[str, Any] = {"verb": method.lower()}
    segments = path.strip("/").split("/")
    if segments[0] == "api" and len(segments) >= 3:
        _, version, *rest = segments
    elif segments[0] == "apis" and len(segments) >= 4:
        _, fields["group"], version, *rest = segments
    else:
        return fields
    fields |= {"is_resource_request": True, "version": version, "verb": _VERBS.get(method, "")}
    if rest[0] in {"proxy", "watch"}:
        fields["verb"] = rest.pop(0)
    if len(rest) > 1 and rest[0] == "namespaces":
        fields["namespace"] = rest[1]
        if len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    fields |= {"parts": tuple(rest), "resource": resource, "name_in_path": name}
    if fields["verb"] != "proxy":
        fields["subresource"] = subresource
    if not name and fields["verb"] == "get":
        fields["is_list"] = True
        fields["verb"] = "watch" if _is_true(query, "watch") else "list"
    elif not name and fields["verb"] == "delete":
        fields["verb"] = "deletecollection"
    return fields
