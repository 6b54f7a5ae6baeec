"""One HTTP request, and the cache of what follows from its head alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from aiohttp import hdrs
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDict, MultiMapping

from adapter.cache import LRUCache
from adapter.http import request_info
from adapter.http.request_info import RequestInfo

AUDIT_ID = "Audit-Id"
_UNIQUE = (AUDIT_ID, "Traceparent")
"""Headers that the API server gives each request another value. A head does not have them, so that
nothing that is remembered can follow from them."""
_UNIQUE_RAW = frozenset(name.encode() for name in _UNIQUE)
"""As the API server writes them."""

_MAX_CACHED = 8 << 20
"""Bytes of the remembered heads and of what was parsed from them."""
_MAX_HEAD = 4096
"""Bytes of a head that is remembered. One that the API server forwards has less than 1 KiB."""
_PARSED_SIZE = 4096
"""Bytes of a remembered head beside its text."""


class Client(Hashable, Protocol):
    """The connection of a request."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None after the end of the connection."""
        ...

    def set_timeout(self, seconds: float) -> float:
        """Cancel the request in progress, and mark it as timed out, in `seconds`.

        Returns when that is, in the event loop's time.
        """
        ...


class Head:
    """Head of a request, parsed. Equal heads share one object while it is remembered.

    So other caches can remember what follows from a head by its identity.
    """

    __slots__ = ("headers", "info", "is_remembered")

    def __init__(self, headers: MultiMapping[str], info: RequestInfo) -> None:
        self.headers = headers
        """Without those that differ between equal heads, as Audit-Id does."""
        self.info = info
        self.is_remembered = False
        """Whether other caches may have the head as a key; its size is limited then."""


class Request:
    """A request in progress."""

    __slots__ = (
        "can_read_discovery",
        "client",
        "deadline",
        "head",
        "headers",
        "is_last",
        "method",
        "raw_headers",
        "target",
        "timed_out",
    )

    head: Head
    """Set before the first handler runs."""

    def __init__(self, message: RawRequestMessage, client: Client) -> None:
        self.method: str = message.method
        self.target: str = message.path
        """As it was sent; bytes that are not UTF-8 are lone surrogates."""
        self.headers: MultiMapping[str] = message.headers
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = message.raw_headers
        self.client = client
        self.is_last: bool = message.should_close or message.version < (1, 1)
        """Whether the response ends the connection."""
        self.deadline = math.inf
        """When the request times out, in the event loop's time; the connection sets it first."""
        self.timed_out = False
        self.can_read_discovery: Callable[[str], Awaitable[bool]] | None = None
        """Returns whether the caller may also GET a non-resource path; the filters in `auth` set
        it."""

    def set_timeout(self, seconds: float) -> None:
        """Cancel the handler in `seconds`."""
        self.deadline = self.client.set_timeout(seconds)


class Heads:
    """Cache of parsed heads (LRU): a replica gets the same few thousand again and again."""

    def __init__(self) -> None:
        self.cache: LRUCache[tuple[object, ...], Head] = LRUCache(_MAX_CACHED)

    def parse(self, request: Request) -> Head:
        """Return the head of `request`.

        Raises MalformedError, and ApiError (400) for a target that exceeds a limit.
        """
        raw = tuple([each for each in request.raw_headers if each[0] not in _UNIQUE_RAW])
        key = (request.method, request.target, raw)
        head = self.cache.get(key)
        if head is None:
            path, _, query = request.target.partition("?")
            info = request_info.parse(path, query, request.method)
            head = Head(_without_unique(request.headers), info)
            size = len(request.target) + sum(len(name) + len(value) for name, value in raw)
            # Tokens are not kept in memory.
            if size <= _MAX_HEAD and hdrs.AUTHORIZATION not in request.headers:
                head.is_remembered = True
                self.cache.set(key, head, size=size + _PARSED_SIZE)
        return head


def _without_unique(headers: MultiMapping[str]) -> MultiMapping[str]:
    remaining = CIMultiDict(headers)
    for name in _UNIQUE:
        remaining.popall(name, None)
    return remaining
