"""What one client may take of a server that speaks TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl

import pytest

from adapter.http import responses, server
from adapter.tls import context as tls
from rules.kinds import Kinds
from rules.query.catalog import Catalog
from tests.adapter import wired

BUNDLE = tls.issued("127.0.0.1", now=dt.datetime.now(dt.UTC))
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def build_router():
    objects = wired.Objects(Kinds.builtin(), {})
    return wired.build_router(Catalog.empty(), objects, wired.Evaluation({}))


@contextlib.asynccontextmanager
async def listening(*, handler=None, **options):
    """The port of the server, and what ends the server."""
    runner = server.runner(handler or build_router(), shutdown_timeout=1.0)
    await runner.setup()
    context = tls.context(BUNDLE)
    site = server.Site(runner, "127.0.0.1", 0, ssl_context=context, **options)
    await site.start()
    try:
        yield site.port, runner
    finally:
        await runner.cleanup()


@pytest.fixture
async def port():
    async with listening() as (port, _):
        yield port


def trusting():
    return ssl.create_default_context(cadata=BUNDLE.ca_pem.decode())


@contextlib.asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def said(port, *parts):
    """Everything that is answered to `parts`; empty where the connection broke."""
    async with connected(port) as (reader, writer), asyncio.timeout(10):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        try:
            return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""


def test_the_limits_are_gos():
    assert server.HEAD_BYTES == 1 << 20
    assert server.HEAD_SECONDS == 32
    assert responses.DEFAULT_TIMEOUT == 60


async def test_a_long_head_is_read(port):
    got = await said(
        port,
        b"GET /healthz?a=" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
        b"A: " + b"y" * 900_000 + b"\r\n" + b"X-Remote-Group: g\r\n" * 600,
        b"\r\n",
    )

    assert got.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "parts",
    [
        (b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",),
        (HEALTHZ, b"A: " + b"x" * (3 << 19) + b"\r\n\r\n"),
        (HEALTHZ, *(b"A: " + b"x" * 5000 + b"\r\n",) * 330, b"\r\n"),
        (HEALTHZ, b"A: b\r\n" * 11_000, b"\r\n"),
    ],
    ids=["url", "header", "headers", "many"],
)
async def test_a_longer_head_ends_the_connection_with_one_line_in_the_log(port, parts, caplog):
    got = await said(port, *parts)

    assert got.split(b" ")[1:2] in ([], [b"400"], [b"431"])
    assert b"Connection: close" in got or not got
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "x" * 100 not in caplog.text


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"HELLO\r\n\r\n", b"GET\r\n\r\n"])
async def test_what_is_no_http_gets_a_bare_400_and_one_line_in_the_log(port, garbage, caplog):
    got = await said(port, garbage)

    assert got == (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Connection: close\r\n\r\n400 Bad Request"
    )
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)


@pytest.mark.parametrize("plain", [HEALTHZ + b"\r\n", b"\x16\x03\x01garbage"])
async def test_who_speaks_no_tls_is_not_answered(port, plain):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(plain)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await reader.read()
    writer.close()
    assert (await said(port, HEALTHZ, b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_who_begins_no_handshake_is_not_waited_for():
    async with listening(head_seconds=0.2) as (port, _), asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHo"])
async def test_who_does_not_say_what_it_wants_is_not_waited_for(begun):
    async with listening(head_seconds=0.2) as (port, _):
        assert await said(port, begun) == b""


async def test_a_head_that_trickles_in_has_no_longer():
    async with listening(head_seconds=0.3) as (port, _), connected(port) as (reader, writer):
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for byte in HEALTHZ * 10:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
                if reader.at_eof():
                    break

        assert reader.at_eof()
        assert asyncio.get_running_loop().time() - began < 3


async def test_a_body_may_take_longer_than_a_head():
    async def patient(request):
        await asyncio.sleep(0.4)
        return responses.malformed()

    async with listening(handler=patient, head_seconds=0.2) as (port, _):
        got = await said(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", b"12345")

    assert got.startswith(b"HTTP/1.1 400")


# At the end


class Paused(asyncio.Protocol):
    """A client that does not read what it asked for until it is told to."""

    def __init__(self):
        self.received = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        transport.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        transport.pause_reading()

    def data_received(self, data):
        self.received += len(data)


async def test_an_answer_is_seen_off_before_the_server_is_gone():
    answered = asyncio.Event()

    async def respond(request, ask):
        answered.set()
        return responses.Answer(body=b"x" * 50_000)

    async with listening(handler=responses.error_middleware(respond)) as (port, runner):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=trusting())
        await answered.wait()
        loop.call_later(0.3, client.transport.resume_reading)

        await runner.cleanup()

        assert client.received > 50_000


async def test_who_does_not_hang_up_is_not_waited_for_long():
    async with listening(goodbye_seconds=0.2) as (port, runner):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=trusting())
        async with asyncio.timeout(3):
            await runner.cleanup()
        client.transport.abort()
