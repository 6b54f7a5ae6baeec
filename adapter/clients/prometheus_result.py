"""Parser of the documents of the Prometheus API. Pure; raises Broken for any other shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from adapter import errors
from rules.query.aggregate import Sample

Kind = Literal["vector", "scalar", "matrix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Result of an instant query."""

    kind: Kind
    samples: tuple[Sample, ...]
    """Elements of a vector, without native histograms; a scalar as one sample without labels; none
    for a matrix, which no rule can use."""
    warnings: tuple[str, ...] = ()


def data(document: Any, shape: type) -> Any:
    """Return `data` of a successful response. Raises Broken if it is not a `shape`."""
    if not isinstance(document, dict):
        raise errors.Broken("the response is not an object")
    if document.get("status") != "success":
        status, kind, text = (document.get(key) for key in ("status", "errorType", "error"))
        raise errors.Broken(f"the response has the status {status!r}: {kind}: {text}")
    content = document.get("data")
    if not isinstance(content, shape):
        raise errors.Broken(
            f"`data` in the response is {type(content).__name__}, not {shape.__name__}"
        )
    return content


def strings(document: Any) -> tuple[str, ...]:
    """Parse `/api/v1/labels` and `/api/v1/label/…/values`. Raises Broken."""
    # VictoriaMetrics and old versions of Prometheus write null for an empty list.
    if isinstance(document, dict) and document.get("data", ...) is None:
        document = {**document, "data": []}
    names = data(document, list)
    if not all(isinstance(name, str) for name in names):
        raise errors.Broken("the response is not a list of strings")
    return tuple(names)


def query_result(document: Any) -> QueryResult:
    """Parse `/api/v1/query`. Raises Broken, like the original also for a string."""
    content = data(document, dict)
    kind, result = content.get("resultType"), content.get("result")
    try:
        if kind == "vector":
            samples = tuple(_vector(result))
        elif kind == "scalar":
            samples = (_sample({}, result),)
        elif kind == "matrix":
            samples = ()
        else:
            raise errors.Broken(f"the result type is {kind!r}; a rule needs an instant vector")
        warnings = tuple(map(str, document.get("warnings") or ()))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise errors.Broken(f"the result is not a {kind}: {e!r}") from e
    return QueryResult(kind=kind, samples=samples, warnings=warnings)


def _vector(result: list[Any]) -> Iterator[Sample]:
    for element in result:
        if "value" in element or "histogram" not in element:
            yield _sample(element["metric"], element["value"])


def _sample(labels: dict[str, str], point: list[Any]) -> Sample:
    time, value = point
    if not isinstance(value, str) or not isinstance(labels, dict):
        raise TypeError("a sample needs labels, a time and a value in a string")
    return Sample(labels=labels, value=float(value), time=float(time))
