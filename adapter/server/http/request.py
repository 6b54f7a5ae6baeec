"""One HTTP request in progress, and its connection as the layers above see it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from aiohttp import web
from multidict import MultiMapping


class ClientConnection(Hashable, Protocol):
    """The connection of a request."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None after the end of the connection."""

    identity: object
    """What authentication knows about the client; None before the first request."""

    def set_timeout(self, seconds: float) -> float:
        """Cancel the request in progress, and mark it as timed out, in `seconds`.

        Returns when that is, in the event loop's time.
        """


class Request:
    """A request in progress."""

    __slots__ = (
        "client",
        "deadline",
        "head",
        "headers",
        "is_last",
        "method",
        "target",
        "timed_out",
    )

    def __init__(
        self, received: web.BaseRequest, head: bytes, client: ClientConnection, deadline: float
    ) -> None:
        self.head = head
        """As it was sent. Equal heads mean the same."""
        self.method: str = received.method
        self.target: str = received.raw_path
        """As it was sent; bytes that are not UTF-8 are lone surrogates."""
        self.headers: MultiMapping[str] = received.headers
        self.client = client
        self.is_last = False
        """Whether the handler wants the connection to end after the response."""
        self.deadline = deadline
        """When the request times out, in the event loop's time."""
        self.timed_out = False

    @property
    def printable_target(self) -> str:
        """The target for the log: ASCII, at most 500 characters before escaping."""
        return self.target[:500].encode("ascii", "backslashreplace").decode()

    def set_timeout(self, seconds: float) -> None:
        """Cancel the handler in `seconds`."""
        self.deadline = self.client.set_timeout(seconds)
