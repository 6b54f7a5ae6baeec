"""Content negotiation: which encoding and which form of an object an Accept header prefers.

Pure. The encodings are in `apimachinery.encoding`.

https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/negotiation/negotiate.go
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import hdrs

from adapter import bounds
from adapter.errors import ApiError, bad_request
from adapter.server.apimachinery.encoding import JSON, PRODUCED, PROTOBUF
from adapter.server.apimachinery.request_info import RequestInfo

MAX_ACCEPT = 4096
"""Characters of an Accept header; a longer one accepts nothing. Clients send less than 300, and
4 KiB take 0.3 ms."""
_MAX_CLAUSES = 64
"""Clauses of an Accept header that are parsed; the rest is ignored. Clients send less than ten, and
all that fit into 4 KiB take 6 ms, also for clients that are not authenticated."""
STREAMED: tuple[str, ...] = (JSON, PROTOBUF)
"""Media types that accept the parameter `stream=watch`. Nothing is streamed."""
_MAX_TRANSFORMS_PER_HEADER = 4
"""Sets of transformations for which the same header is negotiated."""

_HUMAN_CLIENTS = ("curl", "Wget", "Mozilla/5.0")

_Clause = tuple[str, str, Mapping[str, str]]
"""Type, subtype and parameters of one clause of an Accept header."""
_Rank = tuple[float, bool, bool]
"""Negative weight of a clause, whether its type is `*`, and whether its subtype is."""
_MAX_INSERTION = 12


class Transform(NamedTuple):
    """Other form of an object, requested with the parameters `as`, `g` and `v` of a clause.

    A named tuple, because it is part of the key of encoded answers: tuples are hashed fast.
    """

    kind: str
    group: str
    version: str


UNCHANGED = Transform(kind="", group="", version="")
"""The object in its own form."""
PARTIAL = frozenset(
    Transform(kind=kind, group="meta.k8s.io", version=version)
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
    for version in ("v1", "v1beta1")
)
"""The metadata of the object, or of the items of a list."""
TABLE = frozenset(
    Transform(kind="Table", group="meta.k8s.io", version=version) for version in ("v1", "v1beta1")
)
"""What `kubectl get` prints. It has no protobuf form."""
ONLY_UNCHANGED = frozenset({UNCHANGED})


class Accepted(NamedTuple):
    """Outcome of content negotiation: in which form, encoding and layout an object is sent."""

    encoding: str
    """One of `PRODUCED`."""
    pretty: bool = False
    """Whether JSON is indented; other encodings have one layout."""
    transform: Transform = UNCHANGED


@functools.lru_cache(maxsize=bounds.NEGOTIATIONS)
def routable(accept: str, produced: tuple[str, ...] = PRODUCED) -> bool:
    """Return whether Kubernetes' router (go-restful) accepts an Accept header.

    The router ignores parameters. It accepts `*/*`, but not `application/*`.
    """
    types = (clause.partition(";")[0].strip(" ") for clause in (accept or "*/*").split(","))
    return any(each == "*/*" or each in produced for each in types)


@functools.lru_cache(maxsize=bounds.NEGOTIATIONS * _MAX_TRANSFORMS_PER_HEADER)
def negotiate(accept: str, transforms: frozenset[Transform] = ONLY_UNCHANGED) -> Accepted | None:
    """Return what an Accept header prefers; None if it allows nothing that is served.

    `transforms` are the forms in which the object is served. Without `UNCHANGED`, only clauses that
    request a transformation count: Kubernetes prefers these to all others at `/apis`, whatever
    their weights. `pretty` is what the header says.
    """
    for clause in _clauses(accept or "*/*"):
        kind, subkind, parameters = clause
        if kind == "*" and subkind != "*":
            continue
        transform = Transform(*(parameters.get(name, "") for name in ("as", "g", "v")))
        if transform not in transforms or parameters.get("sv"):
            continue
        for produced in PRODUCED:
            if _matches(clause, produced) and _can_send(produced, transform, parameters):
                pretty = produced == JSON and parameters.get("pretty") == "1"
                return Accepted(encoding=produced, pretty=pretty, transform=transform)
    return None


def of_request(
    info: RequestInfo, headers: Mapping[str, str], transforms: frozenset[Transform] = ONLY_UNCHANGED
) -> Accepted:
    """Return how to encode the answer. Raises ApiError (406) if nothing served is accepted.

    `transforms` are the forms in which the object is served.
    """
    accepted = negotiate(headers.get(hdrs.ACCEPT, ""), transforms)
    if accepted is None:
        types = ", ".join(PRODUCED)
        raise ApiError(
            406, f"only the following media types are accepted: {types}", reason="NotAcceptable"
        )
    return with_layout(accepted, info, headers)


def with_layout(accepted: Accepted, info: RequestInfo, headers: Mapping[str, str]) -> Accepted:
    """Return `accepted`, indented if the URL says so or a person reads the answer."""
    if accepted.pretty or accepted.encoding != JSON:
        return accepted
    pretty = info.pretty
    if pretty is None:
        pretty = headers.get(hdrs.USER_AGENT, "").startswith(_HUMAN_CLIENTS)
    return accepted._replace(pretty=True) if pretty else accepted


def check_length(headers: Mapping[str, str]) -> None:
    """Raise ApiError (400) for an Accept header that is too long to negotiate."""
    length = len(headers.get(hdrs.ACCEPT, ""))
    if length > MAX_ACCEPT:
        raise bad_request(
            f"the Accept header has {length} characters; at most {MAX_ACCEPT} are accepted"
        )


def accepts(accept: str, media_type: str) -> bool:
    """Return whether an Accept header allows a media type; parameters are ignored."""
    return any(_matches(clause, media_type) for clause in _clauses(accept or "*/*"))


def _clauses(accept: str) -> list[_Clause]:
    """Parse an Accept header; the most preferred clause is first, malformed ones are left out.

    Only the first 64 count.
    """
    if len(accept) > MAX_ACCEPT:
        return []
    ranked: list[tuple[_Rank, _Clause]] = []
    for element in accept.split(",", _MAX_CLAUSES)[:_MAX_CLAUSES]:
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
    return [clause for _, clause in _sorted(ranked)]


def _sorted(ranked: list[tuple[_Rank, _Clause]]) -> list[tuple[_Rank, _Clause]]:
    """Sort as Kubernetes does, whose comparison is inconsistent.

    In `*/*, application/yaml;q=0.9`, YAML comes first: a type precedes a wildcard of any weight,
    but only where the sort compares both. Go sorts up to 12 clauses by insertion. More are sorted
    by weight, since insertion would take too long.
    """
    if len(ranked) > _MAX_INSERTION:
        return sorted(ranked, key=lambda each: each[0])
    for end in range(1, len(ranked)):
        index = end
        while index and _precedes(ranked[index][0], ranked[index - 1][0]):
            ranked[index - 1], ranked[index] = ranked[index], ranked[index - 1]
            index -= 1
    return ranked


def _precedes(one: _Rank, other: _Rank) -> bool:
    return one[0] < other[0] or (not one[1] and other[1]) or (not one[2] and other[2])


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if math.isfinite(weight) else 0.0


def _matches(clause: _Clause, media_type: str) -> bool:
    kind, _, subkind = media_type.partition("/")
    return clause[0] in (kind, "*") and clause[1] in (subkind, "*")


def _can_send(produced: str, transform: Transform, parameters: Mapping[str, str]) -> bool:
    """Return whether an encoding has the requested form and accepts the `stream` parameter."""
    if produced == PROTOBUF and transform.kind == "Table":
        return False
    stream = parameters.get("stream", "")
    return not stream or (stream == "watch" and produced in STREAMED)
