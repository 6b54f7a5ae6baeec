"""Limits of connections over TLS: size and duration of request heads, and closing."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl

import pytest

from adapter.http import responses, server
from adapter.tls import context as tls
from certs.issue import issue_temporary
from rules.kinds import Kinds
from rules.query.catalog import Catalog
from tests.adapter import wired

BUNDLE = issue_temporary(("127.0.0.1",), now=dt.datetime.now(dt.UTC))
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def build_router():
    objects = wired.Objects(Kinds.builtin(), {})
    return wired.build_router(Catalog.empty(), objects, wired.Evaluation({}))


@contextlib.asynccontextmanager
async def listening(*, handler=None, **options):
    """Yield the port of a TLS server and its runner."""
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


def client_context():
    return ssl.create_default_context(cadata=BUNDLE.ca_pem.decode())


@contextlib.asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def exchange(port, *parts):
    """Send `parts` and return everything that is received; empty if the connection breaks."""
    async with connected(port) as (reader, writer), asyncio.timeout(10):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        try:
            return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""


def test_the_limits_equal_those_of_go():
    assert server.HEAD_BYTES == 1 << 20
    assert server.HEAD_SECONDS == 32
    assert responses.DEFAULT_TIMEOUT == 60


async def test_a_head_below_1_mib_is_accepted(port):
    got = await exchange(
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
async def test_a_head_over_1_mib_closes_the_connection_with_one_log_line(port, parts, caplog):
    got = await exchange(port, *parts)

    assert got.split(b" ")[1:2] in ([], [b"400"], [b"431"])
    assert b"Connection: close" in got or not got
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "x" * 100 not in caplog.text


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"HELLO\r\n\r\n", b"GET\r\n\r\n"])
async def test_input_that_is_not_http_gets_a_bare_400_and_one_log_line(port, garbage, caplog):
    got = await exchange(port, garbage)

    assert got == (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Connection: close\r\n\r\n400 Bad Request"
    )
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)


@pytest.mark.parametrize("plain", [HEALTHZ + b"\r\n", b"\x16\x03\x01garbage"])
async def test_plain_http_is_not_answered(port, plain):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(plain)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await reader.read()
    writer.close()
    assert (await exchange(port, HEALTHZ, b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_client_without_a_handshake_is_disconnected():
    async with listening(head_seconds=0.2) as (port, _), asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("partial", [b"", b"GET /healthz HTTP/1.1\r\nHo"])
async def test_a_client_that_sends_no_complete_head_is_disconnected(partial):
    async with listening(head_seconds=0.2) as (port, _):
        assert await exchange(port, partial) == b""


async def test_a_trickling_head_does_not_extend_the_limit():
    async with listening(head_seconds=0.3) as (port, _), connected(port) as (reader, writer):
        start = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for byte in HEALTHZ * 10:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
                if reader.at_eof():
                    break

        assert reader.at_eof()
        assert asyncio.get_running_loop().time() - start < 3


async def test_a_body_may_take_longer_than_a_head():
    async def slow(request):
        await asyncio.sleep(0.4)
        return responses.malformed_request()

    async with listening(handler=slow, head_seconds=0.2) as (port, _):
        got = await exchange(
            port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", b"12345"
        )

    assert got.startswith(b"HTTP/1.1 400")


# Shutdown


class Paused(asyncio.Protocol):
    """A client that sends a request and does not read until `resume_reading`."""

    def __init__(self):
        self.received = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        transport.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        transport.pause_reading()

    def data_received(self, data):
        self.received += len(data)


async def test_shutdown_waits_until_a_response_is_received():
    answered = asyncio.Event()

    async def respond(request, info):
        answered.set()
        return responses.Answer(body=b"x" * 50_000)

    async with listening(handler=responses.error_middleware(respond)) as (port, runner):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=client_context())
        await answered.wait()
        loop.call_later(0.3, client.transport.resume_reading)

        await runner.cleanup()

        assert client.received > 50_000


async def test_shutdown_does_not_wait_for_a_client_that_stays_connected():
    async with listening(close_seconds=0.2) as (port, runner):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=client_context())
        async with asyncio.timeout(3):
            await runner.cleanup()
        client.transport.abort()
