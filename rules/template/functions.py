"""Go's predefined functions, except `and` and `or`, which the evaluation itself cuts short.

https://pkg.go.dev/text/template#hdr-Functions; TemplateExecError for arguments that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote_plus

from rules import errors
from rules.template import literals, printer, printf, values

_ORDERED = frozenset({"int", "uint", "float", "string"})
_INTEGERS = frozenset({"int", "uint"})

_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS = {
    "\\": "\\\\", "'": "\\'", '"': '\\"',
    "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D",
}  # fmt: skip  # more to a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function and how many arguments it takes."""

    call: Callable[..., object]
    fixed: int
    """How many arguments there must be."""
    variadic: bool
    """Whether there may be more."""
    format_first: bool = False
    """Whether the first argument must be a string, as printf's."""


def _fail(message: str) -> NoReturn:
    raise errors.TemplateExecError(message)


def _index_of(value: object, size: int) -> int:
    """An argument as an index up to and including `size`."""
    if not isinstance(value, int) or isinstance(value, bool):
        _fail(f"cannot index slice/array with type {values.type_name(value)}")
    if not 0 <= value <= size:
        _fail(f"index out of range: {value}")
    return value


def index(item: object, *places: object) -> object:
    """`index x 1 "k"` is x[1]["k"]; a key that a map lacks yields "", a string its bytes."""
    if item is None:
        _fail("index of untyped nil")
    for place in places:
        match item:
            case str():
                item = literals.encode(item)
                item = values.Byte(item[_within(place, len(item))])
            case list() | tuple():
                item = item[_within(place, len(item))]
            case dict():
                if not isinstance(place, str):
                    _fail(f"value has type {values.type_name(place)}; should be string")
                item = item.get(place, "")
            case _:
                _fail(f"can't index item of type {values.type_name(item)}")
    return item


def _within(value: object, size: int) -> int:
    place = _index_of(value, size)
    if place == size:
        _fail(f"index out of range: {place}")
    return place


def slice_(item: object, *places: object) -> object:
    """`slice x 1 2` is x[1:2], of a string by bytes; a third index limits a list's capacity."""
    if len(places) > 3:
        _fail(f"too many slice indexes: {len(places)}")
    whole: bytes | tuple[str, ...]
    if isinstance(item, str):
        if len(places) == 3:
            _fail("cannot 3-index slice a string")
        whole = literals.encode(item)
        size = len(whole)
    elif isinstance(item, list | tuple):
        whole = (*item, *item.beyond) if isinstance(item, values.Slice) else tuple(item)
        size = len(item)
    else:
        _fail(f"can't slice item of type {values.type_name(item)}")
    bounds = [_index_of(place, len(whole)) for place in places]
    start, end, limit = [*bounds, *(0, size, len(whole))[len(bounds) :]]
    if start > end:
        _fail(f"invalid slice index: {start} > {end}")
    if end > limit:
        _fail(f"invalid slice index: {end} > {limit}")
    if isinstance(whole, bytes):
        return literals.decode(whole[start:end])
    return values.Slice.cut(whole, start, end, limit)


def length(item: object) -> int:
    """The number of bytes of a string, or of elements."""
    if isinstance(item, str):
        return len(item) if item.isascii() else len(literals.encode(item))
    if isinstance(item, list | tuple | dict):
        return len(item)
    return _fail(f"len of type {values.type_name(item)}")


def call(function: object, *_: object) -> NoReturn:
    """Nothing in a template's data can be called."""
    if function is None:
        _fail("call of nil")
    _fail(f"non-function of type {values.type_name(function)}")


def not_(value: object) -> bool:
    return not values.truth(value)


def _equal(one: object, other: object) -> bool:
    kinds = values.kind(one), values.kind(other)
    if "invalid" in kinds:
        return one is other
    if kinds[0] != kinds[1] and not _INTEGERS.issuperset(kinds):
        if _is_composite(kinds[0]) and _is_composite(kinds[1]):
            _fail(f"non-comparable types {values.type_name(one)} and {values.type_name(other)}")
        _fail(
            "incompatible types for comparison: "
            f"{values.type_name(one)} and {values.type_name(other)}"
        )
    if isinstance(one, values.Record) and one.is_label:
        return isinstance(other, values.Record) and one.fields == other.fields
    if _is_composite(kinds[0]):
        _fail(f"non-comparable type {values.type_name(one)}")
    return one == other


