"""Readers of the documents of the Prometheus API. Pure; raise Broken for any other shape.

A reader gets a response in chunks and parses it while it arrives, so that no chunk takes long and
the whole document is never in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isinf
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import orjson

from adapter import errors
from adapter.clients import quirks
from adapter.clients.json_stream import ArrayParser
from adapter.clients.quirks import Meaning
from rules.query.aggregate import LooseSample, Sample
from rules.quoting import shorten

Kind = Literal["vector", "scalar", "matrix"]
Reduce = Callable[[Iterable[LooseSample]], None]
"""Gets the samples of a vector, some at a time."""
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_YEAR_10000 = 253402300800.0
"""Unix seconds from which on RFC 3339 cannot express a time."""
_ENTRY = 100
"""Bytes of memory, in addition to its text, that a name in a set takes at least."""

_MAX_QUOTED = 500
"""Characters of what a response says that it lacks."""
_OTHER_VALUES = frozenset({"histogram", "values", "histograms"})
"""Keys of elements without a float: native histograms, and series of a matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Result of an instant query."""

    kind: Kind
    samples: tuple[Sample, ...]
    """Elements of a vector, without native histograms and without those that were reduced; a scalar
    as one sample without labels; none for a matrix, which no rule can use."""
    histograms: int = 0
    """Number of elements that are native histograms."""
    partial: str = ""
    """What the response says that it lacks, quoted for the log; empty if it is whole."""
    size: int = 0
    """Bytes of the response."""
    waited: float = 0.0
    """Seconds for which the request waited for its turn."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Content of a list response."""

    content: T
    partial: str = ""
    """As in `QueryResult`."""
    waited: float = 0.0
    """As in `QueryResult`."""


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Series of a range query."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """Unix seconds and value, oldest first."""


class Reader(Protocol[T_co]):
    """Parser of a response body. Both methods raise Broken."""

    def feed(self, chunk: bytes) -> int:
        """Parse a chunk; return by how many bytes the result grows."""

    def close(self) -> T_co:
        """Return the result."""


class QueryResultReader:
    """Reader of `/api/v1/query`. Raises Broken, like the original also for a string.

    Samples are kept, or passed to `reduce` as they arrive. More than `most`, which the limit of a
    team sets, raise TooLarge.
    """

    def __init__(self, reduce: Reduce | None = None, *, most: int | None = None) -> None:
        self._elements = ArrayParser("data", "result")
        self._left = math.inf if most is None else most
        self._most = most
        self._size = 0
        self._samples: list[Sample] = []
        self._reduce = reduce or self._keep
        self._histograms = 0
        self._point: list[Any] = []
        """Elements that are not objects: the time and the value of a scalar."""

    def feed(self, chunk: bytes) -> int:
        """Parse a chunk; return its length, because every part of it may be kept."""
        self._size += len(chunk)
        try:
            elements = self._elements.feed(chunk)
            self._left -= len(elements)
            if self._left < 0:
                raise errors.TooLarge.of(
                    f"the result has more samples than --limit=team-samples={self._most}: select "
                    "or aggregate so that it has fewer series"
                )
            self._reduce(_samples(elements) or self._read(elements))
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise errors.Broken(f"the result has an element that is not a sample: {e!r}") from e
        if len(self._point) > 2:
            raise errors.Broken("the result is neither a list of objects nor a scalar")
        return len(chunk)

    def _keep(self, samples: Iterable[LooseSample]) -> None:
        self._samples.extend(map(Sample._make, samples))

    def _read(self, elements: Iterable[Any]) -> Iterator[Sample]:
        """Yield the samples among elements, and note others."""
        for element in elements:
            if not isinstance(element, dict):
                self._point.append(element)
            elif "value" in element or element.keys().isdisjoint(_OTHER_VALUES):
                yield _sample(element["metric"], element["value"])
            else:
                self._histograms += "histogram" in element

    def close(self) -> QueryResult:
        """Return the result."""
        document = self._elements.close()
        content = _data(document, dict)
        kind, samples = content.get("resultType"), tuple(self._samples)
        if kind not in ("vector", "scalar", "matrix"):
            raise errors.Broken(f"the result type is {kind!r}; a rule needs an instant vector")
        if kind == "scalar":
            try:
                samples = (_sample({}, self._point),)
            except (TypeError, ValueError, OverflowError) as e:
                raise errors.Broken(f"the result is not a scalar: {e!r}") from e
        elif self._point or not isinstance(content.get("result"), list):
            raise errors.Broken(f"the result is not a {kind}: it is not a list of objects")
        return QueryResult(
            kind=cast("Kind", kind),
            samples=() if kind == "matrix" else samples,
            histograms=self._histograms,
            partial=_partial(document),
            size=self._size,
        )


class RangesReader:
    """Reader of `/api/v1/query_range`; series of native histograms are left out."""

    def __init__(self) -> None:
        self._elements = ArrayParser("data", "result")
        self._ranges: list[RangeResult] = []

    def feed(self, chunk: bytes) -> int:
        """Parse a chunk; return its length."""
        try:
            for element in self._elements.feed(chunk):
                labels = element["metric"]
                samples = [_sample(labels, point) for point in element.get("values") or ()]
                points = tuple((each.time, each.value) for each in samples)
                self._ranges += [RangeResult(labels, points)] if points else []
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as e:
            raise errors.Broken(f"the result has an element that is not a series: {e!r}") from e
        return len(chunk)

    def close(self) -> Listed[tuple[RangeResult, ...]]:
        """Return the series."""
        document = self._elements.close()
        kind = _data(document, dict).get("resultType")
        if kind != "matrix":
            raise errors.Broken(f"the result type is {kind!r}, not 'matrix'")
        return Listed(tuple(self._ranges), _partial(document))


class StringsReader:
    """Reader of `/api/v1/labels` and `/api/v1/label/…/values`; keeps the first `most`."""

    def __init__(self, most: int | None = None) -> None:
        self._elements = ArrayParser("data")
        self._strings: list[str] = []
        self._most = most

    def feed(self, chunk: bytes) -> int:
        """Parse a chunk; return its length."""
        strings = self._elements.feed(chunk)
        if not all(isinstance(each, str) for each in strings):
            raise errors.Broken("the response is not a list of strings")
        self._strings += strings
        if self._most is not None:
            del self._strings[self._most :]
        return len(chunk)

    def close(self) -> Listed[tuple[str, ...]]:
        """Return the strings."""
        document = self._elements.close()
        # VictoriaMetrics and old versions of Prometheus write null for an empty list.
        if document.get("data", ...) is None:
            document["data"] = []
        _data(document, list)
        return Listed(tuple(self._strings), _partial(document))


class LabelSetsReader:
    """Reader of `/api/v1/series` that keeps only series names and their label names.

    Further names after the first `most` are dropped.
    """

    def __init__(self, most: int | None = None) -> None:
        self._elements = ArrayParser("data")
        self._most = math.inf if most is None else most
        self._label_names: dict[str, set[str]] = {}

    def feed(self, chunk: bytes) -> int:
        """Parse a chunk; return the bytes of the names that are new."""
        grown = 0
        for labels in self._elements.feed(chunk):
            if not _is_label_set(labels):
                raise errors.Broken("the response is not a list of series")
            name = labels.pop("__name__", "")
            if name not in self._label_names:
                if len(self._label_names) == self._most:
                    continue
                self._label_names[name] = set()
                grown += len(name) + _ENTRY
            new = labels.keys() - self._label_names[name]
            self._label_names[name] |= new
            grown += sum(len(label) + _ENTRY for label in new)
        return grown

    def close(self) -> Listed[dict[str, set[str]]]:
        """Return the label names by series name."""
        document = self._elements.close()
        _data(document, list)
        return Listed(self._label_names, _partial(document))


class DocumentReader(Generic[T]):
    """Reader of a short document, which is parsed at the end; `extract` returns what is kept.

    `extract` may raise AttributeError, KeyError, TypeError and ValueError; `subject` names what the
    document should be.
    """

    def __init__(self, subject: str, extract: Callable[[dict[str, Any]], T]) -> None:
        self._subject = subject
        self._extract = extract
        self._body = bytearray()

    def feed(self, chunk: bytes) -> int:
        """Keep a chunk; return its length."""
        self._body += chunk
        return len(chunk)

    def close(self) -> Listed[T]:
        """Return what is kept."""
        try:
            document = orjson.loads(self._body)
            return Listed(self._extract(_data(document, dict)), _partial(document))
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise errors.Broken(f"the response is not {self._subject}: {e!r}") from e


def start_reader() -> DocumentReader[str]:
    """Return a reader of `/api/v1/status/runtimeinfo` that keeps the time of the start."""
    return DocumentReader("the state of a process", lambda content: str(content["startTime"]))


def types_reader() -> DocumentReader[dict[str, set[str]]]:
    """Return a reader of `/api/v1/metadata` that keeps the types, by series name."""

    def types(content: dict[str, Any]) -> dict[str, set[str]]:
        return {name: {str(each["type"]) for each in every} for name, every in content.items()}

    return DocumentReader("metadata", types)


def _data(document: Any, shape: type) -> Any:
    """Return `data` of a successful response. Raises Broken if it is not a `shape`."""
    if not isinstance(document, dict):
        raise errors.Broken(f"the response is {type(document).__name__}, not an object")
    if document.get("status") != "success":
        status, kind, text = (document.get(key) for key in ("status", "errorType", "error"))
        raise errors.Broken(f"the response has the status {status!r}: {kind}: {text}")
    content = document.get("data")
    if not isinstance(content, shape):
        raise errors.Broken(
            f"`data` in the response is {type(content).__name__}, not {shape.__name__}"
        )
    return content


def _partial(document: dict[str, Any]) -> str:
    """Return what the response lacks: `isPartial` of VictoriaMetrics, and warnings of all others.

    `infos` are only about the query.
    """
    warnings = document.get("warnings") or []
    if not isinstance(warnings, list):
        raise errors.Broken(f"`warnings` in the response is {type(warnings).__name__}, not list")
    losses = [each for each in map(str, warnings) if not quirks.says(each, Meaning.ONLY_ADVICE)]
    if document.get("isPartial") is True:
        losses.append("isPartial is true")
    return shorten("; ".join(losses), _MAX_QUOTED)


def _is_label_set(element: Any) -> bool:
    return isinstance(element, dict) and all(type(each) is str for each in element.values())


def _samples(elements: Sequence[Any]) -> Iterable[LooseSample] | None:
    """Return samples of a vector; None if an element needs a closer look, as `_sample` has it.

    Checks all elements at once, in a third of the time.
    """
    try:
        labels = [each["metric"] for each in elements]
        points = [each["value"] for each in elements]
        texts = [text for _, text in points]
        "".join(itertools.chain(texts, *map(dict.values, labels)))  # raises unless all are strings
        numbers = list(map(float, texts))
        times = [float(time) for time, _ in points]
        if isfinite(sum(numbers)) and times and 0 <= min(times) <= max(times) < _YEAR_10000:
            return zip(labels, numbers, times, strict=True)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    return None


def _sample(labels: Any, point: Any) -> Sample:
    time, value = point
    if type(value) is not str or type(labels) is not dict:
        raise TypeError("a sample needs labels, a time and a value in a string")
    "".join(labels.values())  # the fastest check that all are strings
    seconds, number = float(time), float(value)
    if not 0 <= seconds < _YEAR_10000:
        raise ValueError(f"the time {time!r} is not between 1970 and 9999")
    if isinf(number) and "inf" not in value.lower():
        raise ValueError(f"the value {value[:_ENTRY]!r} does not fit in a double")
    return Sample(labels, number, seconds)
