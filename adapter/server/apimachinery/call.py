"""What a handler gets of one request: its head, what was parsed from it, and who sent it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from adapter.server.apimachinery.heads import Head
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.http.request import Request


class Caller(Protocol):
    """The user who sent a request, as far as handlers need to know them."""

    async def may_read(self, path: str) -> bool:
        """Return whether the caller may GET a non-resource path; False if that cannot be told."""
        ...

    def is_known_to_read(self, path: str) -> bool:
        """Return the same without waiting: False until it is known."""
        ...


@dataclass(frozen=True, slots=True)
class _Anybody:
    """Caller with the same right to all paths."""

    allowed: bool

    async def may_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return self.allowed

    def is_known_to_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return self.allowed


UNKNOWN: Caller = _Anybody(allowed=False)
"""Caller of a request before authentication."""
EVERYBODY: Caller = _Anybody(allowed=True)
"""Caller of a server without authentication, which listens on a loopback address only."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request in progress, with what was parsed from it."""

    request: Request
    head: Head
    info: RequestInfo
    caller: Caller = UNKNOWN
