"""Heads of requests, parsed, and the cache of them."""

from __future__ import annotations

import sys

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
_UNIQUE_RAW = frozenset(name.encode() for name in _UNIQUE)
"""As the API server writes them."""

_MAX_HEAD = 32 << 10
"""Bytes of a remembered head. One that the API server forwards has 10 KiB."""
_HEAD_SIZE = 2048
"""Bytes beside its parts, with the user and the attributes that other caches keep with it."""
_HEADER_SIZE = 200
"""Bytes of a header beside its characters."""


_Key = tuple[str, str, tuple[tuple[bytes, bytes], ...]]
"""Method, target and headers."""


class Head:
    """Head of a request, parsed. Equal heads share one object while it is remembered.

    So other caches can remember what follows from a head by its identity.
    """

    __slots__ = ("headers", "info", "is_remembered", "size")

    def __init__(self, headers: MultiMapping[str], info: RequestInfo) -> None:
        self.headers = headers
        """Without those that differ between equal heads, as Audit-Id does."""
        self.info = info
        self.size = 0
        """Estimated bytes, with what is parsed from it, once it is remembered."""
        self.is_remembered = False
        """Whether other caches may have the head, or its `info`, as a key: it may come again, and
        its size is limited."""


class Heads:
    """Cache of parsed heads (LRU): a replica gets the same few thousand again and again."""

    def __init__(self) -> None:
        self.cache: LRUCache[_Key, Head] = LRUCache(bounds.HEADS)

    def parse(self, request: Request) -> Head:
        """Return the head of `request`, which is remembered only if `remember` is called.

        Raises MalformedError, and ApiError (400) for a target that exceeds a limit.
        """
        head = self.cache.get(_key(request))
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
        key = _key(request)
        size = head.info.size + _size(key)
        if size <= _MAX_HEAD:
            head.is_remembered, head.size = True, size
            self.cache.set(key, head, size=size)


def _key(request: Request) -> _Key:
    raw = tuple([each for each in request.raw_headers if each[0] not in _UNIQUE_RAW])
    return request.method, request.target, raw


def _size(key: _Key) -> int:
    """Return the estimated bytes of a head, without those of its RequestInfo."""
    _, target, raw = key
    # Each character is kept as a byte, and as parsed: then it takes up to four bytes.
    characters = sum(
        3 * len(name) + (2 if value.isascii() else 5) * len(value) for name, value in raw
    )
    return _HEAD_SIZE + _HEADER_SIZE * len(raw) + sys.getsizeof(target) + characters


def _without_unique(headers: MultiMapping[str]) -> MultiMapping[str]:
    remaining = CIMultiDict(headers)
    for name in _UNIQUE:
        remaining.popall(name, None)
    return remaining
