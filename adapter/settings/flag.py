"""Declaration of flags: fields of frozen dataclasses that hold a `Flag` as metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from rules.findings import Finding

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
    return flags(
        Flag(name=name, type=flag_type, help=description, default=default, shorthand=shorthand)
    )


def flags(*declared: Flag[T]) -> T:
    """Declare a dataclass field that several flags set, in the order of the command line."""
    default = declared[0].type.parse(declared[0].default)
    return dataclasses.field(default=default, metadata={_METADATA: declared})
