"""Redirects, with a second server that must not even get a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from adapter import errors
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from tests.fakes import kubernetes

EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Other:
    """Server on another port that counts connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def accept(self, reader, writer) -> None:
        self.connections += 1
        writer.close()


@pytest.fixture
async def other() -> AsyncIterator[Other]:
    counter = Other()
    async with await asyncio.start_server(counter.accept, "127.0.0.1", 0) as server:
        counter.port = server.sockets[0].getsockname()[1]
        yield counter


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def redirecting(aiohttp_server, other):
    """Server that redirects `/away/…` to the other one, and `/old/…` to `/new/…` of its own."""

    async def respond(request):
        path = request.path_qs
        if path.startswith("/old"):
            raise web.HTTPTemporaryRedirect(f"/new{path.removeprefix('/old')}")
        if path.startswith("/new"):
            return web.json_response(EMPTY)
        raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{other.port}{path}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    return await aiohttp_server(app)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_prometheus_is_not_followed_to_another_origin(session, redirecting, other, verb):
    client = Prometheus(
        session, str(redirecting.make_url("/away")), headers={"X-Token": "secret"}, verb=verb
    )

    with pytest.raises(errors.Broken) as caught:
        await client.query("up")

    message = str(caught.value)
    assert f"{redirecting.make_url('/').origin()} redirects to http://127.0.0.1:{other.port}" in (
        message
    )
    assert "set --prometheus-url" in message
    assert "secret" not in message
    assert other.connections == 0


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_prometheus_is_followed_within_its_origin(session, redirecting, verb):
    client = Prometheus(session, str(redirecting.make_url("/old")), verb=verb)

    assert (await client.query("up")).samples == ()


async def test_api_server_is_not_followed_to_another_origin(redirecting, other, tmp_path):
    client = await Kube.connect(kubernetes.kubeconfig(tmp_path, redirecting), qps=1e6, burst=10**6)

    with pytest.raises(errors.Broken, match="redirects to"):
        await client.get("/api")

    await client.close()
    assert other.connections == 0
