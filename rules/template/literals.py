r"""Go's literals: strings, characters and numbers as source text, and strings quoted back.

A Go string is bytes. Here it is a `str` whose bytes outside UTF-8 are lone surrogates, as the
`surrogateescape` error handler has them, so that `"\xff"` survives until it is printed.
"""

from __future__ import annotations

import re

from rules import quoting

_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\",
}  # fmt: skip  # more to a line
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\\'\"])|x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<bad>.?))",
    re.DOTALL,
)

_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F_]+)|0[oO]([0-7_]+)|0[bB]([01_]+)|(0[0-7_]+)|([0-9][0-9_]*))"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9_]+\.?[0-9_]*|\.[0-9_]+)(?:[eE][+-]?[0-9_]+)?")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9_]+"
)


class LiteralError(ValueError):
    """Source text that is no literal; the message is Go's."""


def encode(text: str) -> bytes:
    """The bytes of a Go string; UnicodeEncodeError for surrogates that stand for no byte."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """A Go string of these bytes."""
    return data.decode("utf-8", "surrogateescape")


def normal(text: str) -> str:
    """The same bytes with every sequence that has become whole as its character."""
    return text if text.isascii() else decode(encode(text))


def _rune(match: re.Match[str], quote: str) -> str | int:
    """What an escape stands for: text, or the number of a single byte."""
    simple, digits = match["simple"], match["hex"] or match["short"] or match["long"]
    if simple is not None:
        if simple in "'\"":
            if simple != quote:
                raise LiteralError("invalid syntax")
            return str(simple)
        return _ESCAPES[simple]
    if match["octal"] is not None or match["hex"] is not None:
        value = int(match["octal"], 8) if match["octal"] else int(digits, 16)
        if value > 0xFF:
            raise LiteralError("invalid syntax")
        return value
    if digits is None:
        raise LiteralError("invalid syntax")
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("invalid syntax")
    return chr(code)


def unquote(literal: str) -> str:
    """The value of an interpreted or raw string literal, its quotes included.

    https://go.dev/ref/spec#String_literals; LiteralError for a bad escape.
    """
    body = literal[1:-1]
    if literal[0] == "`":
        return body.replace("\r", "")
    if "\\" not in body:
        return body

    def text(match: re.Match[str]) -> str:
        rune = _rune(match, '"')
        if isinstance(rune, str):
            return rune
        return chr(rune) if rune < 0x80 else chr(0xDC00 + rune)

    return normal(_ESCAPE.sub(text, body))


def character(literal: str) -> int:
    """The value of a character literal, its quotes included; LiteralError."""
    body = literal[1:-1]
    if not body:
        raise LiteralError("invalid syntax")
    if body[0] != "\\":
        rune: str | int = body[0]
        end = 1
    else:
        match = _ESCAPE.match(body)
        assert match is not None
        rune, end = _rune(match, "'"), match.end()
    if end != len(body):
        raise LiteralError(f"malformed character constant: {literal}")
    return rune if isinstance(rune, int) else ord(rune)


def _underscores_separate_digits(text: str) -> bool:
    unsigned = text.lstrip("+-")
    based = unsigned[:2].lower() in {"0x", "0o", "0b"}
    digit = "[0-9a-fA-F]" if unsigned[:2].lower() == "0x" else "[0-9]"
    number = "0" + unsigned[2:] if based else unsigned
    return not re.search(f"(?<!{digit})_|_(?!{digit})", number)


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None or not _underscores_separate_digits(text):
        return None
    sign, hexa, octal, binary, legacy, decimal = match.groups()
    digits, base = next(
        (digits, base)
        for digits, base in ((hexa, 16), (octal, 8), (binary, 2), (legacy, 8), (decimal, 10))
        if digits is not None
    )
    if base == 10 and digits[0] == "0" and digits != "0":
        return None
    value = 0
    try:
        value = int(digits.replace("_", ""), base)
    except ValueError:  # Python refuses decimal numbers of thousands of digits
        value = 1 << 64
    return -value if sign == "-" else value


def _float(text: str) -> float | None:
    if not _underscores_separate_digits(text):
        return None
    plain = text.replace("_", "")
    try:
        if _HEXADECIMAL.fullmatch(text):
            return float.fromhex(plain)
        if _DECIMAL.fullmatch(text):
            value = float(plain)
            return None if value in {float("inf"), float("-inf")} else value
    except (ValueError, OverflowError):
        return None
    return None


def _complex(text: str) -> complex | None:
    """`1+2i`, each part a floating-point number."""
    split = max(text.rfind("+"), text.rfind("-"))
    if split > 0 and text[split - 1] in "eEpP":
        split = max(text.rfind("+", 0, split), text.rfind("-", 0, split))
    real, imaginary = _float(text[:split]), _float(text[split:-1])
    return None if real is None or imaginary is None else complex(real, imaginary)


def number(text: str) -> int | float | complex | None:
    """The value of a number with Go's choice of type; None for an integer beyond 64 bits' half.

    An integer is Go's int (64 bits) and anything with `.`, `e` or `p` a float64. LiteralError for
    text that is no number; an integer that fits only uint64 is one, and fails when it is used.
    """
    if text[-1:] == "i":
        imaginary = _float(text[:-1])
        value = _complex(text) if imaginary is None else complex(0, imaginary)
        if value is None:
            raise LiteralError(f'illegal number syntax: "{text}"')
        return value
    integer = _integer(text)
    if integer is not None and -(1 << 63) <= integer < 1 << 64:
        if integer >= 1 << 63:
            if text[0] == "+":
                raise LiteralError(f'integer overflow: "{text}"')
            return None
        if text[0] in "+-" and not {"e", "E"}.isdisjoint(text):
            return float(integer)  # Go takes a signed -0xe for a float
        return integer
    fraction = _float(text)
    if fraction is None and integer is None:
        raise LiteralError(f'illegal number syntax: "{text}"')
    if fraction is None or {".", "e", "E", "p", "P"}.isdisjoint(text):
        raise LiteralError(f'integer overflow: "{text}"')
    return fraction


def is_print(char: str) -> bool:
    """Go's unicode.IsPrint: letters, marks, numbers, punctuation, symbols and the ASCII space."""
    return char.isprintable()


def quote(text: str, *, ascii_only: bool = False) -> str:
    """Go's %q of a string: strconv.Quote, or QuoteToASCII."""
    quoted = quoting.quote(text)
    return _BEYOND_ASCII.sub(_in_ascii, quoted) if ascii_only else quoted


def quote_character(char: str, *, ascii_only: bool = False) -> str:
    """Go's %q of an integer: strconv.QuoteRune, or QuoteRuneToASCII."""
    if char in "'\"":
        return "'\\''" if char == "'" else "'\"'"
    return f"'{quote(char, ascii_only=ascii_only)[1:-1]}'"


def _in_ascii(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def can_backquote(text: str) -> bool:
    """Whether the text could stand between backquotes unchanged: strconv.CanBackquote."""
    return not re.search("[\x00-\x08\x0a-\x1f`\x7f\ufeff\udc80-\udcff]", text)
