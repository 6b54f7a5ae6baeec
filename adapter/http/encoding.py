"""Encoding of API documents, byte for byte as Kubernetes writes them, and content negotiation.

Pure. A document is the JSON form of an API object with its keys in the order of Kubernetes; every
encoding is produced from that form. `PRODUCED` lists the encodings.
"""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

Document = Mapping[str, Any]

JSON = "application/json"
PRODUCED: tuple[str, ...] = (JSON,)
"""Media types of all encodings, the default first."""
MAX_ACCEPT = 4096
"""Characters of an Accept header; a longer one accepts nothing. Clients send less than 300, and
4 KiB take 10 ms."""
_MAX_REMEMBERED = 256
"""Accept headers whose negotiation is remembered, 1 MiB at most: it takes 10 µs."""
AGGREGATED = ("v2", "v2beta1")
"""Versions of apidiscovery.k8s.io in which aggregated discovery is served."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_DISCOVERY_GROUP = "apidiscovery.k8s.io"
_DISCOVERY_KIND = "APIGroupDiscoveryList"

_Clause = tuple[str, str, Mapping[str, str]]
"""Type, subtype and parameters of one clause of an Accept header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Outcome of content negotiation."""

    encoding: str
    """One of `PRODUCED`."""
    pretty: bool
    """Whether the Accept header says `pretty=1`."""
    aggregated: str = ""
    """One of `AGGREGATED` if aggregated discovery was requested, else empty."""

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        if not self.aggregated:
            return self.encoding
        return f"{self.encoding};g={_DISCOVERY_GROUP};v={self.aggregated};as={_DISCOVERY_KIND}"


def encode(document: Document, *, pretty: bool = False) -> bytes:
    r"""Encode like Go: compact with a newline at the end, or indented by two without one.

    `<`, `>`, `&`, U+2028 and U+2029 are escaped; bytes that are not UTF-8 become `\ufffd`.
    """
    try:
        body = orjson.dumps(document, option=orjson.OPT_INDENT_2 if pretty else None)
    except TypeError:
        # orjson refuses lone surrogates, which stand for bytes that are not UTF-8.
        layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
        text = json.dumps(document, ensure_ascii=False, **layout)
        body = _SURROGATE.sub(r"\\ufffd", text).encode()
    body = body.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    body = body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return body if pretty else body + b"\n"


def timestamp(seconds: float) -> str:
    """Format Unix seconds as RFC 3339 in UTC, rounded down to whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@functools.lru_cache(maxsize=_MAX_REMEMBERED)
def routable(accept: str, produced: tuple[str, ...] = PRODUCED) -> bool:
    """Return whether Kubernetes' router (go-restful) accepts an Accept header.

    The router ignores parameters. It accepts `*/*`, but not `application/*`.
    """
    types = (clause.partition(";")[0].strip(" ") for clause in (accept or "*/*").split(","))
    return any(each == "*/*" or each in produced for each in types)


@functools.lru_cache(maxsize=_MAX_REMEMBERED)
def negotiate(accept: str, *, aggregated: bool = False) -> Accepted | None:
    """Return the encoding that an Accept header prefers; None if it allows none.

    With `aggregated` only clauses that request aggregated discovery count. Kubernetes prefers
    these to all others, whatever their weights.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/negotiation/negotiate.go
    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/discovery/aggregated/wrapper.go
    """
    if not accept:
        return None if aggregated else Accepted(encoding=PRODUCED[0], pretty=False)
    for clause in _clauses(accept):
        for produced in PRODUCED:
            if not _matches(clause, produced):
                continue
            kind, subkind, parameters = clause
            if kind == "*" and subkind != "*":
                continue
            if not _parameters_allowed(parameters, aggregated=aggregated):
                continue
            return Accepted(
                encoding=produced,
                pretty=parameters.get("pretty") == "1",
                aggregated=parameters["v"] if aggregated else "",
            )
    return None


def accepts(accept: str, media_type: str) -> bool:
    """Return whether an Accept header allows `media_type`; parameters are ignored."""
    return any(_matches(clause, media_type) for clause in _clauses(accept or "*/*"))


def _clauses(accept: str) -> list[_Clause]:
    """Parse an Accept header; the most preferred clause is first, malformed ones are left out."""
    if len(accept) > MAX_ACCEPT:
        return []
    ranked = []
    for element in accept.split(","):
        media_type, *rest = element.strip(" ").split(";")
        kind, slash, subkind = (part.strip(" ") for part in media_type.partition("/"))
        if not slash and kind == "*":
            subkind = "*"
        if not subkind or "/" in subkind:
            continue
        pairs = (each.split("=") for each in rest)
        # A parameter without a value counts as absent.
        parameters = {
            pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]
        }
        weight = _weight(parameters.pop("q", "1"))
        ranked.append(((-weight, kind == "*", subkind == "*"), (kind, subkind, parameters)))
    return [clause for _, clause in sorted(ranked, key=lambda each: each[0])]


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if math.isfinite(weight) else 0.0


def _matches(clause: _Clause, media_type: str) -> bool:
    kind, _, subkind = media_type.partition("/")
    return clause[0] in (kind, "*") and clause[1] in (subkind, "*")


def _parameters_allowed(parameters: Mapping[str, str], *, aggregated: bool) -> bool:
    """Return whether a clause's parameters select what is served.

    There are no schema versions (`sv`) and no streams except `watch`. `g`, `v` and `as` select
    aggregated discovery.
    """
    if parameters.get("sv") or parameters.get("stream", "") not in {"", "watch"}:
        return False
    if not aggregated:
        return parameters.keys().isdisjoint({"as", "g", "v"})
    requested = (parameters.get("g"), parameters.get("as"))
    return requested == (_DISCOVERY_GROUP, _DISCOVERY_KIND) and parameters.get("v") in AGGREGATED
