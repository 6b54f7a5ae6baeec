"""Answers that are left before their end, by a server that never says goodbye."""

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
    """Its port, and how many connections there were; it answers, and reads nothing more."""
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
    await listening.wait_closed()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as opened:
        yield opened


async def test_what_is_not_read_to_its_end_is_cut_off_at_once(server, session):
    port, _ = server

    response = await session.get(f"https://127.0.0.1:{port}/endless")
    socket = response.connection.transport.get_extra_info("socket")
    async with abort.abort_on_exit(response):
        assert await response.content.readany() == b"ok"
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_it_is_cut_off_by_an_exception_too(server, session):
    port, _ = server

    response = await session.get(f"https://127.0.0.1:{port}/endless")
    socket = response.connection.transport.get_extra_info("socket")
    with contextlib.suppress(ZeroDivisionError):
        async with abort.abort_on_exit(response):
            raise ZeroDivisionError
    await asyncio.sleep(0)

    assert socket.fileno() == -1


async def test_what_was_read_leaves_its_connection_to_the_next(server, session):
    port, accepted = server

    for _ in range(2):
        async with abort.abort_on_exit(await session.get(f"https://127.0.0.1:{port}/")) as response:
            assert await response.text() == "ok"

    assert len(accepted) == 1
