"""Go string literals, and shortened, escaped or counted texts, for messages and PromQL."""

from __future__ import annotations

from collections.abc import Iterable

MAX_ECHO = 1024
"""Characters of a name or a path that a message repeats. Kubernetes' names have at most 253."""

MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def shorten(text: str, limit: int = MAX_ECHO) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis if some are left out."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def shorten_middle(text: str, limit: int) -> str:
    """Return at most `limit` characters of a sentence; its end, which says what to do, stays."""
    head = limit // 2
    return text if len(text) <= limit else f"{text[:head]}…{text[head + 1 - limit :]}"


def listed(
    texts: Iterable[str],
    noun: str = "",
    *,
    most: int = MAX_NAMES,
    separator: str = ", ",
    count: int | None = None,
) -> str:
    """Return `a, b, c and 5 more`, or with a noun `a, b, c and 5 more pods`: at most `most`.

    `count` is the number of all texts if `texts` has only the first ones.
    """
    every = tuple(texts)
    first, more = separator.join(every[:most]), (count or len(every)) - most
    if more <= 0:
        return first
    return f"{first} and {counted(more, f'more {noun}') if noun else f'{more} more'}"


def counted(number: int, noun: str) -> str:
    """Return the number and the noun in its singular or plural: `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def escaped(text: str, *, keep: str = "") -> str:
    r"""Return `text` with each character that is not printable, but those of `keep`, as `\x1b`.

    Otherwise, the author of a file, a label or a request could forge lines or control a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def quote(text: str) -> str:
    r"""Return `text` as a Go string literal, as strconv.Quote does.

    A byte of invalid UTF-8, decoded with `surrogateescape`, becomes `\xNN` as in Go.
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def quote_shortened(text: str) -> str:
    """Quote at most MAX_ECHO characters of a text that a client chose."""
    return quote(shorten(text))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
