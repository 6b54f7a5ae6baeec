"""What `adapter.server.http` relies on and aiohttp and asyncio do not document.

If a test fails after an update, read the changes of `HttpRequestParser` or `SSLProtocol` before
raising the upper bound of the version in setup.cfg.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import Any

import pytest
from aiohttp import http_exceptions
from aiohttp.http import HttpRequestParser
from aiohttp.streams import EMPTY_PAYLOAD

from adapter.server.http import connection

HEAD = b"GET /a?b HTTP/1.1\r\nHost: x\r\nA: \xff\r\na: 2\r\n\r\n"


@pytest.fixture
async def parse():
    """Parse with the arguments of a connection."""

    def _parse(data):
        parser = HttpRequestParser(
            connection._BodyBuffer(),
            asyncio.get_running_loop(),
            1 << 15,
            max_line_size=connection.HEAD_BYTES,
            max_field_size=connection.HEAD_BYTES,
            max_headers=connection._MAX_HEADERS,
            auto_decompress=False,
        )
        return parser.feed_data(data)

    return _parse


async def test_a_complete_head_is_one_message_without_a_rest(parse):
    [(message, body)], upgraded, rest = parse(HEAD)

    assert (message.method, message.path, message.version) == ("GET", "/a?b", (1, 1))
    assert message.raw_headers == ((b"Host", b"x"), (b"A", b"\xff"), (b"a", b"2"))
    assert message.headers.getall("a") == ["\udcff", "2"]
    assert (message.should_close, message.upgrade, upgraded, rest) == (False, False, False, b"")
    assert body is EMPTY_PAYLOAD


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
async def test_only_a_request_with_a_body_has_another_payload(parse, field):
    [(_, body)], _, _ = parse(b"POST / HTTP/1.1\r\nHost: x\r\n" + field + b"\r\n\r\n")

    assert body is not EMPTY_PAYLOAD


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET /" + b"x" * (1 << 21) + b" HTTP/1.1\r\n\r\n", "LineTooLong"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * (1 << 21) + b"\r\n\r\n", "LineTooLong"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_001 + b"\r\n", "HttpProcessingError"),
        (b"HELLO\r\n\r\n", "HttpProcessingError"),
    ],
    ids=["line", "field", "number", "syntax"],
)
async def test_what_exceeds_a_limit_raises_a_processing_error(parse, data, error):
    with pytest.raises(http_exceptions.HttpProcessingError) as caught:
        parse(data)

    assert isinstance(caught.value, getattr(http_exceptions, error))


async def test_the_buffer_of_asyncio_has_the_size_that_the_listener_sets():
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    protocol: Any = sslproto.SSLProtocol(
        loop, asyncio.Protocol(), context, loop.create_future(), server_side=True
    )

    protocol._get_app_transport().close()

    assert len(protocol.get_buffer(-1)) == 32 << 10
