"""Takes the long array out of a JSON document while the bytes arrive, one flat object at a time.

`ObjectArray` reads the envelope of Prometheus' API, `{"status": …, "data": [{…}, {…}], …}`, and
holds no more of it than one element and what surrounds the array. Pure: bytes in, objects out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(
    rb"(?P<string>" + _STRING + rb')|(?P<mark>[{}\[\]:,])|[^"{}\[\]:,]++', re.DOTALL
)
_GAP = re.compile(rb"[\s,]*+")
_FLAT_OBJECT = re.compile(rb'\{(?:[^{}"]++|' + _STRING + rb")*+\}", re.DOTALL)


class MalformedError(ValueError):
    """The bytes are no such document, or an element of it is too long to be one."""


class ObjectArray:
    """The objects of the array at a top-level key, without ever holding the array.

    The elements must be objects whose values are scalars, as label sets of `/api/v1/series` are.
    """

    def __init__(self, key: str, *, longest: int = 1 << 20) -> None:
        self._key = orjson.dumps(key)
        self._longest = longest
        self._pending = b""
        self._envelope = bytearray()
        self._depth = 0
        self._last_string = b""
        self._last_mark = b""
        self._inside = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The elements that `data` completes. Exhaust it before the next call.

        Raises MalformedError.
        """
        buffer = self._pending + data
        position = 0
        while True:
            if self._inside:
                gap = _GAP.match(buffer, position)
                position = gap.end() if gap else position
                element = _FLAT_OBJECT.match(buffer, position)
                if element:
                    position = element.end()
                    yield _object(element.group())
                    continue
                following = buffer[position : position + 1]
                if following == b"]":
                    self._inside = False
                elif following in {b"", b"{"}:
                    break
                else:
                    raise MalformedError("an element of the array is not an object")
            moved = self._surroundings(buffer, position)
            if moved == position:
                break
            position = moved
        self._pending = buffer[position:]
        if max(len(self._pending), len(self._envelope)) > self._longest:
            raise MalformedError(f"more than {self._longest} bytes without an end")

    def close(self) -> dict[str, Any]:
        """The document with the array emptied, once all bytes were fed. Raises MalformedError."""
        if self._inside:
            raise MalformedError("the document ends inside the array")
        return _object(bytes(self._envelope) + self._pending)

    def _surroundings(self, buffer: bytes, position: int) -> int:
        """Read the envelope from `position` up to the array, or as far as the bytes go."""
        for token in _TOKEN.finditer(buffer, position):
            if token.start() != position:  # an unfinished string
                break
            position = token.end()
            self._envelope += token.group()
            if string := token["string"]:
                self._last_string = string
            elif mark := token["mark"]:
                before, self._last_mark = self._last_mark, mark
                self._depth += (mark in b"{[") - (mark in b"}]")
                if (mark, before, self._depth, self._last_string) == (b"[", b":", 2, self._key):
                    self._inside = True
                    break
        return position


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise MalformedError(str(e)) from e
    if not isinstance(found, dict):
        raise MalformedError("not an object")
    return found
