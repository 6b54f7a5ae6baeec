"""Fake Prometheus that fails in various ways.

Successful responses come from a real Prometheus: `through` forwards requests to it.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Received request."""

    verb: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]


Behaviour = Callable[[web.Request, Received], Awaitable[web.StreamResponse]]


class Prometheus:
    """Responds as `behave` says and records the requests."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.requests: list[Received] = []
        self.url = ""
        """Set by who serves it."""

    def app(self) -> web.Application:
        """Return the application that answers every path."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        form = await request.post() if request.method == "POST" else {}
        received = Received(
            verb=request.method,
            path=request.path,
            parameters={**request.query, **{name: str(value) for name, value in form.items()}},
            headers=dict(request.headers),
        )
        self.requests.append(received)
        return await self.behave(request, received)


def says(body: str | bytes, *, status: int = 200) -> Behaviour:
    """Respond to every request with this body."""

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        content = body.encode() if isinstance(body, str) else body
        return web.Response(status=status, body=content, content_type="application/json")

    return behave


def dribbles(*parts: str, status: int = 200) -> Behaviour:
    """Send a response whose body arrives in parts."""

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for part in parts:
            await response.write(part.encode())
            await asyncio.sleep(0.02)
        return response

    return behave


async def hangs(request: web.Request, received: Received) -> web.StreamResponse:
    """Never respond."""
    await asyncio.Event().wait()
    raise AssertionError


def stalls(beginning: str) -> Behaviour:
    """Send the beginning of a response and never the rest."""

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(beginning.encode())
        await asyncio.Event().wait()
        return response

    return behave


async def hangs_up(request: web.Request, received: Received) -> web.StreamResponse:
    """Close the connection without a response."""
    assert request.transport
    request.transport.close()
    return web.Response()


def cut_off(beginning: str) -> Behaviour:
    """Send less than the Content-Length and close the connection."""

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(beginning) + 100)})
        await response.prepare(request)
        await response.write(beginning.encode())
        assert request.transport
        request.transport.close()
        return response

    return behave


def endless(
    chunk: bytes, *, compressed: bool = False, status: int = 200
) -> tuple[Behaviour, list[int]]:
    """Send `chunk` forever; the returned list records the bytes sent."""
    sent: list[int] = []

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        if compressed:
            response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        while True:
            await response.write(chunk)
            sent.append(len(chunk))
            await asyncio.sleep(0)

    return behave, sent


async def broken_gzip(request: web.Request, received: Received) -> web.StreamResponse:
    """Send a gzip body that is corrupt after a valid beginning."""
    body = gzip.compress(b'{"status":"success","data":[]}' * 100)[:20] + b"\xff" * 100
    return web.Response(body=body, headers={"Content-Encoding": "gzip"})


def through(
    url: str,
    *,
    spoil: Callable[[Received], Behaviour | None] = lambda received: None,
    without: Callable[[Received], frozenset[str]] = lambda received: frozenset(),
) -> Behaviour:
    """Forward requests to the Prometheus at `url`, unless `spoil` returns another behaviour.

    The parameters that `without` returns are removed, as if Prometheus did not know them.
    """

    async def behave(request: web.Request, received: Received) -> web.StreamResponse:
        if other := spoil(received):
            return await other(request, received)
        removed = without(received)
        params = {name: text for name, text in received.parameters.items() if name not in removed}
        async with (
            aiohttp.ClientSession() as session,
            session.request(received.verb, f"{url}{received.path}", params=params) as response,
        ):
            return web.Response(
                status=response.status,
                body=await response.read(),
                content_type=response.content_type,
            )

    return behave
