"""Lines of styled text, cut to a terminal's width; pure.

https://www.ecma-international.org/publications-and-standards/standards/ecma-48/ (SGR)
"""

from __future__ import annotations

from typing import NamedTuple

_SGR = {
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
_CUT = "…"


class Ink(NamedTuple):
    """A piece of a line; `style` is one of those above, or none."""

    text: str
    style: str = ""


Line = tuple[Ink, ...]


def length(line: Line) -> int:
    return sum(len(each.text) for each in line)


def cut(line: Line, width: int) -> Line:
    """What fits, its last character a sign that there was more."""
    if length(line) <= width:
        return line
    left = max(0, width - 1)
    kept: list[Ink] = []
    for each in line:
        kept.append(Ink(each.text[:left], each.style))
        left -= len(kept[-1].text)
    return (*kept, Ink(_CUT[:width]))


def render(line: Line, *, colour: bool) -> str:
    return "".join(_piece(each, colour=colour) for each in line if each.text)


def _piece(ink: Ink, *, colour: bool) -> str:
    if not colour or not ink.style:
        return ink.text
    return f"\x1b[{_SGR[ink.style]}m{ink.text}{_RESET}"
