"""Types of flags, which parse text like Go's pflag."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from adapter.settings.flag import FlagType
from rules import quantity
from rules.errors import DurationError, SelectorError
from rules.selectors import selectors

S = TypeVar("S", bound=str)
T = TypeVar("T")

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
SWITCH = FlagType(name="", parse=_switch)
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
