"""Reads the objects of a list or a watch one by one: what one contains cannot harm the others.

An object without a name is the fault of the server, not of who wrote the object: the caller
reports the response as broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rules.quoting import shorten

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_PROBLEM = 200
"""Characters that are kept of the message of an exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object whose document cannot be read; it is as if it did not exist."""

    namespace: str
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}".removeprefix("/")


def read(item: Any, extract: Callable[[Any], T]) -> T | Unreadable:
    """Return `extract(item)`, or the name of the object if that fails, whatever it raises.

    Raises AttributeError, KeyError or TypeError for an item that is no object.
    """
    found = attempt(item, extract)
    if not isinstance(found, Exception):
        return found
    metadata = item["metadata"]
    return Unreadable(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        problem=shorten(f"{type(found).__name__}: {found}", _MAX_PROBLEM),
    )


def attempt(item: Any, extract: Callable[[Any], T]) -> T | Exception:
    """Return `extract(item)`, or the exception that it raises, of whatever class."""
    try:
        return extract(item)
    except Exception as error:  # noqa: BLE001 (a defect that one object meets ends nothing else)
        return error


def log_unreadable(path: str, found: Unreadable) -> None:
    """Log that an object of the collection at `path` is left out."""
    log.warning("%s: %s cannot be read and is left out: %s", path, found, found.problem)
