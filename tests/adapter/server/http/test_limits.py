"""Limits of connections over TLS: size and duration of request heads, and closing."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import os
import socket
import ssl
import tempfile
from asyncio import sslproto
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter.server.apimachinery import middleware, responses
from adapter.server.http import connection, server
from adapter.server.tls import context as tls
from certs.issue import issue_temporary
from tests.adapter import wired
from tools.certificates import Holder
from tools.waiting import until

NO_EXTENSIONS = bool(os.environ.get("AIOHTTP_NO_EXTENSIONS"))
BUNDLE = issue_temporary(("127.0.0.1",), now=dt.datetime.now(dt.UTC))
CLIENT_CA = Holder("front-proxy-ca", ca=True)
CLIENT = Holder("front-proxy-client", CLIENT_CA, usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))
NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@contextlib.asynccontextmanager
async def listening(*, handler=None, client_cas=b"", after_handshake=None, **options):
    """Yield the port of a TLS server, and its listener.

    `after_handshake` limits the seconds of a head, and not those of the handshake, which takes long
    on a busy machine.
    """
    cas = ssl.PEM_cert_to_DER_cert(client_cas.decode()) if client_cas else b""
    context = tls.context(BUNDLE, client_cas=cas)
    listener = server.Listener(
        handler or wired.build_router(),
        "127.0.0.1",
        0,
        ssl_context=context,
        shutdown_seconds=1.0,
        **options,
    )
    if after_handshake is not None:
        listener._new_connection.keywords["head_seconds"] = after_handshake
    listener.start()
    try:
        yield listener.port, listener
    finally:
        await listener.close()


@pytest.fixture
async def port():
    async with listening() as (port, _):
        yield port


def client_context():
    return ssl.create_default_context(cadata=BUNDLE.ca_pem.decode())


@contextlib.asynccontextmanager
async def connected(port, source="127.0.0.1", *, certificate=False):
    context = client_context()
    if certificate:
        with tempfile.TemporaryDirectory() as folder:
            CLIENT.client(context, Path(folder))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, local_addr=(source, 0)
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def exchange(port, *parts):
    """Send `parts` and return everything that is received; empty if the connection breaks."""
    async with connected(port) as (reader, writer), asyncio.timeout(60):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        try:
            return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""


async def test_a_head_below_1_mib_is_accepted(port):
    got = await exchange(
        port,
        b"GET /healthz?a=" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
        b"A: " + b"y" * 900_000 + b"\r\n" + b"X-Remote-Group: g\r\n" * 600,
        b"\r\n",
    )

    assert got.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET\r\n\r\n",
        pytest.param(
            b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
            marks=pytest.mark.skipif(NO_EXTENSIONS, reason="aiohttp's parser in Python takes it"),
        ),
        b"GET / HTTP/1.1\r\nBad Header\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
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
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await reader.read()
    writer.close()
    assert (await exchange(port, HEALTHZ, b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_a_client_without_a_handshake_is_disconnected():
    async with listening(head_seconds=0.2) as (port, _), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("partial", [b"", b"GET /healthz HTTP/1.1\r\nHo"])
async def test_a_client_that_sends_no_complete_head_is_disconnected(partial):
    async with listening(after_handshake=0.2) as (port, _):
        assert await exchange(port, partial) == b""


@pytest.mark.slow
async def test_a_trickling_head_does_not_extend_the_limit():
    async with listening(after_handshake=0.3) as (port, _), connected(port) as (reader, writer):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for byte in HEALTHZ * 10:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
                if reader.at_eof() or reader.exception():
                    break

        assert reader.at_eof() or reader.exception()


async def test_a_body_may_take_longer_than_a_head():
    left = []

    async def slow(request):
        left.append(request.client._deadline.when - asyncio.get_running_loop().time())
        return NOTHING

    async with listening(handler=slow) as (port, _), connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        writer.write(b"12345")
        got = await reader.readline()

    assert got.startswith(b"HTTP/1.1 204")
    assert left[0] > connection.HEAD_SECONDS


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


@pytest.mark.slow
async def test_shutdown_waits_until_a_response_is_received():
    answered = asyncio.Event()

    async def respond(*_):
        answered.set()
        return responses.Answer(body=b"x" * 50_000)

    handler = middleware.serving(respond)
    async with listening(handler=handler, close_seconds=60.0) as (port, listener):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=client_context())
        await answered.wait()
        loop.call_later(0.3, client.transport.resume_reading)

        await listener.close()

        assert client.received > 50_000


async def test_shutdown_does_not_wait_for_a_client_that_stays_connected():
    async with listening(close_seconds=0.2) as (port, listener):
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Paused, "127.0.0.1", port, ssl=client_context())
        async with asyncio.timeout(30):
            await listener.close()
        client.transport.abort()


# Number of connections


def silent(port, source="127.0.0.1"):
    client = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
    client.setblocking(False)
    return client


async def is_closed(client):
    """Wait until the server closes a socket that receives nothing else."""
    async with asyncio.timeout(30):
        try:
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
        except ConnectionError:
            return True


@pytest.fixture
async def tls_of_asyncio():
    """Skip a test that counts asyncio's TLS connections; the collector does not see uvloop's."""
    if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        pytest.skip("uvloop has its own TLS connections")


def tls_protocols():
    return sum(isinstance(each, sslproto.SSLProtocol) for each in gc.get_objects())


async def test_many_silent_connections_do_not_keep_out_a_client():
    async with listening(max_pending=8) as (port, _):
        with contextlib.ExitStack() as stack:
            first, *others = (stack.enter_context(silent(port)) for _ in range(40))

            assert (await exchange(port, HEALTHZ + b"Connection: close\r\n\r\n")).endswith(b"ok")
            assert await is_closed(first)
            assert sum(is_open(each) for each in others) <= 8


def is_open(client):
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.slow
@pytest.mark.usefixtures("tls_of_asyncio")
async def test_a_silent_connection_has_no_tls_buffers_yet():
    async with listening() as (port, _):
        before = tls_protocols()
        with silent(port):
            async with connected(port):  # the server has seen the silent one, too
                assert tls_protocols() <= before + 2  # both ends of the other connection


@pytest.fixture
def no_collector():
    """Keep the garbage collector from freeing what refers to itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("tls_of_asyncio")
