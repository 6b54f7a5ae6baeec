"""How a connection reads requests, whatever the pieces in which they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import tracemalloc
import weakref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.background import Pace
from adapter.server.http import connection, handler
from adapter.server.http.limits import MemoryBudget
from tests.adapter import wired
from tools.waiting import until

CLOSE = b"Connection: close\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def get(path, *headers, method=b"GET", version=b"1.1"):
    lines = b"".join(header + b"\r\n" for header in (b"Host: x", *headers))
    return method + b" " + path + b" HTTP/" + version + b"\r\n" + lines + b"\r\n"


async def echo(request):
    """Answer with the target of the request."""
    return f"HTTP/1.1 200 OK\r\n\r\n{request.target}\n".encode()


class Transport(asyncio.Transport):
    """Keeps what is written; reads what a test feeds."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.closed = self.paused = False

    def write(self, data):
        self.written += data

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.closed

    def is_reading(self):
        return not self.paused

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def close(self):
        self.closed = True

    abort = close


def exchange(pieces, serve=echo):
    """Return what a connection writes that receives `pieces`, and its end."""

    async def run():
        budget = MemoryBudget(64 << 20, lambda each: each.abort())
        tested = connection.Connection(
            handler.new_server(),
            serve,
            heads=budget,
            unread=budget,
            turn=asyncio.Lock(),
            pace=Pace(),
        )
        transport = Transport()
        tested.connection_made(transport)
        for piece in pieces:
            while transport.paused and not transport.closed:  # noqa: ASYNC110 - not awaitable
                await asyncio.sleep(0)
            if not transport.closed:
                tested.data_received(piece)
        for _ in range(50):
            await asyncio.sleep(0)
        tested.connection_lost(None)
        return transport.written, transport.closed

    return asyncio.run(run())


def targets(written):
    return [each.partition(b"\n")[0] for each in written.split(b"\r\n\r\n")[1:]]


REQUESTS = st.sampled_from(
    [
        get(b"/a"),
        get(b"/b", b"A: " + b"x" * 100),
        b"\r\n" + get(b"/crlf"),
        b"GET /lf HTTP/1.1\nHost: x\n\n",
        get(b"/empty", b"Content-Length: 0", method=b"POST"),
        get(b"/body", b"Content-Length: 5", method=b"POST") + b"hello",
        get(b"/chunked", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
        get(b"/upgrade", b"Connection: Upgrade", b"Upgrade: h2c"),
        get(b"/old", version=b"1.0"),
        get(b"x:1", method=b"CONNECT"),
        LAST,
        b"PRI * HTTP/2.0\r\n\r\n",
        b"garbage\r\n\r\n",
    ]
)


@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 400), max_size=5),
)
@example(requests=[get(b"/a")], cuts=[3])
@example(requests=[get(b"/a"), get(b"/b")], cuts=[len(get(b"/a")) - 1])
@example(requests=[get(b"/a"), get(b"/b")], cuts=[len(get(b"/a")) + 5])
def test_the_pieces_in_which_requests_arrive_do_not_matter(requests, cuts):
    stream = b"".join(requests)
    bounds = [0, *sorted(cut for cut in set(cuts) if cut < len(stream)), len(stream)]

    whole, _ = exchange([stream])
    pieces, _ = exchange([stream[i:j] for i, j in itertools.pairwise(bounds)])

    assert pieces == whole


