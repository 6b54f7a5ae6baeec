"""One flag, and how text becomes its value: by the rules of Go's pflag and strconv."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from rules import quantity
from rules.errors import DurationError

Type = Literal["string", "bool", "int", "float", "duration", "strings", "array"]
Value = str | bool | int | float | tuple[str, ...]

WORKS = "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag as the command line, the help text and the README know it.

    `strings` is a list separated by commas, `array` takes each value whole; both may be repeated.
    """

    name: str
    type: Type
    default: str
    """As it would be written on the command line; "" for an empty list."""
    group: str
    help: str
    effect: str = WORKS
    """`WORKS`, or the reason why giving the flag changes nothing."""
    shorthand: str = ""

    @property
    def works(self) -> bool:
        return self.effect == WORKS

    def read(self, text: str) -> Value:
        """The value that `text` stands for; a duration is in nanoseconds.

        Raises ValueError, whose text says what is wrong with it.
        """
        return _READERS[self.type](text)

    def initial(self) -> Value:
        """The value without the flag."""
        if self.type in ("strings", "array") and not self.default:
            return ()
        return self.read(self.default)


def _boolean(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("neither true nor false")


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9][0-9a-zA-Z_]*", text):
        raise ValueError("not a whole number")
    # Go reads a leading zero as octal, Python refuses it.
    base = 8 if re.fullmatch(r"[+-]?0[0-9_]+", text) else 0
    try:
        value = int(text, base)
    except ValueError as error:
        raise ValueError("not a whole number") from error
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def _number(text: str) -> float:
    try:
        value = float(text) if text == text.strip() else math.nan
    except ValueError as error:
        raise ValueError("not a number") from error
    if not math.isfinite(value):
        raise ValueError("not a number")
    return value


def _duration(text: str) -> int:
    try:
        return quantity.go_duration(text)
    except DurationError as error:
        raise ValueError(f"not a duration such as 90s or 1m30s: {error}") from error


def _strings(text: str) -> tuple[str, ...]:
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"not a list separated by commas: {error}") from error
    return tuple(rows[0]) if rows else ()


def _array(text: str) -> tuple[str, ...]:
    return (text,)


_READERS: Mapping[Type, Callable[[str], Value]] = {
    "string": str,
    "bool": _boolean,
    "int": _integer,
    "float": _number,
    "duration": _duration,
    "strings": _strings,
    "array": _array,
}
