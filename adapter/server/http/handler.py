"""aiohttp's side of a connection: it parses heads, and runs a task for each request.

What it gets, and when, is decided by `connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, cast

from aiohttp import web

HEAD_BYTES = 1 << 20
_MAX_HEADERS = 10_000
_KEEPALIVE = 95.0
"""Seconds; longer than the 90 s for which Go's clients keep an idle connection."""


class Client(Protocol):
    """What is needed of a connection."""

    @property
    def is_last(self) -> bool:
        """Whether the connection ends after the present response."""

    def answer(self, received: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """Return the response to a request."""

    def rejected(self, reason: str) -> web.StreamResponse:
        """Return the response to a head that cannot be parsed."""

    async def write(self, response: bytes) -> None:
        """Write a response, and wait for the next request."""


class Handler(web.RequestHandler):
    """Parser of one connection. `client` is None after the end, when aiohttp calls nothing."""

    def __init__(self, client: Client, server: web.Server, lingering_time: float) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=_KEEPALIVE,
            lingering_time=lingering_time,
            access_log=cast(Any, None),
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
        )
        self.client: Client | None = client

    def parse(self, head: bytes) -> bool:
        """Parse a head, and return whether it is handled, as a request or as an error.

        After `PRI`, the method of HTTP/2, aiohttp's parser waits for more than the head.
        """
        self.data_received(head)
        return bool(self._messages) or self._force_close

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Return the response to a head that cannot be parsed."""
        assert self.client is not None
        return self.client.rejected(type(exc).__name__)


class Response(web.StreamResponse):
    """Response whose bytes are complete."""

    def __init__(self, client: Client, data: bytes) -> None:
        super().__init__()
        self._client = client
        self._data = data

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: the head is complete."""

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """Write the response."""
        response, self._data = self._data, b""  # aiohttp keeps this object until the next request
        await self._client.write(response)

    @property
    def keep_alive(self) -> bool:
        """Whether the connection goes on after the response."""
        return not self._client.is_last


def new_server() -> web.Server:
    """Return what the connections of a listener share."""
    return web.Server(_answer, handler_cancellation=True)


def _answer(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
    client = cast(Handler, request.protocol).client
    assert client is not None
    return client.answer(request)
