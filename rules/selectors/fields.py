"""Field selectors, `metadata.name=web-0`, read as Kubernetes reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rules.errors import SelectorError

_TERM = re.compile(r"(?:[^\\,]|\\.)*\\?", re.DOTALL)
_COMPARISON = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRequirement:
    """One condition on one field of an object."""

    field: str
    operator: Literal["=", "!="]
    value: str


def parse_fields(text: str) -> tuple[FieldRequirement, ...]:
    """The conditions of a field selector, all of which must hold; none for the empty text.

    In the order of their sorted texts, as fields.ParseSelector of k8s.io/apimachinery leaves them.
    Raises SelectorError with its messages.
    """
    requirements: list[FieldRequirement] = []
    for term in sorted(_split(text)):
        if not term:
            continue
        match = _COMPARISON.fullmatch(term)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        requirements.append(
            FieldRequirement(
                field=match["field"],
                operator="!=" if match["operator"] == "!=" else "=",
                value=_unescape(match["value"]),
            )
        )
    return tuple(requirements)


def _split(text: str) -> list[str]:
    """The terms between commas that no backslash precedes."""
    terms: list[str] = []
    position = 0
    while position <= len(text):
        match = _TERM.match(text, position)
        assert match is not None  # the pattern may be empty
        terms.append(match[0])
        position = match.end() + 1
    return terms


def _unescape(value: str) -> str:
    plain: list[str] = []
    characters = iter(value)
    for character in characters:
        if character == "=":
            raise SelectorError(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        if character != "\\":
            plain.append(character)
            continue
        escaped = next(characters, "")
        if escaped not in ("\\", ",", "="):
            raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
        plain.append(escaped)
    return "".join(plain)
