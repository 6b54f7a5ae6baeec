"""What stands on the wire: documents and how they are encoded, byte for byte as Kubernetes does.

Pure. A document is the JSON form of an object, keys in the order in which they are sent; an
encoding other than JSON is written from the same document. `PRODUCED` says which ones there are.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from rules import quantity
from rules.diagnosis.missing import Cause
from rules.kinds import Kind
from rules.query.aggregate import ExternalValue, Value

Document = Mapping[str, Any]

JSON = "application/json"
PRODUCED: tuple[str, ...] = (JSON,)
"""Every encoding that is offered, the default first."""
AGGREGATED = ("v2", "v2beta1")
"""The versions of apidiscovery.k8s.io in which everything can be listed at once."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_KEPT = 512
_DISCOVERY = "apidiscovery.k8s.io"
_LIST = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a client accepts: one of `PRODUCED`, and whether it asked for indentation."""

    encoding: str
    pretty: bool
    aggregated: str = ""
    """One of `AGGREGATED`, for who wants that list; else empty."""

    @property
    def list_type(self) -> str:
        """The content type of that list."""
        return f"{self.encoding};g={_DISCOVERY};v={self.aggregated};as={_LIST}"


def encode(document: Document, *, pretty: bool = False) -> bytes:
    r"""JSON as Go's encoder writes it: compact with a newline, or indented by two without one.

    `<`, `>`, `&`, U+2028 and U+2029 are escaped; bytes that are not UTF-8 become `\ufffd`.
    """
    try:
        body = orjson.dumps(document, option=orjson.OPT_INDENT_2 if pretty else None)
    except TypeError:
        # orjson takes no lone surrogates, which is how text that is not UTF-8 arrives.
        layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
        text = json.dumps(document, ensure_ascii=False, **layout)
        body = _SURROGATE.sub(r"\\ufffd", text).encode()
    body = body.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    body = body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return body if pretty else body + b"\n"


def status(
    code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None
) -> Document:
    """A metav1.Status of a failure. An empty `reason` and no `details` are left out."""
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        document["reason"] = reason
    if details is not None:
        document["details"] = details
    document["code"] = code
    return document


def causes(found: Iterable[Cause]) -> list[Document]:
    """`found` as the `causes` of a metav1.StatusDetails."""
    return [{"reason": cause.reason.value, "message": cause.sentence} for cause in found]


def metric_value_list(
    version: str,
    metric: str,
    selector: Document | None,
    values: Iterable[tuple[Document, Value]],
) -> Document:
    """A MetricValueList of custom.metrics.k8s.io; `values` pairs object references with values.

    https://github.com/kubernetes/metrics/tree/master/pkg/apis/custom_metrics
    """
    items: list[Document]
    if version == "v1beta1":
        items = [
            {
                "describedObject": reference,
                "metricName": metric,
                "timestamp": timestamp(value.time),
                "value": quantity.decimal(value.milli),
                "selector": selector,
            }
            for reference, value in values
        ]
    else:
        identifier = {"name": metric, "selector": selector}
        items = [
            {
                "describedObject": reference,
                "metric": identifier,
                "timestamp": timestamp(value.time),
                "value": quantity.decimal(value.milli),
            }
            for reference, value in values
        ]
    return {
        "kind": "MetricValueList",
        "apiVersion": f"custom.metrics.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def external_metric_value_list(metric: str, values: Iterable[ExternalValue]) -> Document:
    """An ExternalMetricValueList of external.metrics.k8s.io; a scalar's labels are null.

    https://github.com/kubernetes/metrics/tree/master/pkg/apis/external_metrics
    """
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": metric,
                "metricLabels": None if each.labels is None else dict(sorted(each.labels.items())),
                "timestamp": timestamp(each.value.time),
                "value": quantity.decimal(each.value.milli),
            }
            for each in values
        ],
    }


def object_reference(kind: Kind, *, namespace: str, name: str) -> Document:
    """A core ObjectReference; the core group is written `/v1`, as the original writes it."""
    reference = {"kind": kind.kind, "namespace": namespace, "name": name}
    reference["apiVersion"] = f"{kind.group}/{kind.version}"
    return {key: value for key, value in reference.items() if value}


@functools.lru_cache(maxsize=64)
def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, cut to whole seconds."""
    moment = datetime.fromtimestamp(math.floor(seconds), UTC)
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def routable(accept: str, produced: Sequence[str] = PRODUCED) -> bool:
    """Whether Kubernetes' router lets a request through to a handler that makes `produced`.

    It compares types alone, without parameters, and knows `*/*` but not `application/*`.
    """
    types = (element.partition(";")[0].strip(" ") for element in (accept or "*/*").split(","))
    return any(each == "*/*" or each in produced for each in types)


def negotiate(accept: str, *, aggregated: bool = False) -> Accepted | None:
    """Which encoding an Accept header asks for; None if it allows none.

    With `aggregated`, only what asks for the list of everything counts: it is preferred to a plain
    document however much less it is wanted.
    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/negotiation/negotiate.go
    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/discovery/aggregated/wrapper.go
    """
    found = _negotiate if len(accept) > _LONGEST_KEPT else _remembered
    return found(accept, aggregated)


def accepts(accept: str, media_type: str) -> bool:
    """Whether an Accept header lets `media_type` through, whatever its parameters say."""
    wanted_type, _, wanted_subtype = media_type.partition("/")
    return any(
        kind in (wanted_type, "*") and subkind in (wanted_subtype, "*")
        for kind, subkind, _ in _clauses(accept or "*/*")
    )


def _negotiate(accept: str, aggregated: bool) -> Accepted | None:
    if not accept:
        return None if aggregated else Accepted(encoding=PRODUCED[0], pretty=False)
    for kind, subkind, parameters in _clauses(accept):
        for produced in PRODUCED:
            offered = produced.partition("/")
            if kind not in (offered[0], "*") or subkind not in (offered[2], "*"):
                continue
            if kind == "*" and subkind != "*":
                continue
            if not _allowed(parameters, aggregated):
                continue
            version = parameters["v"] if aggregated else ""
            pretty = parameters.get("pretty") == "1"
            return Accepted(encoding=produced, pretty=pretty, aggregated=version)
    return None


_remembered = functools.lru_cache(maxsize=256)(_negotiate)


def _clauses(accept: str) -> list[tuple[str, str, dict[str, str]]]:
    """The header's clauses, the most wanted first; what is no clause is left out."""
    ranked = []
    for element in accept.split(","):
        media_type, *rest = element.strip(" ").split(";")
        kind, slash, subkind = (part.strip(" ") for part in media_type.partition("/"))
        if not slash and kind == "*":
            subkind = "*"
        if not subkind or "/" in subkind:
            continue
        pairs = (each.split("=") for each in rest)
        # A parameter without a value counts as one that is not there.
        parameters = {
            pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]
        }
        wanted = _weight(parameters.pop("q", "1"))
        ranked.append(((-wanted, kind == "*", subkind == "*"), (kind, subkind, parameters)))
    return [clause for _, clause in sorted(ranked, key=lambda each: each[0])]


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if math.isfinite(weight) else 0.0


def _allowed(parameters: Mapping[str, str], aggregated: bool) -> bool:
    """Whether there is such a document; none is had in another server version or stream."""
    if parameters.get("sv") or parameters.get("stream", "") not in {"", "watch"}:
        return False
    if not aggregated:
        return parameters.keys().isdisjoint({"as", "g", "v"})
    wanted = (parameters.get("g"), parameters.get("as"))
    return wanted == (_DISCOVERY, _LIST) and parameters.get("v") in AGGREGATED