@pytest.mark.parametrize(
    "request_",
    [
        get(b"/a", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
        get(b"/a", b"Connection: Upgrade", b"Upgrade: websocket"),
        get(b"/a", b"Content-Length: 5", method=b"POST"),
        get(b"/a", b"Transfer-Encoding: chunked", method=b"POST") + b"0\r\n\r\n",
        get(b"/a", version=b"1.0"),
        get(b"/a", b"Connection: keep-alive", version=b"1.0"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_nothing_after_such_a_request_is_read_as_a_request(request_, together):
    following = get(b"/b", b"Content-Length: 38", method=b"POST") + get(b"/inbody")

    written, _ = exchange([request_ + following] if together else [request_, following])

    assert targets(written) == [b"/a"]
    assert CLOSE in written


@pytest.mark.parametrize("version", [b"0.9", b"2.0", b"1.2"])
def test_other_versions_are_rejected(version):
    written, closed = exchange([get(b"/a", version=version)])

    assert written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert closed


@pytest.mark.parametrize("target", [b"*", b"/" + b"x" * (64 << 10)])
def test_the_beginning_of_http_2_is_rejected(target):
    """aiohttp's parser in C waits for more."""
    written, closed = exchange([b"PRI " + target + b" HTTP/2.0\r\n\r\n"])

    assert written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert closed


def test_pipelined_requests_are_answered_in_order():
    numbered = [get(b"/%d" % number) for number in range(20)]

    written, closed = exchange([b"".join(numbered) + LAST])

    assert targets(written) == [*(b"/%d" % number for number in range(20)), b"/last"]
    assert closed


def listening(serve=echo, **limits):
    return wired.listening(serve, **{"shutdown_seconds": 0.1, **limits})


async def test_a_pipelining_client_does_not_keep_out_others():
    answered = 0

    async def count(request):
        nonlocal answered
        answered += 1
        return await echo(request)

    async with listening(count) as port:
        _, greedy = await asyncio.open_connection("127.0.0.1", port)
        greedy.write(get(b"/greedy") * 5000)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LAST)
        async with asyncio.timeout(60):
            assert (await reader.read()).endswith(b"/last\n")
        assert answered < 5000
        greedy.transport.abort()
        writer.close()


async def test_a_client_that_is_gone_gets_no_answers():
    answered = 0

    async def count(request):
        nonlocal answered
        answered += 1
        await asyncio.sleep(0)
        return await echo(request)

    async with listening(count) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get(b"/a") * 5000)
        while not answered:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        after = answered
        await asyncio.sleep(0.05)

    assert answered == after < 5000


@pytest.mark.slow
async def test_trailers_and_bodies_take_no_memory():
    async def slow(request):
        await asyncio.sleep(1)
        return await echo(request)

    async with listening(slow) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        tracemalloc.start()
        writer.write(get(b"/a", b"Transfer-Encoding: chunked", method=b"POST") + b"0\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                writer.write(b"X: " + b"x" * 900_000 + b"\r\n")
                await writer.drain()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.transport.abort()

    assert peak < 16 << 20


@pytest.mark.parametrize("small", [b"ab:\r\n" * 9_990, b"A: " + b"x" * 300_000 + b"\r\n"])
async def test_heads_that_are_not_answered_are_limited_together(small, caplog):
    async def busy(_):
        await asyncio.Event().wait()

    async with listening(busy, max_heads=1 << 20) as port:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, writer in streams:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + small + b"\r\n")
        await until(lambda: "too many large request heads" in caplog.text)
        for _, writer in streams:
            writer.transport.abort()


async def test_other_requests_come_between_two_large_heads():
    """However many arrive at once, the event loop parses one in an iteration."""
    iteration, parsed = 0, []

    async def note(request):
        if request.target == "/large":
            parsed.append(iteration)
        return await echo(request)

    async def count():
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    async with listening(note) as port, contextlib.AsyncExitStack() as stack:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for reader, writer in streams:
            stack.callback(writer.transport.abort)
            writer.write(get(b"/a"))
            await reader.readuntil(b"/a\n")
        counting = asyncio.create_task(count())
        for _, writer in streams:
            writer.write(get(b"/large", *[b"a:"] * 200))
        for reader, _ in streams:
            await reader.readuntil(b"/large\n")
        counting.cancel()

    assert len(set(parsed)) == len(parsed) == len(streams)


@pytest.mark.slow
async def test_a_closed_connection_is_freed_without_the_garbage_collector():
    created = weakref.WeakSet()

    def serve(request):
        created.add(request.client)
        return echo(request)

    gc.collect()
    gc.disable()
    try:
        async with listening(serve) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get(b"/a"))
            await reader.readuntil(b"/a\n")
            assert len(created) == 1
            writer.transport.abort()
            await until(lambda: not created)
    finally:
        gc.enable()


async def test_incomplete_heads_are_limited_together(caplog):
    async with listening(max_heads=1 << 20) as port:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for number, (_, writer) in enumerate(streams):
            writer.write(b"GET / HTTP/1.1\r\nA: " + b"x" * (300_000 + 10_000 * number))
        async with asyncio.timeout(60):
            await until(lambda: "too many large request heads" in caplog.text)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(LAST)
            assert (await reader.read()).endswith(b"/last\n")
        for _, each in (*streams, (reader, writer)):
            each.transport.abort()


@pytest.mark.slow
async def test_a_handler_that_ignores_its_timeout_is_disconnected():
    async def stubborn(request):
        request.set_timeout(0.1)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async with listening(stubborn, close_seconds=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get(b"/a"))
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.transport.abort()


async def test_a_handler_that_is_cancelled_by_itself_closes_its_connection():
    async def cancelled(_):
        raise asyncio.CancelledError

    async with listening(cancelled) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get(b"/a"))
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
