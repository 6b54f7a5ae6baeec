"""The user who sent a request, as far as the router needs to know them."""

from __future__ import annotations

import contextlib
from typing import Protocol


class Caller(Protocol):
    """User whose request is authorized."""

    @property
    def slot(self) -> contextlib.AbstractContextManager[None]:
        """Context that holds a slot of the in-flight limit; raises TextError (429) on entry."""
        ...

    async def may_read(self, path: str) -> bool:
        """Return whether the caller may GET a non-resource path; False if that cannot be told."""
        ...

    def is_known_to_read(self, path: str) -> bool:
        """Return the same without waiting: False until it is known."""
        ...


class _Everybody:
    slot = contextlib.nullcontext()

    async def may_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return True

    def is_known_to_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return True


EVERYBODY: Caller = _Everybody()
"""Caller of a server without authentication, which listens on a loopback address only."""
