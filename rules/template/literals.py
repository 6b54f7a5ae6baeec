r"""Go's literals (strconv.Unquote; text/template/parse/node.go: newNumber).

All strings are Unicode text: a literal whose bytes are not UTF-8, such as `"\xff"`, is refused.
"""

from __future__ import annotations

import math
import re

_ESCAPE = re.compile(
    r"""\\(?:(?P<simple>[abfnrtv\\'"])|x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})
    |u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|.?)""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))
_LEGACY_OCTAL = re.compile(r"^([+-]?)0(?=[0-9_])")


class LiteralError(ValueError):
    """Source text that is not a valid literal."""


def string(literal: str) -> str:
    """Return the value of a quoted or raw string. Raises LiteralError.

    https://go.dev/ref/spec#String_literals
    """
    body = literal[1:-1]
    if literal[0] == "`":
        return body.replace("\r", "")
    if "\\" not in body:
        return body
    data, end = bytearray(), 0
    for escape in _ESCAPE.finditer(body):
        code = _code(escape, '"')
        data += body[end : escape.start()].encode()
        data += bytes([code]) if escape["hex"] or escape["octal"] else chr(code).encode()
        end = escape.end()
    data += body[end:].encode()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LiteralError(f"string is not UTF-8: {literal}") from error


def character(literal: str) -> int:
    """Return the code point of a character literal. Raises LiteralError."""
    body = literal[1:-1]
    if len(body) == 1 and body != "\\":
        return ord(body)
    escape = _ESCAPE.fullmatch(body)
    if escape is None:
        raise LiteralError(f"malformed character constant: {literal}")
    return _code(escape, "'")


def _code(escape: re.Match[str], quote: str) -> int:
    """Return the code point of an escape, or the byte of a hex or octal escape."""
    if simple := escape["simple"]:
        if simple in "'\"" and simple != quote:
            raise LiteralError(f"invalid escape {escape[0]}")
        return ord(_SIMPLE[simple])
    if octal := escape["octal"]:
        return int(octal, 8)
    digits = escape["hex"] or escape["short"] or escape["long"]
    code = int(digits, 16) if digits else -1
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError(f"invalid escape {escape[0]}")
    return code


def number(text: str) -> int | float:
    """Return the value of a number: an int of 64 bits, or a float where it has `.` or `e`.

    Raises LiteralError. Hexadecimal floats and imaginary numbers are not supported.
    """
    value: int | float
    try:
        value = int(_LEGACY_OCTAL.sub(r"\g<1>0o", text), 0)
    except ValueError:
        pass
    else:
        if -(1 << 63) <= value < 1 << 63:
            return value
        raise LiteralError(f"integer overflow: {text}")
    try:
        value = float(text)
    except ValueError as error:
        raise LiteralError(f"illegal number syntax: {text}") from error
    if math.isinf(value) or {".", "e", "E"}.isdisjoint(text):
        raise LiteralError(f"illegal number syntax: {text}")
    return value
