"""Responses that are not read to the end, redirects, and TLS files that change."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from adapter import errors
from adapter.clients import credentials
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.clients.transport import abort_on_exit
from tests.adapter.clients.credentials import CA, OTHER_CA, holder
from tools import kubeconfig
from tools.certificates import Holder
from tools.fakes import kubernetes

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\nok"
ENDLESS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"


@pytest.fixture
async def server(tmp_path):
    """Yield the port and the accepted connections of a server that never answers close_notify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Holder("server", issuer=Holder("ca", ca=True)).client(context, tmp_path)
    accepted = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            accepted.append(transport)

        def data_received(self, data):
            self.transport.write(ENDLESS if b"/endless" in data else WHOLE)
            if b"/endless" in data:
                self.transport.pause_reading()

    listening = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, ssl=context)
    yield listening.sockets[0].getsockname()[1], accepted
    listening.close()
    for transport in accepted:
        transport.abort()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as opened:
        yield opened


async def test_unfinished_response_is_aborted_at_once(server, session):
    port, _ = server

    response = await session.get(f"https://127.0.0.1:{port}/endless")
    socket = response.connection.transport.get_extra_info("socket")
    async with abort_on_exit(response):
        assert await response.content.readany() == b"ok"
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_exception_aborts_the_response(server, session):
    port, _ = server

    response = await session.get(f"https://127.0.0.1:{port}/endless")
    socket = response.connection.transport.get_extra_info("socket")
    with contextlib.suppress(ZeroDivisionError):
        async with abort_on_exit(response):
            raise ZeroDivisionError
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_finished_response_keeps_the_connection_alive(server, session):
    port, accepted = server

    for _ in range(2):
        async with abort_on_exit(await session.get(f"https://127.0.0.1:{port}/")) as response:
            assert await response.text() == "ok"

    assert len(accepted) == 1


# Redirects, with a second server that must not even get a connection

EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Other:
    """Server on another port that counts connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

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


async def test_api_server_is_not_followed_to_another_origin(redirecting, other, kube_of):
    client = await kube_of(redirecting)

    with pytest.raises(errors.Broken, match="redirects to"):
        await client.get("/api")

    assert other.connections == 0


# Files of a kubeconfig


async def test_the_ca_file_of_the_api_server_is_read_again(aiohttp_server, tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    holder("one", CA, addresses=["127.0.0.1"]).client(context, tmp_path)
    server = await aiohttp_server(kubernetes.Cluster().app(), ssl=context)
    ca = tmp_path / "ca.crt"
    ca.write_bytes(OTHER_CA.pem)
    cluster = {"server": str(server.make_url("/")), "certificate-authority": str(ca)}
    path = kubeconfig.write(tmp_path / "kubeconfig", cluster, {})
    api = await Kube.connect(str(path), qps=1e6, burst=10**6)

    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        await api.get("/api/v1/pods")
    ca.write_bytes(CA.pem)
    assert (await api.get("/api/v1/pods"))["kind"] == "PodList"

    await api.close()


async def test_the_token_file_of_the_api_server_is_read_again_after_a_401(
    cluster, api_server, tmp_path, kube_of
):
    (tmp_path / "token").write_text("old")
    api = await kube_of(api_server, tokenFile="token")
    (tmp_path / "token").write_text("new")
    cluster.fail("/api", status=401)

    await api.get("/api/v1/pods")

    assert [each.authorization for each in cluster.requests] == ["Bearer old", "Bearer new"]
