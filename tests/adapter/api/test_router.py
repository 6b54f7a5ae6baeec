from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import errors
from adapter.http import responses, server
from adapter.tls import context as tls
from rules.kinds import Kinds
from rules.query.catalog import Catalog
from tests.adapter import wired


def build_router(**options):
    objects = wired.Objects(Kinds.builtin(), {})
    return wired.build_router(Catalog.empty(), objects, wired.Evaluation({}), **options)


@pytest.fixture
async def port():
    async with wired.listening(build_router()) as port:
        yield port


CUSTOM = "/apis/custom.metrics.k8s.io"


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        ("/apis", 200, "APIGroupList"),
        ("/apis/", 404, "Status"),
        (CUSTOM, 200, "APIGroup"),
        (f"{CUSTOM}/", 404, "Status"),
        (f"{CUSTOM}/v1beta2", 200, "APIResourceList"),
        (f"{CUSTOM}/v1beta2/", 404, "Status"),
        (f"{CUSTOM}/v1beta3", 404, "Status"),
        (f"{CUSTOM}/v1beta3/nodes/n/m", 404, "Status"),
        (f"{CUSTOM}/v1beta2/nodes", 404, "Status"),
        (f"{CUSTOM}/v1beta2/nodes/n/m", 404, "Status"),
        (f"{CUSTOM}x/v1beta2", 404, None),
        ("/apis/nosuch.group", 404, None),
        ("/version", 200, None),
        ("/version/", 404, "Status"),
        ("/version/x", 404, "Status"),
        ("/versionx", 404, None),
        ("//apis", 404, None),
        ("/api", 404, None),
        ("http://adapter/apis", 200, "APIGroupList"),
    ],
)
async def test_paths_are_routed_as_in_the_original(port, target, status, kind):
    got = await wired.fetch(port, target)

    document = json.loads(got.body)
    assert (got.status, document.get("kind")) == (status, kind)
    if status == 404 and kind is None:
        assert "/healthz" in document["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/apis", 405),
        ("/version", 405),
        (f"{CUSTOM}/v1beta2/nodes/n/m", 405),
        (f"{CUSTOM}/v1beta2/nodes/n", 404),
        ("/healthz", 200),
        ("/nope", 404),
    ],
)
async def test_apis_are_read_only_and_other_paths_take_any_method(port, method, target, status):
    got = await wired.fetch(port, target, method=method)

    assert got.status == status
    assert int(got.headers["Content-Length"]) > 0
    if method == "HEAD":
        assert got.rest == b""


@pytest.mark.parametrize(
    ("target", "types"),
    [
        ("/apis", "application/json"),
        ("/version", "application/json"),
        (f"{CUSTOM}/v1beta2/nodes/n/m", "application/json, application/json;stream=watch"),
    ],
)
@pytest.mark.parametrize("accept", ["text/html", "application/*", "application/cbor"])
async def test_the_router_refuses_what_nothing_is_produced_for(port, target, types, accept):
    got = await wired.fetch(port, target, headers={"Accept": accept})

    status = json.loads(got.body)
    assert got.status == 406
    assert got.body.startswith(b'{\n  "kind"')
    assert status["message"] == f"406: Not Acceptable\n\nAvailable representations: {types}"
    assert status["details"] == {}


@pytest.mark.parametrize("target", ["/healthz", "/nope"])
async def test_other_paths_do_not_negotiate(port, target):
    got = await wired.fetch(port, target, headers={"Accept": "text/html"})

    assert got.status == (200 if target == "/healthz" else 404)


async def test_a_method_is_refused_before_an_encoding(port):
    got = await wired.fetch(port, "/apis", method="POST", headers={"Accept": "text/html"})

    assert got.status == 405


@pytest.mark.parametrize(
    "target",
    ["/nope", "/apis", f"{CUSTOM}/v1beta2/nodes", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis"],
)
async def test_the_guard_comes_before_any_route(target):
    asked = []

    def guard(respond):
        async def guarded(request, ask):
            asked.append(ask.path)
            raise errors.ApiError(403, "forbidden", reason="Forbidden")

        return guarded

    async with wired.listening(build_router(guard=guard)) as port:
        got = await wired.fetch(port, target, method="POST")

    assert (got.status, asked) == (403, [target])


async def test_a_guard_that_is_content_lets_through():
    async with wired.listening(build_router(guard=lambda respond: respond)) as port:
        assert (await wired.fetch(port, "/healthz")).status == 200


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n", "BadHttpMethod"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "BadHttpMethod"),
        (b"GET / HTTP/9\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\nBad Header\r\n\r\n", ""),
        (b"GET \xff HTTP/1.1\r\nHost: x\r\n\r\n", ""),
    ],
)
async def test_what_is_no_http_gets_a_bare_400_and_one_line_in_the_log(port, data, error, caplog):
    got = await wired.send(port, data)

    assert (got.status, got.body) == (400, b"400 Bad Request")
    assert got.headers == {"Content-Type": responses.PLAIN, "Connection": "close"}
    [record] = caplog.records
    assert record.exc_info is None
    assert record.getMessage().startswith(
        "said 400 Bad Request to 127.0.0.1, whose request cannot be read: "
    )
    assert error in record.getMessage()


async def test_heads_of_goes_order_are_read(port):
    got = await wired.send(
        port,
        b"GET /healthz?a="
        + b"x" * 20_000
        + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: "
        + b"y" * 30_000
        + b"\r\n"
        + b"X-Remote-Group: g\r\n" * 600
        + b"\r\n",
    )

    assert (got.status, got.body) == (200, b"ok")


