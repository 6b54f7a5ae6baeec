"""Lines of styled text and their rendering with ANSI colours. Pure functions.

https://www.ecma-international.org/publications-and-standards/standards/ecma-48/ (SGR)
"""

from __future__ import annotations

from typing import NamedTuple

_SGR_CODES = {
    "strong": "1",
    "dim": "2",
    "load": "36",
    "good": "32",
    "high": "33",
    "replicas": "34",
    "waiting": "90",
    "bad": "31",
}
_RESET = "\x1b[0m"
_ELLIPSIS = "…"


class Span(NamedTuple):
    """Part of a line; `style` is a key of _SGR_CODES or empty."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def length(line: Line) -> int:
    """Return the number of characters."""
    return sum(len(each.text) for each in line)


def truncate(line: Line, width: int) -> Line:
    """Shorten a line to `width` characters; an ellipsis replaces the rest."""
    if length(line) <= width:
        return line
    left = max(0, width - 1)
    kept: list[Span] = []
    for each in line:
        kept.append(Span(each.text[:left], each.style))
        left -= len(kept[-1].text)
    return (*kept, Span(_ELLIPSIS[:width]))


def render(line: Line, *, colour: bool) -> str:
    """Return the text of a line, with escape sequences if `colour`."""
    return "".join(_render_span(each, colour=colour) for each in line if each.text)


def _render_span(span: Span, *, colour: bool) -> str:
    if not colour or not span.style:
        return span.text
    return f"\x1b[{_SGR_CODES[span.style]}m{span.text}{_RESET}"