async def test_a_stalled_handshake_is_closed_for_a_newer_one_and_freed(no_collector):
    async with listening(max_pending=1) as (port, _):
        before = tls_protocols()
        with silent(port) as stalled:
            stalled.send(b"\x16\x03\x01\x02\x00\x01")
            await until(lambda: tls_protocols() > before)
            with silent(port):
                assert await is_closed(stalled)
                await until(lambda: tls_protocols() == before)


@pytest.mark.slow
@pytest.mark.usefixtures("tls_of_asyncio")
async def test_a_broken_handshake_is_freed(no_collector):
    async with listening() as (port, _):
        before = tls_protocols()
        with silent(port) as client:
            client.send(HEALTHZ)
            with contextlib.suppress(ConnectionError):
                while await asyncio.get_running_loop().sock_recv(client, 100):  # an alert
                    pass
            await until(lambda: tls_protocols() == before)


async def test_an_arrival_of_the_busiest_address_is_closed_first():
    async with listening(max_pending=3) as (port, _):
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(silent(port, "127.0.0.2"))
            first, *rest = (stack.enter_context(silent(port)) for _ in range(3))

            assert await is_closed(first)
            assert all(is_open(each) for each in (other, *rest))


async def request_once(reader, writer):
    """Send a request and return whether it is answered."""
    with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
        writer.write(HEALTHZ + b"\r\n")
        async with asyncio.timeout(30):
            return (await reader.readuntil(b"\r\n\r\nok")).endswith(b"ok")
    return False


