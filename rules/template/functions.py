"""Predefined functions (Go: text/template/funcs.go).

`and` and `or` do not evaluate all of their arguments and are therefore in `evaluation`; `call` does
not exist, because no value of a template is a function. All functions raise TemplateExecError for
arguments that do not fit.
https://pkg.go.dev/text/template#hdr-Functions
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn
from urllib.parse import quote_plus

from rules import errors
from rules.template import printf, values

_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS = {
    "\\": "\\\\", "'": "\\'", '"': '\\"',
    "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D",
}  # fmt: skip  # more to a line


def _fail(message: str) -> NoReturn:
    raise errors.TemplateExecError(message)


def _position(value: object, length: int) -> int:
    """Return `value` as a position in a sequence, from 0 to `length`."""
    if not isinstance(value, int) or isinstance(value, bool):
        _fail(f"cannot use {values.type_name(value)} as an index")
    if not 0 <= value <= length:
        _fail(f"index out of range: {value}")
    return value


def _index(item: object, *keys: object) -> object:
    """Return x[1]["k"] for `index x 1 "k"`: a byte of a string, "" for a missing key."""
    if item is None:
        _fail("cannot index nil")
    for key in keys:
        match item:
            case str():
                data = item.encode()
                item = data[_position(key, len(data) - 1)]
            case list() | tuple():
                item = item[_position(key, len(item) - 1)]
            case dict():
                if not isinstance(key, str):
                    _fail(f"cannot use {values.type_name(key)} as a key")
                item = item.get(key, "")
            case _:
                _fail(f"cannot index {values.type_name(item)}")
    return item


def _slice(item: object, *bounds: object) -> object:
    """Return x[1:2] for `slice x 1 2`; the bounds of a string are bytes."""
    if not isinstance(item, str | list | tuple):
        _fail(f"cannot slice {values.type_name(item)}")
    sequence = item.encode() if isinstance(item, str) else item
    positions = [_position(bound, len(sequence)) for bound in bounds]
    start, end = [*positions, *(0, len(sequence))[len(positions) :]]
    if start > end:
        _fail(f"invalid slice index: {start} > {end}")
    part = sequence[start:end]
    if not isinstance(part, bytes):
        return part
    try:
        return part.decode()
    except UnicodeDecodeError:
        _fail(f"cuts a character in two: bytes {start} to {end} of {item!r}")


def _len(item: object) -> int:
    """Return the number of bytes of a string, or of elements."""
    if isinstance(item, str):
        return len(item.encode())
    if isinstance(item, list | tuple | dict):
        return len(item)
    _fail(f"{values.type_name(item)} has no length")


def _equal(left: object, right: object) -> bool:
    if left is None or right is None:
        return left is right
    kinds = values.type_name(left), values.type_name(right)
    if kinds[0] != kinds[1] or not isinstance(left, str | int | float):
        _fail(f"cannot compare {kinds[0]} with {kinds[1]}")
    return left == right


def _order(left: object, right: object) -> int:
    """Return a negative number, zero or a positive number as `left` is less, equal or greater."""
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    same_type = type(left) is type(right) is not bool
    if same_type and isinstance(left, int | float) and isinstance(right, int | float):
        return (left > right) - (left < right)
    _fail(f"cannot order {values.type_name(left)} and {values.type_name(right)}")


def _escapable(arguments: tuple[object, ...]) -> str:
    """Return the text that the escaping functions work on."""
    return printf.sprint(*("<no value>" if value is None else value for value in arguments))


def _js(*arguments: object) -> str:
    """Escape for a JavaScript string."""
    return "".join(
        _JS.get(each) or (each if each.isprintable() or each == "\x7f" else f"\\u{ord(each):04X}")
        for each in _escapable(arguments)
    )


UNLIMITED = math.inf


class FunctionSpec(NamedTuple):
    """Function and the number of arguments it takes."""

    call: Callable[..., object]
    minimum: int
    maximum: float = UNLIMITED


FUNCTIONS: Mapping[str, FunctionSpec] = {
    "eq": FunctionSpec(lambda left, *others: any(_equal(left, each) for each in others), 2),
    "ge": FunctionSpec(lambda left, right: _order(left, right) >= 0, 2, 2),
    "gt": FunctionSpec(lambda left, right: _order(left, right) > 0, 2, 2),
    "html": FunctionSpec(lambda *arguments: _escapable(arguments).translate(_HTML), 0),
    "index": FunctionSpec(_index, 1),
    "js": FunctionSpec(_js, 0),
    "le": FunctionSpec(lambda left, right: _order(left, right) <= 0, 2, 2),
    "len": FunctionSpec(_len, 1, 1),
    "lt": FunctionSpec(lambda left, right: _order(left, right) < 0, 2, 2),
    "ne": FunctionSpec(lambda left, right: not _equal(left, right), 2, 2),
    "not": FunctionSpec(operator.not_, 1, 1),
    "print": FunctionSpec(printf.sprint, 0),
    "printf": FunctionSpec(printf.sprintf, 1),
    "println": FunctionSpec(printf.sprintln, 0),
    "slice": FunctionSpec(_slice, 1, 3),
    "urlquery": FunctionSpec(lambda *arguments: quote_plus(_escapable(arguments)), 0),
}

NAMES = frozenset(FUNCTIONS) | {"and", "or"}