@pytest.mark.parametrize(
    "data",
    [b"A: " + b"x" * server.HEAD_BYTES, b"A: x\r\n" * (server.HEAD_BYTES // 6 + 1)],
    ids=["one", "many"],
)
async def test_a_head_of_more_than_a_mebibyte_ends_the_connection(port, data, caplog):
    caplog.set_level("WARNING")

    try:
        got = await wired.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n" + data)
    except ConnectionError:
        got = None

    assert got is None or got.status in {400, 431}
    assert len(caplog.records) == 1


async def test_a_body_does_not_count_as_a_head(port):
    got = await wired.send(
        port,
        b"POST /apis HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n"
        + b"x" * 3_000_000,
    )

    assert got.status == 405
    assert got.rest == b""


async def test_a_connection_is_kept_for_further_requests(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    for _ in range(3):
        writer.write(b"GET /healthz HTTP/1.1\r\nHo")
        await asyncio.sleep(0.01)
        writer.write(b"st: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2)

        assert (head.split()[1], body) == (b"200", b"ok")
        assert b"Connection" not in head

    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHo"])
async def test_who_does_not_say_what_it_wants_is_not_waited_for(begun):
    async with wired.listening(build_router(), head_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)

        async with asyncio.timeout(5):
            assert await reader.read() == b""

        writer.close()
        await writer.wait_closed()


async def test_a_second_request_that_is_begun_has_to_end():
    async with wired.listening(build_router(), head_seconds=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\nok")
        await asyncio.sleep(0.15)
        writer.write(b"GET /healthz HT")

        async with asyncio.timeout(5):
            assert await reader.read() == b""

        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("target", ["*", "adapter:443"])
@pytest.mark.parametrize("headers", [{}, {"Expect": "more"}])
async def test_a_target_without_a_path_is_an_unknown_path(port, target, headers):
    method = "OPTIONS" if target == "*" else "CONNECT"

    got = await wired.fetch(port, target, method=method, headers=headers)

    assert got.status == 404
    assert "Server" not in got.headers
    assert "/healthz" in json.loads(got.body)["paths"]


@pytest.mark.parametrize("expect", ["100-continue", "other"])
async def test_no_body_is_ever_asked_for(port, expect):
    got = await wired.fetch(port, "/apis", method="POST", headers={"Expect": expect})

    assert got.status == 405


async def test_the_work_for_a_client_that_went_is_stopped():
    stopped = asyncio.Event()

    def guard(respond):
        async def guarded(request, ask):
            try:
                await asyncio.sleep(30)
            finally:
                stopped.set()

        return guarded

    async with wired.listening(build_router(guard=guard)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()

        async with asyncio.timeout(5):
            await stopped.wait()


async def test_a_site_says_where_it_listens(caplog):
    runner = server.runner(build_router())
    await runner.setup()
    try:
        context = tls.context(tls.issued("127.0.0.1", now=datetime.now(UTC)))
        site = server.Site(runner, "::1", 0, ssl_context=context)
        assert site.name == "https://[::1]:0"
        await site.start()
        assert site.port > 0
        assert site.name == f"https://[::1]:{site.port}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("shared", [True, False])
async def test_a_port_is_shared_only_where_that_is_permitted(shared):
    runner = server.runner(build_router())
    await runner.setup()
    try:
        first = server.Site(runner, "127.0.0.1", 0, reuse_port=shared)
        await first.start()
        second = server.Site(runner, "127.0.0.1", first.port, reuse_port=shared)
        with contextlib.nullcontext() if shared else pytest.raises(OSError, match="in use"):
            await second.start()
    finally:
        await runner.cleanup()


async def test_a_bug_in_a_handler_is_a_bare_500_and_a_traceback_in_the_log(caplog):
    async def broken(request):
        raise KeyError("secret")

    async with wired.listening(broken) as port:
        got = await wired.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (got.status, got.body) == (500, b"500 Internal Server Error")
    assert any(record.exc_info for record in caplog.records)


def paths() -> st.SearchStrategy[bytes]:
    words = st.sampled_from(
        [
            b"apis",
            b"custom.metrics.k8s.io",
            b"v1beta2",
            b"namespaces",
            b"metrics",
            b"pods",
            b"*",
            b"%2A",
            b"%ff",
            b"%00",
            b"",
            b"healthz",
            b"status",
            b"watch",
        ]
    )
    raw = st.binary(max_size=12).map(
        lambda text: bytes(byte for byte in text if byte > 0x20 and byte != 0x7F)
    )
    return st.lists(words | raw, max_size=9).map(lambda parts: b"/" + b"/".join(parts))


@given(
    path=paths(),
    query=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"labelSelector",
                    b"fieldSelector",
                    b"metricLabelSelector",
                    b"limit",
                    b"timeout",
                    b"watch",
                    b"pretty",
                    b"exclude",
                    b"verbose",
                ]
            ),
            st.binary(max_size=10).map(lambda raw: b"".join(b"%%%02x" % byte for byte in raw)),
        ),
        max_size=3,
    ),
    accept=st.text("applicationjsonyhtmlpretty/*;,q=01. ", max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_no_request_is_answered_with_our_insides(path, query, accept):
    target = path + b"?" + b"&".join(key + b"=" + value for key, value in query)

    async def ask() -> wired.Reply:
        async with wired.listening(build_router()) as port:
            return await wired.fetch(port, target, headers={"Accept": accept.strip()})

    got = asyncio.run(ask())

    assert got.status in {200, 400, 404, 406, 500}
    if got.status == 500:
        known = (b"unable to list matching resources", b"parse requirement", b"found '")
        assert any(text in got.body for text in known), got.body
    assert b"Traceback" not in got.body
