from __future__ import annotations

import asyncio
import gzip
import json
import logging

import pytest

from adapter import errors
from adapter.http import encoding, responses
from rules.errors import PlanError, SelectorError
from tests.adapter import wired


def responder(result):
    """A responder that gives or raises `result`."""

    async def respond(request, ask):
        if isinstance(result, BaseException):
            raise result
        return responses.document(result, ask, request.headers) if type(result) is dict else result

    return respond


async def reply(result, target="/apis/x", headers=None, **options):
    async with wired.listening(responses.error_middleware(responder(result), **options)) as port:
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
    given = await reply({}, headers={"Audit-ID": "mine-1"})
    odd = await reply({}, headers={"Audit-ID": "é"})
    one, other = await reply({}), await reply({})

    assert given.headers["Audit-Id"] == "mine-1"
    for each in (odd, one, other):
        parts = each.headers["Audit-Id"].split("-")
        assert [len(part) for part in parts] == [8, 4, 4, 4, 12]
        assert (parts[2][0], parts[3][0] in "89ab") == ("4", True)
    assert one.headers["Audit-Id"] != other.headers["Audit-Id"]


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
async def test_people_get_indentation(query, headers, pretty):
    got = await reply({"a": 1}, target=f"/apis?{query}", headers=headers)

    assert got.body == (b'{\n  "a": 1\n}' if pretty else b'{"a":1}\n')


@pytest.mark.parametrize(
    ("error", "code", "message", "reason"),
    [
        (errors.ApiError(401, "Unauthorized", reason="Unauthorized"), 401, "Unauthorized", 1),
        (SelectorError("found ','"), 400, "found ','", "BadRequest"),
        (PlanError("a>1 cannot be asked"), 400, "a>1 cannot be asked", "BadRequest"),
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
                "Internal error occurred: the request could not be answered; "
                "the log of the adapter says why"
            ),
            "InternalError",
        ),
        (TimeoutError("not the deadline"), 500, None, "InternalError"),
    ],
)
async def test_whatever_is_raised_becomes_a_status(error, code, message, reason, caplog):
    got = await reply(error)

    status = json.loads(got.body)
    assert (got.status, status["code"], status["kind"]) == (code, code, "Status")
    assert status["message"] == (message or status["message"])
    assert status["reason"] == ("Unauthorized" if reason == 1 else reason)
    assert b"secret" not in got.body


async def test_headers_of_an_error_are_sent():
    error = errors.ApiError(403, "no", reason="Forbidden", headers=errors.NOSNIFF)

    got = await reply(error)

    assert got.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
async def test_an_error_of_a_filter_is_text_and_no_page(accept):
    error = errors.TextError(429, "Too many \udcff", headers={"Retry-After": "1"})

    got = await reply(error, headers={"Accept": accept})

    assert (got.status, got.body) == (429, b"Too many \xff\n")
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Retry-After"] == "1"


async def test_the_log_gets_the_cause_once_and_the_caller_does_not(caplog):
    error = chained(errors.internal("unable to fetch metrics"), errors.Broken("503 from prom"))

    got = await reply(error, target="/apis/x?a=1")

    assert b"prom" not in got.body
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "GET /apis/x?a=1: Internal error occurred: unable to fetch metrics: Broken: 503 from prom"
    )
    assert record.exc_info is None


async def test_the_unexpected_is_logged_once_with_its_traceback(caplog):
    await reply(KeyError("x"))

    [record] = caplog.records
    assert record.exc_info[0] is KeyError


async def test_a_server_error_without_a_cause_is_logged_as_it_is(caplog):
    await reply(errors.ApiError(500, "odd"))

    assert [record.getMessage() for record in caplog.records] == ["GET /apis/x: odd"]


async def test_errors_of_callers_are_not_logged(caplog):
    await reply(errors.bad_request("no"))

    assert caplog.records == []


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table"])
async def test_an_error_reaches_a_client_that_accepts_no_encoding(accept):
    got = await reply(errors.bad_request("no"), headers={"Accept": accept})

    assert (got.status, got.headers["Content-Type"]) == (400, "application/json")
    assert got.body.startswith(b'{\n  "kind": "Status"')


async def test_a_document_that_is_not_acceptable_says_what_would_be():
    got = await reply({"a": 1}, headers={"Accept": "application/json;as=Table"})

    status = json.loads(got.body)
    assert (got.status, status["reason"]) == (406, "NotAcceptable")
    assert status["message"] == (
        f"only the following media types are accepted: {', '.join(encoding.PRODUCED)}"
    )
    assert "details" not in status
    assert got.body.startswith(b'{\n  "kind"')


@pytest.mark.parametrize(
    ("deadline", "query"), [(0.02, ""), (5.0, "timeout=20ms"), (0.02, "timeout=9s")]
)
async def test_the_deadline_ends_a_request_in_the_originals_words(deadline, query):
    cancelled = asyncio.Event()

    async def respond(request, ask):
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    async with wired.listening(responses.error_middleware(respond, deadline=deadline)) as port:
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
async def test_a_timeout_has_to_be_a_duration_unless_it_is_a_watch(target, status):
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
async def test_big_answers_are_compressed_for_who_accepts_the_bare_token(accept, size, compressed):
    got = await reply(responses.Answer(body=b"x" * size), headers={"Accept-Encoding": accept})

    assert (got.headers.get("Content-Encoding") == "gzip") is compressed
    assert (got.headers.get("Vary") == "Accept-Encoding") is compressed
    body = gzip.decompress(got.body) if compressed else got.body
    assert body == b"x" * size


async def test_a_malformed_url_gets_a_bare_400_and_a_line_in_the_log(caplog):
    got = await reply({}, target="/apis/%zz")

    assert (got.status, got.body) == (400, b"400 Bad Request")
    assert got.headers["Connection"] == "close"
    assert "Audit-Id" not in got.headers
    assert [record.getMessage() for record in caplog.records] == [
        "said 400 to GET /apis/%zz: no URL is encoded so"
    ]


async def test_answers_end_their_connections_while_the_server_closes():
    async with wired.listening(
        responses.error_middleware(responder({}), closing=lambda: True)
    ) as port:
        got = await wired.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert got.headers["Connection"] == "close"


@pytest.mark.parametrize(
    ("error", "code", "reason", "details"),
    [
        (errors.no_route(), 404, "NotFound", {}),
        (errors.wrong_method(), 405, "MethodNotAllowed", {}),
        (errors.not_acceptable(("a/b", "c/d")), 406, "NotAcceptable", {}),
        (errors.bad_request("x"), 400, "BadRequest", None),
    ],
)
def test_refusals_have_the_shape_of_kubernetes(error, code, reason, details):
    assert (error.code, error.reason, error.details) == (code, reason, details)


def test_representations_are_listed_as_the_router_lists_them():
    assert errors.not_acceptable(("a/b", "c/d")).message == (
        "406: Not Acceptable\n\nAvailable representations: a/b, c/d"
    )