def _is_composite(kind: values.Kind) -> bool:
    return kind in {"slice", "map", "struct"}


def equal(one: object, *others: object) -> bool:
    """Whether the first argument equals any of the others."""
    if not others:
        _fail("missing argument for comparison")
    return any(_equal(one, other) for other in others)


def not_equal(one: object, other: object) -> bool:
    return not _equal(one, other)


def _order(one: object, other: object) -> int:
    """Negative, zero or positive, as `one` is less than, equal to or greater than `other`."""
    kinds = values.kind(one), values.kind(other)
    for kind in kinds:
        if kind not in _ORDERED and kind not in {"bool", "complex"}:
            _fail("invalid type for comparison")
    if kinds[0] != kinds[1] and not _INTEGERS.issuperset(kinds):
        _fail(
            "incompatible types for comparison: "
            f"{values.type_name(one)} and {values.type_name(other)}"
        )
    match one, other:
        case (str(), str()):
            first, second = literals.encode(one), literals.encode(other)
            return (first > second) - (first < second)
        case (int() | float(), int() | float()) if kinds[0] in _ORDERED:
            return (one > other) - (one < other)
        case _:
            return _fail("invalid type for comparison")


def _text(arguments: Sequence[object]) -> str:
    """What Go's escaping functions work on: the arguments printed side by side."""
    if len(arguments) == 1 and isinstance(arguments[0], str):
        return arguments[0]
    return printf.sprint(["<no value>" if value is None else value for value in arguments])


def _bounded(text: str) -> str:
    if len(text) > printer.MAX_TEXT:
        raise printer.too_long()
    return text


def html(*arguments: object) -> str:
    return _bounded(_text(arguments).translate(_HTML))


def js(*arguments: object) -> str:
    """Escaped for a JavaScript string literal."""
    return _bounded("".join(map(_js, _text(arguments))))


def _js(char: str) -> str:
    code = ord(char)
    if char in _JS:
        return _JS[char]
    is_byte = 0xDC80 <= code <= 0xDCFF
    kept = 0x20 <= code < 0x80 or is_byte or literals.is_print(char)
    return char if kept else f"\\u{code:04X}"


def urlquery(*arguments: object) -> str:
    """Escaped for a URL's query."""
    return _bounded(quote_plus(literals.encode(_text(arguments))))


_FUNCTIONS = {
    "call": Function(call=call, fixed=1, variadic=True),
    "html": Function(call=html, fixed=0, variadic=True),
    "index": Function(call=index, fixed=1, variadic=True),
    "slice": Function(call=slice_, fixed=1, variadic=True),
    "js": Function(call=js, fixed=0, variadic=True),
    "len": Function(call=length, fixed=1, variadic=False),
    "not": Function(call=not_, fixed=1, variadic=False),
    "print": Function(call=lambda *operands: printf.sprint(operands), fixed=0, variadic=True),
    "printf": Function(
        call=lambda text, *operands: printf.sprintf(text, operands),
        fixed=1,
        variadic=True,
        format_first=True,
    ),
    "println": Function(call=lambda *operands: printf.sprintln(operands), fixed=0, variadic=True),
    "urlquery": Function(call=urlquery, fixed=0, variadic=True),
    "eq": Function(call=equal, fixed=1, variadic=True),
    "ne": Function(call=not_equal, fixed=2, variadic=False),
    "lt": Function(call=lambda one, other: _order(one, other) < 0, fixed=2, variadic=False),
    "le": Function(call=lambda one, other: _order(one, other) <= 0, fixed=2, variadic=False),
    "gt": Function(call=lambda one, other: _order(one, other) > 0, fixed=2, variadic=False),
    "ge": Function(call=lambda one, other: _order(one, other) >= 0, fixed=2, variadic=False),
}

NAMES = frozenset(_FUNCTIONS) | {"and", "or"}


def named(name: str) -> Function:
    """The function of a name other than `and` and `or`."""
    return _FUNCTIONS[name]
