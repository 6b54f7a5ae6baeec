"""Heads of requests, parsed, and the cache of them."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import hdrs
from multidict import CIMultiDict, MultiMapping

from adapter import bounds
from adapter.cache import LRUCache
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.http.request import Request

AUDIT_ID = "Audit-Id"
_UNIQUE = (AUDIT_ID, "Traceparent")
"""Headers that the API server gives each request another value. A head does not have them, so that
nothing that is remembered can follow from them."""
_UNIQUE_LINES = tuple(f"\r\n{name}: ".encode() for name in _UNIQUE)
"""Their beginnings, as the API server writes them."""
_UNIQUE_VALUE = re.compile(rb"[\w-]{0,100}\r\n(?![ \t])")
"""Value of such a line. Another one stays in the key, such as one that the next line continues."""

_MAX_HEAD = 32 << 10
"""Bytes of a remembered head. One that the API server forwards has 10 KiB."""
_HEAD_SIZE = 2048
"""Bytes beside its parts, with the user and the attributes that are kept with it."""
_HEADER_SIZE = 200
"""Bytes of a header beside its characters."""


class Head:
    """Head of a request, parsed. Equal heads share one object while it is remembered.

    What follows from a head is kept with it, while it is remembered.
    """

    __slots__ = ("admitted", "answer", "headers", "info", "key", "size", "user")

    def __init__(self, headers: MultiMapping[str], info: RequestInfo) -> None:
        self.headers = headers
        """Without those that differ between equal heads, as Audit-Id does."""
        self.info = info
        self.size = 0
        """Estimated bytes, with what is parsed from it, once it is remembered."""
        self.key = b""
        """That of the cache; empty until the head is remembered."""
        self.user: tuple[object, Any] | None = None
        """The user that front proxies name, after the trust under which they may."""
        self.admitted: Any = None
        """What the filters know about requests with this head."""
        self.answer: Any = None
        """What the router answered last."""

    @property
    def is_remembered(self) -> bool:
        """Whether it may come again, as the same object."""
        return bool(self.key)


class Heads:
    """Cache of parsed heads (LRU): a replica gets the same few thousand again and again."""

    def __init__(self) -> None:
        self.cache: LRUCache[bytes, Head] = LRUCache(bounds.HEADS)

    def parse(self, request: Request) -> Head:
        """Return the head of `request`, which is remembered only if `remember` is called.

        Raises MalformedError, and ApiError (400) for a target that exceeds a limit.
        """
        head = self.cache.get(_key(request.head))
        if head is None:
            path, _, query = request.target.partition("?")
            info = request_info.parse(path, query, request.method)
            head = Head(_without_unique(request.headers), info)
        return head

    def remember(self, request: Request, head: Head) -> None:
        """Remember the head of an authorized request, unless it is large or has a token.

        Heads of other requests are not remembered. Otherwise, clients without rights could evict
        those of autoscalers.
        """
        if head.is_remembered or hdrs.AUTHORIZATION in head.headers:
            return
        key = _key(request.head)
        size = head.info.size + _size(key, request)
        if size <= _MAX_HEAD:
            head.key, head.size = key, size
            self.cache.set(key, head, size=size)

    def keep(self, head: Head, answer: object, *, size: int) -> None:
        """Keep what the router answered with a head, unless it is large; `size` is in bytes."""
        if not head.is_remembered:
            return
        if head.size + size > _MAX_HEAD:
            answer, size = None, 0
        head.answer = answer
        self.cache.resize(head.key, head, size=head.size + size)


def _key(head: bytes) -> bytes:
    """Return a head without the lines that differ between equal heads."""
    for line in _UNIQUE_LINES:
        start = head.find(line)
        if start >= 0 and (value := _UNIQUE_VALUE.match(head, start + len(line))):
            head = head[:start] + head[value.end() - 2 :]
    return head


def _size(key: bytes, request: Request) -> int:
    """Return the estimated bytes of a head, without those of its RequestInfo.

    Each character of a header is kept as a byte, and as parsed: then it takes up to four bytes.
    """
    characters = (2 if key.isascii() else 5) * (len(key) - len(request.target))
    return _HEAD_SIZE + _HEADER_SIZE * len(request.headers) + len(key) + characters


def _without_unique(headers: MultiMapping[str]) -> MultiMapping[str]:
    remaining = CIMultiDict(headers)
    for name in _UNIQUE:
        remaining.popall(name, None)
    return remaining