@pytest.mark.slow
@pytest.mark.parametrize("sources", [("127.0.0.1",), ("127.0.0.1", "127.0.0.2", "127.0.0.3")])
async def test_the_connection_that_is_idle_for_longest_is_closed_for_a_new_one(sources):
    """Also if all have been used, from one address or from as many as there are connections."""
    async with listening(max_connections=3) as (port, _), contextlib.AsyncExitStack() as stack:
        sources = sources * (3 // len(sources))
        idle = [await stack.enter_async_context(connected(port, source)) for source in sources]
        for each in (idle[1], idle[0], idle[2]):
            assert await request_once(*each)
            await asyncio.sleep(0.01)  # uvloop's clock counts milliseconds
        new = await stack.enter_async_context(connected(port))
        assert await request_once(*new)

        assert [await request_once(*each) for each in idle] == [True, False, True]


async def test_a_client_without_certificate_displaces_none_with_one():
    async with (
        listening(max_connections=2, client_cas=CLIENT_CA.pem) as (port, _),
        connected(port, certificate=True) as proxy,
    ):
        assert await request_once(*proxy)
        for _ in range(3):
            async with connected(port) as first, connected(port) as second:
                assert await request_once(*second)
                assert not await request_once(*first)
        assert await request_once(*proxy)


async def test_a_client_without_certificate_has_time_for_its_request():
    """Until two others have come; of those that send nothing, each displaces the one before it."""
    async with (
        listening(max_connections=16, client_cas=CLIENT_CA.pem) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        proxies = [
            await stack.enter_async_context(connected(port, certificate=True)) for _ in range(16)
        ]
        for each in proxies:
            assert await request_once(*each)
        client = await stack.enter_async_context(connected(port))
        proxies.append(await stack.enter_async_context(connected(port, certificate=True)))
        assert await request_once(*client)

        for _ in range(16):
            await stack.enter_async_context(connected(port))
        assert [await request_once(*each) for each in proxies] == [False] * 4 + [True] * 13


def unresponsive(port, request):
    """Return the socket of a TLS client that sends `request` and then neither reads nor closes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    protocol = client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    client = socket.create_connection(("127.0.0.1", port), timeout=90)
    while True:
        try:
            protocol.do_handshake()
        except ssl.SSLWantReadError:
            client.sendall(outgoing.read())
            incoming.write(client.recv(1 << 14))
        else:
            break
    if request:
        protocol.write(request)
    client.sendall(outgoing.read())
    client.setblocking(False)
    return client


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_", [b"", b"garbage\r\n\r\n", HEALTHZ + b"Connection: close\r\n\r\n"]
)
async def test_clients_that_do_not_respond_to_the_close_are_limited(request_):
    async with listening(max_connections=2, close_seconds=3600) as (port, _):
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(5):
                client = await asyncio.to_thread(unresponsive, port, request_)
                clients.append(stack.enter_context(client))
            for client in clients[:3]:
                while not await is_closed(client):
                    pass
            assert all(is_open(each) for each in clients[3:])
            assert (await exchange(port, HEALTHZ + b"Connection: close\r\n\r\n")).endswith(b"ok")


async def test_a_new_connection_is_closed_when_all_others_are_busy():
    started = asyncio.Event()

    async def busy(_):
        started.set()
        await asyncio.Event().wait()

    async with (
        listening(handler=busy, max_connections=1) as (port, _),
        connected(port) as (first, writer),
    ):
        writer.write(HEALTHZ + b"\r\n")
        await started.wait()
        async with connected(port) as (second, _), asyncio.timeout(30):
            assert await second.read() == b""
        assert not first.at_eof()


async def waiting_or_unread(request):
    """Answer with 32 MiB if the target is `/unread`, after a long time otherwise."""
    if request.target != "/unread":
        await asyncio.sleep(3600)
    return NOTHING + bytes(32 << 20)


async def begin(port, stack, path, **options):
    """Connect and request `path`."""
    reader, writer = await stack.enter_async_context(connected(port, **options))
    writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    if path == b"/unread":
        await reader.readuntil(b"\r\n\r\n")
    else:
        await asyncio.sleep(0.05)  # the server begins
    return reader


async def test_a_client_that_does_not_read_makes_room_for_another():
    async with (
        listening(handler=waiting_or_unread, max_connections=2) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        waiting = await begin(port, stack, b"/wait")
        await begin(port, stack, b"/unread")
        await begin(port, stack, b"/unread")
        assert not waiting.at_eof()


async def test_a_busy_client_without_certificate_makes_room_for_one_with_a_certificate():
    async with (
        listening(handler=waiting_or_unread, max_connections=2, client_cas=CLIENT_CA.pem) as (
            port,
            _,
        ),
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await begin(port, stack, b"/wait") for _ in range(2)]
        proxies = [await begin(port, stack, b"/wait", certificate=True) for _ in range(2)]
        await until(lambda: all(each.at_eof() for each in clients))
        assert not any(each.at_eof() for each in proxies)


# Requests that wait, and responses that are not read


@pytest.mark.slow
async def test_heads_that_arrive_during_a_request_wait_in_the_socket():
    started, finish = asyncio.Event(), asyncio.Event()
    clients, answered, heads = set(), 0, 400

    async def busy(request):
        nonlocal answered
        clients.add(request.client)
        started.set()
        await finish.wait()
        answered += 1
        return NOTHING

    async with listening(handler=busy) as (port, _), connected(port) as (_, writer):
        writer.write(HEALTHZ + b"\r\n")
        await started.wait()
        for _ in range(heads):
            writer.write(HEALTHZ + b"A: " + b"x" * 60_000 + b"\r\n\r\n")
        (client,) = clients
        await until(lambda: not client.transport.is_reading())
        unsent = writer.transport.get_write_buffer_size()
        finish.set()
        await until(lambda: answered == 1 + heads)

    assert unsent > 12_000_000  # the buffers of the sockets hold the rest


@pytest.mark.slow
@pytest.mark.parametrize(("reads", "seconds"), [(False, 1.0), (True, 4.0)])
async def test_a_client_that_reads_nothing_of_its_response_is_disconnected(reads, seconds, caplog):
    size = 32 << 20

    async def answer(_):
        return b"HTTP/1.1 200 OK\r\n\r\n" + bytes(size)

    async with (
        listening(handler=answer, write_seconds=seconds) as (port, _),
        connected(port) as (reader, writer),
    ):
        writer.write(HEALTHZ + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        if not reads:
            await until(lambda: "does not read" in caplog.text)
        received = 0
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while part := await reader.read(1 << 20):
                received += len(part)
                if received >= size:
                    break
                await asyncio.sleep(0.04)  # in all, longer than write_seconds

    assert (received == size) is reads


async def test_responses_that_are_not_read_are_limited_together(caplog):
    async def answer(request):
        return NOTHING + bytes(int(request.target[1:]) << 20)

    async with (
        listening(handler=answer, max_unread=48 << 20) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        readers = []
        for size in (20, 18, 16):
            reader, writer = await stack.enter_async_context(connected(port))
            writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size)
            await reader.readuntil(b"\r\n\r\n")
            readers.append(reader)
        assert "too many responses that are not read" in caplog.text
        largest, *others = readers
        with contextlib.suppress(ConnectionError):
            assert len(await largest.read()) < 20 << 20
        assert [len(await each.read()) >> 20 for each in others] == [18, 16]


@pytest.mark.slow
async def test_a_body_that_is_not_sent_in_time_ends_the_connection():
    async def answer(_):
        return NOTHING

    async with listening(handler=answer, close_seconds=0.2) as (port, _):
        got = await exchange(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")

    assert got == NOTHING.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


async def test_rejected_client_certificates_are_logged_once_a_minute(caplog):
    """The front proxy of an API server whose CA was replaced connects at each request."""
    other = Holder("other-ca", ca=True)
    async with listening(client_cas=other.pem) as (port, listener):
        for _ in range(2):
            async with connected(port, certificate=True) as proxy:
                assert not await request_once(*proxy)
        listener._next_rejection -= 60
        async with connected(port, certificate=True) as proxy:
            assert not await request_once(*proxy)
        await until(lambda: len(rejections(caplog)) == 2)

    assert "update --requestheader-client-ca-file" in rejections(caplog)[0]


def rejections(caplog):
    messages = (each.getMessage() for each in caplog.records)
    return [each for each in messages if each.startswith("rejected the client certificate of ")]
