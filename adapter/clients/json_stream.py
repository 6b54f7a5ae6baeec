"""Incremental parser of a JSON document that contains one long array of flat objects.

It reads responses of the Prometheus API, `{"status": …, "data": [{…}, {…}], …}`, and holds one
element of the array at a time. Pure: bytes in, objects out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

_MAX_PENDING = 1 << 20
"""Maximum bytes of one element, and of the document around the array."""
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(
    rb"(?P<string>" + _STRING + rb')|(?P<mark>[{}\[\]:,])|[^"{}\[\]:,]++', re.DOTALL
)
_GAP = re.compile(rb"[\s,]*+")
_FLAT_OBJECT = re.compile(rb'\{(?:[^{}"]++|' + _STRING + rb")*+\}", re.DOTALL)


class MalformedError(ValueError):
    """The document is not JSON, has another shape, or an element of it is too long."""


class DataArray:
    """Parser of the array at the top-level key `data`; it never holds the whole array.

    The elements must be objects whose values are scalars, like the label sets of `/api/v1/series`.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._envelope = bytearray()
        self._depth = 0
        self._last_string = b""
        self._last_mark = b""
        self._in_array = False

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the elements that `chunk` completes. Exhaust the iterator before the next call.

        Raises MalformedError.
        """
        buffer = self._pending + chunk
        position = 0
        while True:
            if self._in_array:
                gap = _GAP.match(buffer, position)
                position = gap.end() if gap else position
                element = _FLAT_OBJECT.match(buffer, position)
                if element:
                    position = element.end()
                    yield _parse_object(element.group())
                    continue
                following = buffer[position : position + 1]
                if following == b"]":
                    self._in_array = False
                elif following in {b"", b"{"}:
                    break
                else:
                    raise MalformedError("an element of the array is not an object")
            end = self._read_envelope(buffer, position)
            if end == position:
                break
            position = end
        self._pending = buffer[position:]
        if max(len(self._pending), len(self._envelope)) > _MAX_PENDING:
            raise MalformedError(f"an element is longer than {_MAX_PENDING} bytes")

    def close(self) -> dict[str, Any]:
        """Return the document with an empty array. Raises MalformedError if it is incomplete."""
        if self._in_array:
            raise MalformedError("the document ends inside the array")
        return _parse_object(bytes(self._envelope) + self._pending)

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
                if (mark, previous, self._depth, self._last_string) == (b"[", b":", 2, b'"data"'):
                    self._in_array = True
                    break
        return position


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise MalformedError(str(e)) from e
    if not isinstance(document, dict):
        raise MalformedError("not an object")
    return document
