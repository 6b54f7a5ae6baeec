"""Field selectors (`metadata.name=web-0`), parsed as in Kubernetes."""

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
    """Parse a field selector, as fields.ParseSelector of k8s.io/apimachinery does.

    All requirements must hold; they are sorted by their text. Raises SelectorError with the
    messages of Kubernetes.
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
    """Return the terms between commas that are not escaped."""
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
