"""Incremental parser of a JSON document that contains one long array.

It reads responses of the Prometheus API, such as `{"status": …, "data": [{…}, {…}], …}`, and never
holds the whole array: bytes in, elements out. Raises Broken for a document that is not JSON or has
another shape. An object in the array that is too long is left out: the labels of one series must
not prevent that others are read.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Any

import orjson

from adapter import errors

log = logging.getLogger(__name__)

_MAX_PENDING = 1 << 20
"""Maximum bytes of one element, and of the document around the array."""
_MAX_NESTING = 8
"""Maximum depth of an element; native histograms, the deepest in Prometheus' responses, have 5."""
_MAX_QUOTED = 200
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(
    rb"(?P<string>" + _STRING + rb')|(?P<mark>[{}\[\]:,])|[^"{}\[\]:,]++', re.DOTALL
)


def _container(nesting: int) -> bytes:
    """Return a pattern of objects and arrays up to a depth; it does not check what they contain."""
    inner = rb'[^{}\[\]"]++|' + _STRING
    pattern = rb"[{\[](?:" + inner + rb")*+[}\]]"
    for _ in range(nesting - 1):
        pattern = rb"[{\[](?:" + inner + rb"|" + pattern + rb")*+[}\]]"
    return pattern


_SCALAR = rb'[^{}\[\]",:\s]++(?=[,\]\s])'
_ELEMENTS = re.compile(
    rb"(?:[\s,]*+(?:" + _container(_MAX_NESTING) + rb"|" + _STRING + rb"|" + _SCALAR + rb"))*+"
    rb"[\s,]*+",
    re.DOTALL,
)
"""All complete elements from a position on. orjson then checks that they are JSON."""


_STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_STRUCTURE = re.compile(rb'["{}\[\]]')


class _Skipped:
    """An object that is left out; its bytes are passed on in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        """Whether the next byte is the second one of an escape."""

    def end(self, buffer: bytes) -> int | None:
        """Return where the object ends in the next bytes; None if it goes on."""
        position = min(len(buffer), 1) if self._escaped else 0
        self._escaped = self._escaped and not buffer
        while True:
            if self._in_string:
                rest = _STRING_REST.match(buffer, position)
                assert rest is not None  # the pattern matches the empty text
                following = buffer[rest.end() : rest.end() + 1]
                if following != b'"':
                    self._escaped = following == b"\\"
                    return None
                self._in_string = False
                position = rest.end() + 1
            mark = _STRUCTURE.search(buffer, position)
            if mark is None:
                return None
            position = mark.end()
            if mark.group() == b'"':
                self._in_string = True
                continue
            self._depth += 1 if mark.group() in b"{[" else -1
            if not self._depth:
                return position


class ArrayParser:
    """Parser of the array at a path of keys, such as `data`, `result`."""

    def __init__(self, *path: str) -> None:
        self._key = orjson.dumps(path[-1])
        self._array_depth = len(path) + 1
        self._pending = b""
        self._skipped: _Skipped | None = None
        self._envelope = bytearray()
        self._depth = 0
        self._last_string = b""
        self._last_mark = b""
        self._in_array = False

    def feed(self, chunk: bytes) -> list[Any]:
        """Return the elements that `chunk` completes. Raises Broken."""
        buffer = self._pending + chunk
        elements: list[Any] = []
        position = 0
        if self._skipped is not None:
            end = self._skipped.end(buffer)
            if end is None:
                return elements
            self._skipped, position = None, end
        while True:
            if self._in_array:
                objects, position = _leading_objects(buffer, position)
                elements += objects
                complete = _ELEMENTS.match(buffer, position)
                assert complete is not None  # the pattern matches the empty text
                position = complete.end()
                elements += _parse(b"[" + complete.group().strip(b", \t\r\n") + b"]", list)
                following = buffer[position : position + 1]
                if following in {b"}", b":"}:
                    raise _malformed("the array is not closed")
                if following != b"]":
                    break
                self._in_array = False
            end = self._read_envelope(buffer, position)
            if end == position:
                break
            position = end
        self._pending = buffer[position:]
        if len(self._pending) > _MAX_PENDING and self._in_array and self._pending[:1] == b"{":
            log.warning(
                "an element of a response of Prometheus is longer than %d bytes and is left out; "
                "drop its labels where it is scraped: %r",
                _MAX_PENDING,
                self._pending[:_MAX_QUOTED],
            )
            self._skipped = _Skipped()
            self._skipped.end(self._pending)
            self._pending = b""
        if max(len(self._pending), len(self._envelope)) > _MAX_PENDING:
            raise _malformed(
                f"an element is longer than {_MAX_PENDING} bytes, "
                f"or nested deeper than {_MAX_NESTING} levels"
            )
        return elements

    def close(self) -> dict[str, Any]:
        """Return the document with an empty array. Raises Broken if it is incomplete."""
        if self._in_array:
            raise _malformed("the document ends inside the array")
        document: dict[str, Any] = _parse(bytes(self._envelope) + self._pending, dict)
        return document

    def _read_envelope(self, buffer: bytes, position: int) -> int:
        """Read complete tokens up to the start of the array; return the position after them."""
        for token in _TOKEN.finditer(buffer, position):
            if token.start() != position:  # an unfinished string
                break
            position = token.end()
            self._envelope += token.group()
            if string := token["string"]:
                self._last_string = string
            elif mark := token["mark"]:
                previous, self._last_mark = self._last_mark, mark
                self._depth += (mark in b"{[") - (mark in b"}]")
                if self._depth == self._array_depth and (mark, previous, self._last_string) == (
                    b"[",
                    b":",
                    self._key,
                ):
                    self._in_array = True
                    break
        return position


def _leading_objects(buffer: bytes, position: int) -> tuple[list[Any], int]:
    """Return the objects from `position` to the last `},{`, and where they end.

    None are returned if this is not between two elements: what precedes it is then no JSON array.
    This takes a third of the time of `_ELEMENTS`, which is left with the rest of the buffer.
    """
    end = buffer.rfind(b"},{", position) + 1
    if end:
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(b"[" + buffer[position:end] + b"]"), end
    return [], position


def _parse(text: bytes, shape: type) -> Any:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        excerpt = text[:_MAX_QUOTED].decode(errors="replace")
        raise _malformed(f"not JSON: {e}: {excerpt!r}") from e
    if not isinstance(document, shape):
        raise _malformed(f"{type(document).__name__}, not {shape.__name__}")
    return document


def _malformed(problem: str) -> errors.Broken:
    return errors.Broken(f"the response cannot be parsed: {problem}")
