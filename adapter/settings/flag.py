"""Declaration of flags: fields of frozen dataclasses with a `Flag` as metadata; types of flags.

Types parse text like Go's pflag.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from rules import quantity
from rules.errors import DurationError, SelectorError
from rules.findings import Finding
from rules.selectors import selectors

T = TypeVar("T")

_METADATA = "flags"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagType(Generic[T]):
    """Type of a flag's value."""

    name: str
    """Placeholder in the help text; empty for a switch, which needs no value."""
    parse: Callable[[str], T]
    """Raises ValueError; its text says what is expected."""
    repeatable: bool = False
    """Whether each occurrence of the flag appends to its value, a tuple."""
    options: tuple[str, ...] = ()
    """All values, for completion; empty if they cannot be listed."""
    redact: Callable[[str], str] = str
    """Function that removes secrets from the text, for an error message."""
    default: str = ""
    """Default of the flags of this type that declare none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Generic[T]):
    """Declaration of one flag."""

    name: str
    type: FlagType[T]
    help: str = ""
    default: str = ""
    """Text as on the command line."""
    shorthand: str = ""
    ignored: str = ""
    """Why the flag has no effect; empty if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagGroup:
    """Base of the dataclasses whose fields are flags."""

    TITLE: ClassVar[str]
    """Heading in the help text."""

    @classmethod
    def flags(cls) -> Iterable[tuple[str, Flag[Any]]]:
        """Yield each flag of the group with the name of the field that it sets."""
        for field in dataclasses.fields(cls):
            for declared in field.metadata[_METADATA]:
                yield field.name, declared

    def problems(self) -> Iterable[Finding]:
        """Yield the conflicts between the flags of this group."""
        return ()


def flag(
    name: str, flag_type: FlagType[T], description: str, *, default: str = "", shorthand: str = ""
) -> T:
    """Declare a dataclass field that one flag sets."""
    default = default or flag_type.default
    return flags(
        Flag(name=name, type=flag_type, help=description, default=default, shorthand=shorthand)
    )


def flags(*declared: Flag[T]) -> T:
    """Declare a dataclass field that several flags set, in the order of the command line."""
    default = declared[0].type.parse(declared[0].default)
    return dataclasses.field(default=default, metadata={_METADATA: declared})


S = TypeVar("S", bound=str)

MAX_PERIOD = 31 * 86_400.0
_MIN_PERIOD = 60.0


def _switch(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("must be true or false")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError("must be a number") from error
    if not math.isfinite(value):
        raise ValueError("must be a number")
    return value


def _label_selector(text: str) -> str:
    try:
        selectors.parse(text)
    except SelectorError as error:
        raise ValueError(f"must be a label selector, such as key=value: {error}") from error
    return text


def _period(text: str) -> float:
    try:
        seconds = quantity.prometheus_duration(text) / 1e9
    except DurationError as error:
        raise ValueError(f"must be a duration such as 7d or 12h: {error}") from error
    if not _MIN_PERIOD <= seconds <= MAX_PERIOD:
        raise ValueError("must be from 1m to 31d")
    return seconds


STRING = FlagType(name="string", parse=str)
FILE: FlagType[str | None] = FlagType(name="file", parse=lambda text: text or None)
SWITCH = FlagType(name="", parse=_switch, default="false")
NUMBER = FlagType(name="number", parse=_number)
LABEL_SELECTOR = FlagType(name="selector", parse=_label_selector)
PERIOD = FlagType(name="duration", parse=_period)
"""How much of the past, in seconds, as Prometheus writes it: `7d`."""


def integer(minimum: float = -math.inf, maximum: float = math.inf) -> FlagType[int]:
    """Return a type for decimal integers from `minimum` to `maximum`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError("must be an integer")
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"must be between {minimum} and {maximum}")
        return value

    return FlagType(name="int", parse=parse)


def duration(*, positive: bool = False) -> FlagType[float]:
    """Return a type for Go durations such as `1m30s`; the value is in seconds, never negative."""

    def parse(text: str) -> float:
        try:
            seconds = quantity.go_duration(text) / 1e9
        except DurationError as error:
            raise ValueError(f"must be a duration such as 90s or 1m30s: {error}") from error
        if seconds < 0 or (positive and seconds == 0):
            raise ValueError(f"must be {'more than 0' if positive else '0 or more'}")
        return seconds

    return FlagType(name="duration", parse=parse)


def choice(*options: S) -> FlagType[S]:
    """Return a type for one of `options`."""

    def parse(text: str) -> S:
        for option in options:
            if option == text:
                return option
        raise ValueError(f"must be {' or '.join(options)}")

    return FlagType(name="string", parse=parse, options=options)


def comma_separated(
    check: Callable[[tuple[str, ...]], object] | None = None,
) -> FlagType[tuple[str, ...]]:
    """Return a type for comma-separated lists; `check` raises ValueError for an invalid list."""

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(item for item in text.split(",") if item)
        if check is not None:
            check(items)
        return items

    return FlagType(name="strings", parse=parse, repeatable=True)


def repeated(
    name: str, parse_item: Callable[[str], T], *, redact: Callable[[str], str] = str
) -> FlagType[tuple[T, ...]]:
    """Return a type for lists: each occurrence of the flag adds one item, unless it is empty."""

    def parse(text: str) -> tuple[T, ...]:
        return (parse_item(text),) if text else ()

    return FlagType(name=name, parse=parse, repeatable=True, redact=redact)
