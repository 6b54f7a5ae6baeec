"""Responses that are not read to the end, from a server that never answers close_notify."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import aiohttp
import pytest

from adapter.clients import abort
from tests.certificates import Holder

CA = Holder("ca", ca=True)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\nok"
ENDLESS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"


@pytest.fixture
async def server(tmp_path):
    """Yield the port and the accepted connections of a server that stops reading."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Holder("server", issuer=CA).client(context, tmp_path)
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
    async with abort.abort_on_exit(response):
        assert await response.content.readany() == b"ok"
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_exception_aborts_the_response(server, session):
    port, _ = server

    response = await session.get(f"https://127.0.0.1:{port}/endless")
    socket = response.connection.transport.get_extra_info("socket")
    with contextlib.suppress(ZeroDivisionError):
        async with abort.abort_on_exit(response):
            raise ZeroDivisionError
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_finished_response_keeps_the_connection_alive(server, session):
    port, accepted = server

    for _ in range(2):
        async with abort.abort_on_exit(await session.get(f"https://127.0.0.1:{port}/")) as response:
            assert await response.text() == "ok"

    assert len(accepted) == 1
