"""Routing, and the server's behaviour towards unusual clients; tests/parity has more paths."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from adapter import errors
from adapter.server.apimachinery import encoding
from adapter.server.auth.user import EVERYBODY
from adapter.server.http import listening
from rules.kinds import PODS, Kinds
from rules.query.aggregate import Value
from tests.adapter import wired

KINDS = Kinds.builtin()
RULES = """
rules:
- seriesQuery: gpu
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: m
"""


@pytest.fixture
async def port():
    async with wired.listening(wired.build_router()) as port:
        yield port


CUSTOM = "/apis/custom.metrics.k8s.io"


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        (f"{CUSTOM}/v1beta2/", 404, "Status"),
        (f"{CUSTOM}/v1beta3/nodes/n/m", 404, "Status"),
        (f"{CUSTOM}/v1beta2/nodes/n/m", 404, "Status"),
        (f"{CUSTOM}x/v1beta2", 404, None),
        ("/version/x", 404, "Status"),
        ("/versionx", 404, None),
        ("http://adapter/apis", 200, "APIGroupList"),
    ],
)
async def test_paths_that_are_not_in_the_recordings_are_routed_alike(port, target, status, kind):
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
async def test_api_paths_are_read_only_and_others_allow_any_method(port, method, target, status):
    got = await wired.fetch(port, target, method=method)

    assert got.status == status
    assert int(got.headers["Content-Length"]) > 0
    if method == "HEAD":
        assert got.rest == b""


ALL_TYPES = ", ".join(encoding.PRODUCED)
WATCH_TYPES = ", ".join(f"{each};stream=watch" for each in encoding.PRODUCED if "yaml" not in each)


@pytest.mark.parametrize(
    ("target", "types"),
    [
        ("/apis", ALL_TYPES),
        ("/version", "application/json"),
        (f"{CUSTOM}/v1beta2/nodes/n/m", f"{ALL_TYPES}, {WATCH_TYPES}"),
    ],
)
@pytest.mark.parametrize("accept", ["text/html", "application/*", "application/cbor"])
async def test_the_router_refuses_media_types_that_are_not_produced(port, target, types, accept):
    got = await wired.fetch(port, target, headers={"Accept": accept})

    status = json.loads(got.body)
    assert got.status == 406
    # The router refuses `application/*`, but the error itself may be sent as compact JSON.
    assert got.body.startswith(b'{"kind"' if accept == "application/*" else b'{\n  "kind"')
    assert status["message"] == f"406: Not Acceptable\n\nAvailable representations: {types}"
    assert status["details"] == {}


async def test_the_version_is_json_only_and_its_406_is_sent_in_any_encoding(port):
    got = await wired.fetch(port, "/version", headers={"Accept": encoding.YAML})

    assert (got.status, got.headers["Content-Type"]) == (406, encoding.YAML)
    assert got.body.startswith(b"apiVersion: v1\ncode: 406\ndetails: {}\nkind: Status\n")


@pytest.mark.parametrize("known", [(), ("pod-a",)], ids=["empty", "partial"])
async def test_only_callers_who_may_read_discovery_get_the_warning_of_a_remembered_answer(known):
    catalog = wired.catalog(RULES, "gpu", labels=("ns", "pod"))
    objects = wired.Objects(KINDS, {(PODS, "default"): {"pod-a": {}, "pod-b": {}}})
    values = {(PODS, name): Value(milli=1, time=0.0, samples=1) for name in known}

    async def guard(request, head, info):
        return EVERYBODY if head.headers.get("X-Allowed") == "yes" else wired.Nobody()

    served = wired.build_router(catalog, objects, wired.Evaluation(values), guard=guard)
    async with wired.listening(served) as port:
        target = f"{CUSTOM}/v1beta2/namespaces/default/pods/*/gpu"
        got = [
            await wired.fetch(port, target, headers={"X-Allowed": allowed})
            for allowed in ("yes", "no", "yes")
        ]

    assert [each.status for each in got] == [200] * 3
    assert len({each.body for each in got}) == 1
    assert ["Warning" in each.headers for each in got] == [True, False, True]


async def test_405_precedes_406(port):
    got = await wired.fetch(port, "/apis", method="POST", headers={"Accept": "text/html"})

    assert got.status == 405


@pytest.mark.parametrize(
    "target",
    ["/nope", "/apis", f"{CUSTOM}/v1beta2/nodes", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis"],
)
async def test_the_guard_runs_before_routing(target):
    guarded_paths = []

    async def guard(request, head, info):
        guarded_paths.append(info.path)
        raise errors.ApiError(403, "forbidden", reason="Forbidden")

    async with wired.listening(wired.build_router(guard=guard)) as port:
        got = await wired.fetch(port, target, method="POST")

    assert (got.status, guarded_paths) == (403, [target])


@pytest.mark.slow
async def test_a_body_does_not_count_towards_the_head(port):
    got = await wired.send(
        port,
        b"POST /apis HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n"
        + b"x" * 3_000_000,
    )

    assert got.status == 405
    assert got.rest == b""


@pytest.mark.slow
async def test_the_head_limit_applies_to_the_second_request_too():
    async with wired.listening(wired.build_router(), head_seconds=0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\nok")
        await asyncio.sleep(0.6)
        writer.write(b"GET /healthz HT")

        async with asyncio.timeout(20):
            assert await reader.read() == b""

        writer.close()
        await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["*", "adapter:443"])
@pytest.mark.parametrize("headers", [{}, {"Expect": "more"}])
async def test_a_target_without_a_path_is_an_unknown_path(port, target, headers):
    method = "OPTIONS" if target == "*" else "CONNECT"

    got = await wired.fetch(port, target, method=method, headers=headers)

    assert got.status == 404
    assert "Server" not in got.headers
    assert "/healthz" in json.loads(got.body)["paths"]


@pytest.mark.parametrize("expect", ["100-continue", "other"])
async def test_100_continue_is_never_sent(port, expect):
    got = await wired.fetch(port, "/apis", method="POST", headers={"Expect": expect})

    assert got.status == 405


@pytest.mark.parametrize("shared", [True, False])
async def test_a_port_is_shared_only_if_permitted(shared):
    with listening.listen("127.0.0.1", 0, reuse_port=shared) as first:
        port = first.getsockname()[1]
        with contextlib.nullcontext() if shared else pytest.raises(OSError, match="in use"):
            listening.listen("127.0.0.1", port, reuse_port=shared).close()


async def test_an_exception_outside_the_middleware_is_a_bare_500_with_a_logged_traceback(caplog):
    async def broken(request):
        raise KeyError("secret")

    async with wired.listening(broken) as port:
        got = await wired.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (got.status, got.body) == (500, b"500 Internal Server Error")
    assert any(record.exc_info for record in caplog.records)
