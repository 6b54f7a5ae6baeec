"""Responses to answers, exceptions and timeouts, over a socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import uuid
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.server.apimachinery import encoding, middleware, negotiation, responses
from adapter.server.apimachinery.responses import Answer
from rules.causes import warning_header
from rules.causes.reasons import Reason
from rules.errors import PlanError, SelectorError
from rules.findings import Finding
from tests.adapter import wired


def handler(result):
    """Return a handler that returns or raises `result`."""

    async def handle(request, head):
        if isinstance(result, BaseException):
            raise result
        if isinstance(result, dict):
            accepted = negotiation.of_request(head.info, request.headers)
            body = encoding.encode(result, accepted.encoding, pretty=accepted.pretty)
            return responses.Answer(body=body, content_type=accepted.encoding)
        return result

    return handle


async def reply(result, target="/apis/x", headers=None, **options):
    async with wired.listening(middleware.serving(handler(result), **options)) as port:
        return await wired.fetch(port, target, headers=headers)


def chained(error, cause):
    error.__cause__ = cause
    return error


async def test_a_document_is_compact_json_with_kubernetes_headers():
    got = await reply({"a": 1})

    assert (got.status, got.body) == (200, b'{"a":1}\n')
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["Cache-Control"] == "no-cache, private"
    assert "Server" not in got.headers
    assert "Date" in got.headers


async def test_an_audit_id_is_echoed_or_a_new_uuid():
    echoed = await reply({}, headers={"Audit-ID": "mine-1"})
    not_ascii = await reply({}, headers={"Audit-ID": "é"})
    one, other = await reply({}), await reply({})

    assert echoed.headers["Audit-Id"] == "mine-1"
    assert one.headers["Audit-Id"] != other.headers["Audit-Id"]
    for each in (not_ascii, one, other):
        assert uuid.UUID(each.headers["Audit-Id"]).version == 4


@pytest.mark.parametrize(
    ("query", "headers", "pretty"),
    [
        ("", {}, False),
        ("", {"User-Agent": "curl/8.5"}, True),
        ("", {"User-Agent": "Wget/1.2"}, True),
        ("", {"User-Agent": "Mozilla/5.0 (X11)"}, True),
        ("", {"User-Agent": "kubectl/v1.36"}, False),
        ("pretty", {"User-Agent": "curl/8.5"}, True),
        ("pretty=false", {"User-Agent": "curl/8.5"}, False),
        ("pretty=1", {}, True),
        ("pretty=nonsense", {"User-Agent": "curl/8.5"}, False),
        ("pretty=false", {"Accept": "application/json;pretty=1"}, True),
    ],
)
async def test_pretty_is_decided_by_accept_then_query_then_user_agent(query, headers, pretty):
    got = await reply({"a": 1}, target=f"/apis?{query}", headers=headers)

    assert got.body == (b'{\n  "a": 1\n}' if pretty else b'{"a":1}\n')


@pytest.mark.parametrize(
    ("error", "code", "message", "reason"),
    [
        (errors.ApiError(401, "who", reason="Unauthorized"), 401, "who", "Unauthorized"),
        (SelectorError("found ','"), 400, "found ','", "BadRequest"),
        (PlanError("a>1 is not supported"), 400, "a>1 is not supported", "BadRequest"),
        (
            errors.Unreachable("secret host"),
            500,
            "Internal error occurred: unable to fetch metrics",
            "InternalError",
        ),
        (
            ValueError("secret"),
            500,
            (
                "Internal error occurred: the request failed; "
                "the log of gpu-metrics-adapter has the cause"
            ),
            "InternalError",
        ),
        (TimeoutError("not the deadline"), 500, None, "InternalError"),
    ],
)
async def test_every_exception_becomes_a_status(error, code, message, reason, caplog):
    got = await reply(error)

    status = json.loads(got.body)
    assert (got.status, status["code"], status["kind"]) == (code, code, "Status")
    assert status["message"] == (message or status["message"])
    assert status["reason"] == reason
    assert b"secret" not in got.body


async def test_headers_of_an_api_error_are_sent():
    error = errors.ApiError(403, "no", reason="Forbidden", headers=errors.NOSNIFF)

    got = await reply(error)

    assert got.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
async def test_a_text_error_is_plain_text_with_nosniff(accept):
    error = errors.TextError(429, "Too many \udcff", headers={"Retry-After": "1"})

    got = await reply(error, headers={"Accept": accept})

    assert (got.status, got.body) == (429, b"Too many \xff\n")
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("error", "logged", "traceback"),
    [
        (
            chained(errors.internal("unable to fetch metrics"), errors.Broken("503 from prom")),
            "Internal error occurred: unable to fetch metrics: Broken: 503 from prom",
            False,
        ),
        (errors.ApiError(500, "odd"), "odd", False),
        (
            KeyError("x"),
            (
                "Internal error occurred: the request failed; "
                "the log of gpu-metrics-adapter has the cause"
            ),
            True,
        ),
        (errors.bad_request("no"), None, False),
    ],
)
async def test_a_5xx_is_logged_once_with_its_cause_which_is_not_sent(
    caplog, error, logged, traceback
):
    got = await reply(error, target="/apis/x?a=1")

    assert b"prom" not in got.body
    records = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert records == ([("ERROR", f"GET /apis/x?a=1: {logged}")] if logged else [])
    assert [bool(each.exc_info) for each in caplog.records] == [traceback] * len(records)


@pytest.mark.parametrize("query", ["", "pretty=1"])
@pytest.mark.parametrize(
    ("encoded", "start"),
    [(encoding.YAML, b"apiVersion: v1\ncode: 400\n"), (encoding.PROTOBUF, b"k8s\x00")],
)
async def test_errors_are_sent_in_the_accepted_encoding(encoded, start, query):
    headers = {"Accept": f"{encoded}, */*", "User-Agent": "curl/8.5"}
    got = await reply(errors.bad_request("no"), target=f"/apis?{query}", headers=headers)

    assert (got.status, got.headers["Content-Type"]) == (400, encoded)
    assert got.body.startswith(start)


async def test_answers_are_logged_with_their_media_type_and_client_when_debugging(caplog):
    with caplog.at_level(logging.DEBUG, logger=middleware.__name__):
        await reply({"a": 1}, headers={"Accept": encoding.YAML, "User-Agent": "hpa/1"})

    assert "GET /apis/x from hpa/1: 200 application/yaml" in caplog.messages


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table"])
async def test_errors_are_sent_as_json_even_if_no_encoding_is_accepted(accept):
    got = await reply(errors.bad_request("no"), headers={"Accept": accept})

    assert (got.status, got.headers["Content-Type"]) == (400, "application/json")
    assert got.body.startswith(b'{\n  "kind": "Status"')


@pytest.mark.parametrize(
    ("timeout", "query"), [(0.02, ""), (5.0, "timeout=20ms"), (0.02, "timeout=9s")]
)
async def test_a_timeout_cancels_the_handler_and_is_answered_like_the_original(timeout, query):
    cancelled = asyncio.Event()

    async def hang(*_):
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    async with wired.listening(middleware.serving(hang, timeout=timeout)) as port:
        got = await wired.fetch(port, f"/apis?{query}")

    assert (got.status, got.headers["Content-Type"]) == (504, "text/plain; charset=utf-8")
    assert got.body == (
        b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within '
        b'the allotted timeout","reason":"Timeout","details":{},"code":504}\n'
    )
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/apis?timeout=abc", 400),
        ("/apis?timeout=0s", 200),
        ("/apis?timeout=-1s", 200),
        ("/apis?timeout=1h", 200),
        ("/apis/g/v/pods?timeout=abc", 400),
        ("/apis/g/v/pods?timeout=abc&watch", 200),
    ],
)
async def test_a_malformed_timeout_is_refused_except_for_watches(target, status):
    got = await reply({}, target=target)

    assert got.status == status
    if status == 400:
        assert json.loads(got.body)["message"] == (
            'invalid timeout specified in the request URL - time: invalid duration "abc"'
        )


@pytest.mark.parametrize(
    ("accept", "size", "compressed"),
    [
        ("gzip", 128 * 1024 + 1, True),
        ("deflate, gzip", 128 * 1024 + 1, True),
        ("gzip", 128 * 1024, False),
        ("gzip;q=1", 128 * 1024 + 1, False),
        ("", 128 * 1024 + 1, False),
    ],
)
async def test_long_answers_are_compressed_if_gzip_is_accepted_without_parameters(
    accept, size, compressed
):
    got = await reply(responses.Answer(body=b"x" * size), headers={"Accept-Encoding": accept})

    assert (got.headers.get("Content-Encoding") == "gzip") is compressed
    assert (got.headers.get("Vary") == "Accept-Encoding") is compressed
    body = gzip.decompress(got.body) if compressed else got.body
    assert body == b"x" * size


async def test_a_long_body_is_compressed_once_in_a_thread(monkeypatch):
    threads = []

    def compress(*args, **options):
        threads.append(threading.current_thread())
        return original(*args, **options)

    original = gzip.compress
    monkeypatch.setattr(gzip, "compress", compress)
    compressor, body = responses.Compressor(), b"x" * (128 * 1024 + 1)
    request = SimpleNamespace(headers={"Accept-Encoding": "gzip"})

    async def compressed(body):
        return (await compressor.compress(Answer(body=body, gzip_threshold=0), request)).body

    first, second = await asyncio.gather(compressed(body), compressed(body))

    assert gzip.decompress(first) == body
    assert first is second is await compressed(body)
    assert await compressed(b"short")
    assert [each is threading.main_thread() for each in threads] == [False, True]


async def test_a_malformed_url_gets_a_bare_400_and_one_log_line(caplog):
    got = await reply({}, target="/apis/%zz")

    assert (got.status, got.body) == (400, b"400 Bad Request")
    assert got.headers["Connection"] == "close"
    assert "Audit-Id" not in got.headers
    assert [record.getMessage() for record in caplog.records] == [
        "rejected GET /apis/%zz: 400, malformed URL"
    ]


async def test_answers_close_their_connection_during_shutdown():
    async with wired.listening(middleware.serving(handler({}), closing=lambda: True)) as port:
        got = await wired.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert got.headers["Connection"] == "close"


@pytest.mark.parametrize(
    ("reason", "details", "tail"),
    [
        ("", None, b'"message":"m","code":400}\n'),
        ("Gone", {}, b'"message":"m","reason":"Gone","details":{},"code":400}\n'),
        ("", {"name": "n"}, b'"message":"m","details":{"name":"n"},"code":400}\n'),
    ],
)
async def test_a_status_omits_an_empty_reason_and_absent_details(reason, details, tail):
    got = await reply(errors.ApiError(400, "m", reason=reason, details=details))

    head = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    assert got.body == head + tail


# Limits


async def test_a_target_above_a_limit_is_a_400_before_the_handler():
    got = await reply({"a": 1}, "/apis?pretty=1&labelSelector=" + "," * 1000)

    assert got.status == 400
    assert got.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
        b'"labelSelector has 1001 requirements and values; at most 1000 are accepted",'
        b'"reason":"BadRequest","code":400}\n'
    )


async def test_a_long_accept_header_is_a_400():
    got = await reply({"a": 1}, headers={"Accept": "*/*," * 1025})

    assert got.status == 400
    assert b"the Accept header has 4100 characters; at most 4096 are accepted" in got.body


async def test_a_closing_server_closes_the_connection_after_every_error():
    for target in ("/", "/?" + "&" * 1000):
        got = await reply({}, target, headers={"Connection": "keep-alive"}, closing=lambda: True)

        assert got.headers["Connection"] == "close"


async def test_a_long_audit_id_is_replaced():
    got = await reply({}, headers={"Audit-ID": "a" * 1025})

    uuid.UUID(got.headers["Audit-Id"])


async def test_a_long_message_is_cut():
    got = await reply(errors.bad_request("<" * 100_000))

    message = json.loads(got.body)["message"]
    assert message == "<" * 16384 + "…"


def test_a_warning_is_one_line_of_ascii_in_quotes_and_limited():
    cause = Finding(
        reason=Reason.NO_QUERY, fact='a "b" \\ ü\r\nEvil: 1 ' + "x" * 2000, cure="Do it"
    )

    (header,) = responses.with_warning(Answer(body=b""), (cause, cause)).headers.values()

    assert header.startswith('299 - "NoQuery: a \\"b\\" \\\\ ? Evil: 1 xxx')
    assert header.endswith('xxx.... Do it (and 1 more cause)"')
    assert len(header) < 1100
    parsed = warning_header.parse(header)
    assert parsed.startswith('NoQuery: a "b" \\ ? Evil: 1 xxx')
    assert parsed.endswith("xxx.... Do it (and 1 more cause)")
    assert warning_header.parse("") == ""


def test_the_warning_of_the_same_causes_is_written_once():
    first, second = (
        responses.with_warning(
            Answer(body=b""), [Finding(reason=Reason.NO_SAMPLE, fact="1 of 2 pods have no value")]
        )
        for _ in range(2)
    )

    assert first.headers["Warning"] is second.headers["Warning"]


def test_an_answer_without_causes_has_no_warning():
    assert responses.with_warning(Answer(body=b""), ()).headers == {}


# Metrics

GROUP = "custom.metrics.k8s.io"
LABELS = ("verb", "group", "version", "scope", "code")


def counted(registry):
    """Return the numbers of requests by their labels."""
    return {
        tuple(each.labels[label] for label in LABELS): each.value
        for metric in registry.collect()
        for each in metric.samples
        if each.name == "apiserver_request_total"
    }


async def test_requests_are_counted_by_verb_api_scope_and_code():
    registry = CollectorRegistry()
    meter = telemetry.RequestMetrics(registry, {(GROUP, "v1beta1")})
    pods = f"/apis/{GROUP}/v1beta1/namespaces/a/pods"
    for result, target in (
        ({}, f"{pods}/b/m"),
        ({}, f"{pods}/b/other"),
        (errors.no_route(), pods),
        ({}, f"/apis/{GROUP}/v1beta1/pods"),
        ({}, "/healthz"),
        (ValueError(), "/healthz"),
        ({}, "/%zz"),
    ):
        await reply(result, target, meter=meter)

    assert counted(registry) == {
        ("GET", GROUP, "v1beta1", "resource", "200"): 2,
        ("LIST", GROUP, "v1beta1", "namespace", "404"): 1,
        ("LIST", GROUP, "v1beta1", "cluster", "200"): 1,
        ("GET", "", "", "", "200"): 1,
        ("GET", "", "", "", "500"): 1,
        ("GET", "", "", "", "400"): 1,
    }
    duration = "apiserver_request_duration_seconds_count"
    labels = {"verb": "GET", "group": GROUP, "version": "v1beta1", "scope": "resource"}
    assert registry.get_sample_value(duration, labels) == 2


async def test_clients_cannot_add_label_values():
    registry = CollectorRegistry()
    meter = telemetry.RequestMetrics(registry, {(GROUP, "v1beta1")})
    serve = middleware.serving(handler({}), meter=meter)
    async with wired.listening(serve) as port:
        for number in range(20):
            await wired.fetch(port, f"/apis/group-{number}/v1/pods/a")
            await wired.fetch(port, f"/apis/{GROUP}/v{number}/pods/a")
            await wired.fetch(port, f"/path-{number}", method="OPTIONS")

    assert counted(registry) == {
        ("GET", "", "", "resource", "200"): 40,
        ("OTHER", "", "", "", "200"): 20,
    }


async def test_requests_in_flight_are_counted_until_they_end():
    registry = CollectorRegistry()
    meter = telemetry.RequestMetrics(registry)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def wait(*_):
        inside.set()
        await go_on.wait()
        return Answer(body=b"")

    def in_flight():
        return [
            registry.get_sample_value("apiserver_current_inflight_requests", {"request_kind": kind})
            for kind in ("readOnly", "mutating")
        ]

    async with wired.listening(middleware.serving(wait, meter=meter)) as port:
        request = asyncio.create_task(wired.fetch(port, "/apis/x", method="POST"))
        await inside.wait()
        assert in_flight() == [0, 1]
        go_on.set()
        await request

    assert in_flight() == [0, 0]
