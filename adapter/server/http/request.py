"""One HTTP request in progress, and its connection as the layers above see it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from typing import Protocol

from aiohttp.http import RawRequestMessage
from multidict import MultiMapping


class ClientConnection(Hashable, Protocol):
    """The connection of a request."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None after the end of the connection."""

    def set_timeout(self, seconds: float) -> float:
        """Cancel the request in progress, and mark it as timed out, in `seconds`.

        Returns when that is, in the event loop's time.
        """


class Request:
    """A request in progress."""

    __slots__ = (
        "client",
        "deadline",
        "headers",
        "is_last",
        "method",
        "raw_headers",
        "target",
        "timed_out",
    )

    def __init__(self, message: RawRequestMessage, client: ClientConnection) -> None:
        self.method: str = message.method
        self.target: str = message.path
        """As it was sent; bytes that are not UTF-8 are lone surrogates."""
        self.headers: MultiMapping[str] = message.headers
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = message.raw_headers
        self.client = client
        self.is_last = False
        """Whether the handler wants the connection to end after the response."""
        self.deadline = math.inf
        """When the request times out, in the event loop's time; the connection sets it first."""
        self.timed_out = False

    @property
    def printable_target(self) -> str:
        """The target for the log: ASCII, at most 500 characters before escaping."""
        return self.target[:500].encode("ascii", "backslashreplace").decode()

    def set_timeout(self, seconds: float) -> None:
        """Cancel the handler in `seconds`."""
        self.deadline = self.client.set_timeout(seconds)
