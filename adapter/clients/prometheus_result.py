"""The documents of Prometheus' API as values; what does not have their shape is Broken. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from adapter import errors
from rules.query.aggregate import Sample

Kind = Literal["vector", "scalar", "matrix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The answer to an instant query."""

    kind: Kind
    samples: tuple[Sample, ...]
    """A vector's elements; a scalar as one sample without labels; a matrix point by point, series
    after series. Native histograms have no value and are left out."""
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


def data(document: Any, shape: type) -> Any:
    """`data` of a successful answer, an instance of `shape`. Raises Broken."""
    if not isinstance(document, dict):
        raise errors.Broken("the answer is not an object")
    if document.get("status") != "success":
        status, kind, text = (document.get(key) for key in ("status", "errorType", "error"))
        raise errors.Broken(f"the answer's status is {status!r}: {kind}: {text}")
    found = document.get("data")
    if not isinstance(found, shape):
        raise errors.Broken(f"`data` of the answer is {type(found).__name__}, not {shape.__name__}")
    return found


def strings(document: Any) -> tuple[str, ...]:
    """The answer of `/api/v1/labels` and `/api/v1/label/…/values`. Raises Broken."""
    # VictoriaMetrics and old versions write null for an empty list.
    if isinstance(document, dict) and document.get("data", ...) is None:
        document = {**document, "data": []}
    found = data(document, list)
    if not all(isinstance(name, str) for name in found):
        raise errors.Broken("the answer is not a list of strings")
    return tuple(found)


def query_result(document: Any) -> QueryResult:
    """The answer of `/api/v1/query`. Raises Broken, like the original also for a string."""
    found = data(document, dict)
    kind, result = found.get("resultType"), found.get("result")
    try:
        if kind == "vector":
            samples = tuple(_vector(result))
        elif kind == "matrix":
            samples = tuple(_matrix(result))
        elif kind == "scalar":
            samples = (_sample({}, result),)
        else:
            raise errors.Broken(f"the result type is {kind!r}; a rule needs an instant vector")
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise errors.Broken(f"the answer is no {kind}: {e!r}") from e
    return QueryResult(
        kind=kind,
        samples=samples,
        warnings=tuple(map(str, document.get("warnings") or ())),
        infos=tuple(map(str, document.get("infos") or ())),
    )


def _vector(result: list[Any]) -> Iterator[Sample]:
    for element in result:
        if "value" in element or "histogram" not in element:
            yield _sample(element["metric"], element["value"])


def _matrix(result: list[Any]) -> Iterator[Sample]:
    for element in result:
        for point in element.get("values", ()):
            yield _sample(element["metric"], point)


def _sample(labels: dict[str, str], point: list[Any]) -> Sample:
    time, value = point
    if not isinstance(value, str) or not isinstance(labels, dict):
        raise TypeError("a sample is labels, a time and the value as text")
    return Sample(labels=labels, value=float(value), time=float(time))
