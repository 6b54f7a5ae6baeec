"""Answers of handlers, and the bytes of the HTTP responses to them.

What an exception answers is in `statuses`, how requests are served in `middleware`.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import http
import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from email.utils import formatdate

from aiohttp import hdrs

from adapter import bounds
from adapter.cache import SingleFlightCache
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.heads import AUDIT_ID
from adapter.server.http.request import Request
from rules.causes import warning_header
from rules.findings import Finding
from rules.quoting import MAX_ECHO

PLAIN = "text/plain; charset=utf-8"

_GZIP_THRESHOLD = 128 * 1024
"""Bytes; it takes 1 ms to compress so many, and longer bodies are compressed in a thread."""
_BODILESS = frozenset({204, 304})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a handler returns: a response before compression, without the common headers."""

    body: bytes
    status: int = 200
    content_type: str = encoding.JSON
    """Empty for a response without a Content-Type."""
    headers: Mapping[str, str] = field(default_factory=dict)
    gzip_threshold: int = _GZIP_THRESHOLD
    """A longer body, in bytes, is compressed for clients that accept gzip."""

    @functools.cached_property
    def constant_lines(self) -> bytes:
        """The status line, and the headers that follow from the answer."""
        lines = _constant_lines(self.status, self.content_type, tuple(self.headers.items()))
        if self.status in _BODILESS:
            return lines
        return b"%bContent-Length: %d\r\n" % (lines, len(self.body))


def with_warning(answer: Answer, causes: Sequence[Finding]) -> Answer:
    """Return the answer with the first cause as a warning, which kubectl prints."""
    if not causes:
        return answer
    rendered = warning_header.render(tuple(causes))
    return replace(answer, headers={**answer.headers, warning_header.NAME: rendered})


class Compressor:
    """Compresses bodies: long ones in a thread, one at a time, and each once as long as it is kept.

    zlib takes 10 ms for a megabyte.
    """

    def __init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="gzip")
        self._bodies: SingleFlightCache[bytes, bytes] = SingleFlightCache(
            ttl=lambda *_: math.inf, max_size=bounds.COMPRESSED, size=lambda body, _: len(body)
        )

    async def compress(self, answer: Answer, request: Request) -> Answer:
        """Return the answer, compressed if it is long and the client accepts gzip."""
        body = answer.body
        if len(body) <= answer.gzip_threshold or not _accepts_gzip(request.headers):
            return answer
        if len(body) <= _GZIP_THRESHOLD:
            return _as_gzip(answer, _gzip(body))
        return _as_gzip(answer, await self._bodies.get(body, lambda: self._compress_long(body)))

    async def _compress_long(self, body: bytes) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _gzip, body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


def _as_gzip(answer: Answer, body: bytes) -> Answer:
    headers = {**answer.headers, hdrs.CONTENT_ENCODING: "gzip"}
    if hdrs.ACCEPT_ENCODING not in headers.get(hdrs.VARY, ""):
        vary = [headers[hdrs.VARY]] if hdrs.VARY in headers else []
        headers[hdrs.VARY] = ", ".join([*vary, hdrs.ACCEPT_ENCODING])
    return replace(answer, body=body, headers=headers)


def render(answer: Answer, request: Request) -> bytes:
    """Return the bytes of the response."""
    return b"%bAudit-Id: %b\r\nDate: %b\r\n\r\n%b" % (
        answer.constant_lines,
        _audit_id(request.headers.get(AUDIT_ID, "")),
        _date(int(time.time())),
        b"" if request.method == hdrs.METH_HEAD else answer.body,
    )


@functools.lru_cache(maxsize=256)
def _constant_lines(status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the status line, and the headers that many responses have in common."""
    fields: dict[str, str] = {hdrs.CACHE_CONTROL: "no-cache, private"}
    if content_type:
        fields[hdrs.CONTENT_TYPE] = content_type
    fields.update(headers)
    if any("\r" in value or "\n" in value for value in fields.values()):
        raise ValueError(f"line break in a header: {fields}")
    lines = (f"{name}: {value}\r\n" for name, value in fields.items())
    text = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n{''.join(lines)}"
    return text.encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether gzip is accepted. Like Kubernetes, ignore tokens with a weight: `gzip;q=1`."""
    tokens = headers.get(hdrs.ACCEPT_ENCODING, "")[: negotiation.MAX_ACCEPT].split(",")
    return "gzip" in (token.strip() for token in tokens)


def _audit_id(received: str) -> bytes:
    """Return the client's audit ID, so that both logs can be correlated, or a new UUID."""
    usable = received.isascii() and 0 < len(received) <= MAX_ECHO
    if usable:
        return received.encode()
    # A UUID of version 4. The module uuid takes four times as long.
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}".encode()
