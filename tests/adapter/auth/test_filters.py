from __future__ import annotations

import asyncio
import json
import logging

import pytest

from adapter.auth import authentication, authorization, filters, tokens, trust
from rules.kinds import Kinds
from rules.query.catalog import Catalog
from tests.adapter import wired
from tests.fakes import kubernetes

CUSTOM = "/apis/custom.metrics.k8s.io"
POD = f"{CUSTOM}/v1beta2/namespaces/default/pods/pod-a/http_requests_per_second"
JANE = {"Authorization": "Bearer jane-s3cret"}
ROOT = {"Authorization": "Bearer root-s3cret"}


def token(name, *groups):
    user = {"username": name, "groups": ["system:authenticated", *groups]}
    return {"authenticated": True, "user": user}


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.tokens = {
        "jane-s3cret": token("jane"),
        "root-s3cret": token("root", "system:masters"),
    }
    return cluster


def made(api, **limits):
    authenticator = authentication.Authenticator(trust.Trust, tokens.TokenReviews(api))
    return filters.Guard(authenticator, authorization.Authorizer(api), **limits)


class Gate:
    """Holds up what has passed the guard, until it is open."""

    def __init__(self):
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.left = asyncio.Event()

    async def pass_through(self):
        self.reached.set()
        try:
            await self.open.wait()
        finally:
            self.left.set()


def build_router(api, *, gate=None, **limits):
    whole = made(api, **limits)

    def held_up(respond):
        async def answer(request, ask):
            if gate is not None:
                await gate.pass_through()
            return await respond(request, ask)

        return whole(answer)

    objects = wired.Objects(Kinds.builtin(), {})
    return wired.build_router(Catalog.empty(), objects, wired.Evaluation({}), guard=held_up)


@pytest.fixture
async def port(api):
    async with wired.listening(build_router(api)) as port:
        yield port


def specs(cluster):
    return [request.document["spec"] for request in cluster.asked(kubernetes.ACCESS_REVIEWS)]


async def test_who_may_ask_is_answered(port, cluster):
    got = await wired.fetch(port, "/version", headers=JANE)

    assert got.status == 200
    assert specs(cluster) == [
        {
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
            "user": "jane",
            "groups": ["system:authenticated"],
        }
    ]


async def test_a_refusal_is_the_originals_to_the_byte(port, cluster):
    cluster.decide = lambda spec: {"allowed": False}

    got = await wired.fetch(port, POD, headers={"X-Remote-User": "carol"})

    assert got.status == 403
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Content-Length"] == "385"
    assert got.body == (
        rb'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
        rb'"pods.custom.metrics.k8s.io \"pod-a\" is forbidden: User \"system:anonymous\" cannot '
        rb"get resource \"pods/http_requests_per_second\" in API group \"custom.metrics.k8s.io\" "
        rb'in the namespace \"default\"","reason":"Forbidden","details":{"name":"pod-a","group":'
        rb'"custom.metrics.k8s.io","kind":"pods"},"code":403}' + b"\n"
    )


async def test_a_path_is_refused_as_the_original_refuses_it(port, cluster):
    cluster.decide = lambda spec: {"allowed": False, "denied": True, "reason": "because I say so"}

    got = await wired.fetch(port, "/metrics", headers=JANE)

    assert got.body == (
        rb'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
        rb'"forbidden: User \"jane\" cannot get path \"/metrics\": because I say so",'
        rb'"reason":"Forbidden","details":{},"code":403}' + b"\n"
    )


async def test_who_gives_false_credentials_is_nobody(port, cluster):
    got = await wired.fetch(port, POD, headers={"Authorization": "Bearer wrong"})

    assert got.status == 401
    assert got.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
    )
    assert "X-Content-Type-Options" not in got.headers
    assert specs(cluster) == []


async def test_an_api_server_that_is_down_lets_nobody_in(port, cluster, caplog):
    cluster.fail(kubernetes.ACCESS_REVIEWS, status=503, message="etcd at 10.0.0.7 is down")

    got = await wired.fetch(port, "/metrics?a=%3Cb%3E<b>", headers={"Accept": "text/html"})

    assert got.status == 500
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.body == (
        b'Internal Server Error: "/metrics?a=%3Cb%3E&lt;b&gt;": '
        b"no verdict could be had; the log of the adapter says why\n"
    )
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "etcd at 10.0.0.7 is down" in record.getMessage()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_probes_need_nobodys_word(port, cluster, path):
    cluster.fail("/", status=500, times=1000)

    assert (await wired.fetch(port, path)).status == 200


# The order of the filters


BAD_TIMEOUT = "timeout=soon"
DENIED = {"allowed": False}


@pytest.mark.parametrize(
    ("target", "method", "headers", "decide", "reading", "status", "says"),
    [
        ("/%zz?" + BAD_TIMEOUT, "GET", {"Authorization": "Bearer x"}, DENIED, 0, 400, "400 Bad"),
        ("/apis?" + BAD_TIMEOUT, "GET", {"Authorization": "Bearer x"}, DENIED, 0, 400, "timeout"),
        ("/apis", "GET", {"Authorization": "Bearer x", "Impersonate-Uid": "1"}, DENIED, 0, 401, ""),
        ("/apis", "GET", {"Impersonate-Uid": "1"}, DENIED, 0, 400, "without impersonating a user"),
        ("/apis", "GET", {"Impersonate-User": "joe"}, DENIED, 0, 403, "cannot impersonate-on"),
        ("/apis", "GET", {}, DENIED, 0, 429, "Too many requests"),
        ("/nope", "GET", {}, DENIED, 1, 403, "cannot get path"),
        ("/apis", "DELETE", {}, DENIED, 1, 403, "cannot delete path"),
        ("/apis", "GET", {"Accept": "text/html"}, DENIED, 1, 403, "cannot get path"),
        (f"{CUSTOM}/v1beta3/nodes/n/m", "GET", {}, DENIED, 1, 403, "cannot get resource"),
        (POD + "?labelSelector=,", "GET", {}, DENIED, 1, 403, "cannot get resource"),
        ("/nope", "GET", {}, {"allowed": True}, 1, 404, "paths"),
        ("/apis", "DELETE", {"Accept": "text/html"}, {"allowed": True}, 1, 405, "method"),
        ("/apis", "GET", {"Accept": "text/html"}, {"allowed": True}, 1, 406, "406"),
    ],
)
async def test_each_filter_comes_before_the_next(
    api, cluster, target, method, headers, decide, reading, status, says
):
    cluster.decide = lambda spec: decide

    async with wired.listening(build_router(api, reading=reading)) as port:
        got = await wired.fetch(port, target, method=method, headers=headers)

    assert (got.status, says in got.body.decode()) == (status, True), got.body


# As somebody else


async def test_who_may_act_as_another_is_asked_for_as_the_other(port, cluster):
    cluster.decide = lambda spec: {"allowed": spec["user"] == "jane" or spec["user"] == "joe"}
    headers = {**JANE, "Impersonate-User": "joe", "Impersonate-Group": "g"}

    got = await wired.fetch(port, "/version", headers=headers)

    assert got.status == 200
    assert [(spec["user"], spec["groups"]) for spec in specs(cluster)] == [
        ("jane", ["system:authenticated"]),
        ("jane", ["system:authenticated"]),
        ("jane", ["system:authenticated"]),
        ("joe", ["g", "system:authenticated"]),
    ]
    assert specs(cluster)[0]["nonResourceAttributes"]["verb"] == "impersonate-on:user-info:get"


async def test_a_master_who_acts_as_another_is_no_master(port, cluster):
    cluster.decide = lambda spec: {"allowed": False}

    got = await wired.fetch(port, "/version", headers={**ROOT, "Impersonate-User": "joe"})

    assert got.status == 403
    assert b'User \\"joe\\"' in got.body


async def test_who_may_not_act_as_another_does_not_act_at_all(port, cluster):
    cluster.decide = lambda spec: {
        "allowed": spec.get("nonResourceAttributes") is not None
        and ("impersonate" not in spec["nonResourceAttributes"]["verb"])
    }

    got = await wired.fetch(port, "/version", headers={**JANE, "Impersonate-User": "joe"})

    assert got.status == 403
    assert {spec["user"] for spec in specs(cluster)} == {"jane"}


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_misplaced_token_is_warned_of(port, cluster, allowed):
    cluster.decide = lambda spec: {"allowed": allowed}

    odd = await wired.fetch(port, "/version", headers={"Authorization": "Bearer  jane-s3cret"})
    usual = await wired.fetch(port, "/version", headers=JANE)

    assert odd.headers["Warning"] == tokens.WARNING
    assert "Warning" not in usual.headers
    assert odd.status == usual.status == (200 if allowed else 403)
    assert specs(cluster)[0]["user"] == "system:anonymous"


# The limit


async def test_too_many_at_once_are_told_to_come_again(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, reading=1)) as port:
        first = asyncio.create_task(wired.fetch(port, "/version"))
        await gate.reached.wait()

        second = await wired.fetch(port, "/healthz")

        assert (second.status, first.done()) == (429, False)
        assert second.body == b"Too many requests, please try again later.\n"
        assert second.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert second.headers["X-Content-Type-Options"] == "nosniff"
        assert second.headers["Retry-After"] == "1"
        gate.open.set()
        assert (await first).status == 200
        assert (await wired.fetch(port, "/version")).status == 200


async def test_masters_are_always_answered(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, reading=1)) as port:
        first = asyncio.create_task(wired.fetch(port, "/version"))
        await gate.reached.wait()
        gate.reached.clear()
        master = asyncio.create_task(wired.fetch(port, "/version", headers=ROOT))
        await gate.reached.wait()
        gate.open.set()

        assert ((await master).status, (await first).status) == (200, 200)
        assert (await wired.fetch(port, "/version")).status == 200


@pytest.mark.parametrize("reading", [True, False])
async def test_those_who_read_do_not_wait_for_those_who_write(api, reading):
    limits = {"reading": 1, "changing": 0} if reading else {"reading": 0, "changing": 1}
    async with wired.listening(build_router(api, **limits)) as port:
        assert (await wired.fetch(port, "/healthz")).status == (200 if reading else 429)
        for method in ("POST", "HEAD", "OPTIONS"):
            got = await wired.fetch(port, "/healthz", method=method)
            assert got.status == (429 if reading else 200)


async def test_watches_take_no_place(api):
    async with wired.listening(build_router(api, reading=0, changing=0)) as port:
        got = await wired.fetch(port, f"{CUSTOM}/v1beta2/namespaces/ns/pods//m?watch")

        assert got.status == 404


async def test_a_place_is_given_back_by_who_is_refused(api, cluster):
    cluster.decide = lambda spec: {"allowed": False}
    async with wired.listening(build_router(api, reading=1)) as port:
        for _ in range(2):
            assert (await wired.fetch(port, "/version")).status == 403


async def test_a_place_is_given_back_by_who_is_too_late(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, reading=1)) as port:
        assert (await wired.fetch(port, "/version?timeout=300ms")).status == 504
        gate.open.set()
        assert (await wired.fetch(port, "/version")).status == 200


async def test_a_place_is_given_back_by_who_goes(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, reading=1)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.reached.wait()
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            await gate.left.wait()
        gate.open.set()

        assert (await wired.fetch(port, "/healthz")).status == 200


async def test_a_request_that_waits_for_a_verdict_takes_a_place_and_time(api, cluster):
    cluster.fail(kubernetes.ACCESS_REVIEWS, delay=30)
    async with wired.listening(build_router(api, reading=1)) as port:
        waiting = asyncio.create_task(wired.fetch(port, "/version?timeout=1s"))
        while not specs(cluster):  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0.01)

        assert (await wired.fetch(port, "/healthz")).status == 429
        assert (await waiting).status == 504


# Logs


async def test_no_secret_is_in_any_log(port, cluster, caplog):
    caplog.set_level(logging.DEBUG)
    failures = [{"status": 500}, {"body": b"jane-s3cret"}, {"drop": True}, {"status": 401}]
    for failure in failures:
        for path in (kubernetes.TOKEN_REVIEWS, kubernetes.ACCESS_REVIEWS):
            cluster.failures.clear()
            cluster.fail(path, **failure)
            await wired.fetch(port, f"/version?{failure.keys()}", headers=JANE)
    for value in ("Bearer  jane-s3cret", "Basic jane-s3cret", "Bearer jane-s3cret more"):
        await wired.fetch(port, "/%zz", headers={"Authorization": value})
        await wired.fetch(port, "/version", headers={"Authorization": value, "Cookie": "s3cret"})

    assert caplog.records
    assert "s3cret" not in caplog.text
    assert not any(
        "s3cret" in json.dumps(record.__dict__, default=repr) for record in caplog.records
    )


ABSENT = f"{CUSTOM}/v1beta2/namespaces/default/pods/pod-a/nothing"
DOCUMENT = f"{CUSTOM}/v1beta1"


def about(spec):
    return spec.get("nonResourceAttributes", {}).get("path", "")


def causes(reply):
    return json.loads(reply.body).get("details", {}).get("causes")


async def test_who_may_read_discovery_is_told_why_a_metric_is_missing(port, cluster):
    first = await wired.fetch(port, ABSENT, headers=JANE)
    again = await wired.fetch(port, ABSENT, headers=JANE)

    assert first.status == 404
    assert causes(first) == causes(again) == [{"reason": "NoSeries", "message": "<none> were seen"}]
    assert [about(spec) for spec in specs(cluster)] == ["", DOCUMENT]  # both are remembered


async def test_who_may_not_read_discovery_gets_the_plain_status(port, cluster):
    cluster.decide = lambda spec: {"allowed": about(spec) != DOCUMENT}

    got = await wired.fetch(port, ABSENT, headers=JANE)

    assert got.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
        b'"the server could not find the metric nothing for pods","reason":"NotFound","code":404}\n'
    )


async def test_a_review_that_fails_or_takes_long_is_no_permission(port, cluster):
    cluster.decide = lambda spec: {"allowed": True, "denied": about(spec) == DOCUMENT}
    unclear = await wired.fetch(port, ABSENT, headers=JANE)
    cluster.fail(kubernetes.ACCESS_REVIEWS, status=503, message="etcd is down")

    failed = await wired.fetch(port, ABSENT, headers=JANE)

    assert (unclear.status, failed.status) == (404, 404)
    assert causes(unclear) is causes(failed) is None


async def test_masters_are_told_without_a_review(port, cluster):
    got = await wired.fetch(port, ABSENT, headers=ROOT)

    assert causes(got)
    assert specs(cluster) == []


async def test_whose_right_it_is_to_be_told_is_that_of_the_impersonated(port, cluster):
    cluster.decide = lambda spec: {"allowed": spec["user"] == "jane" or about(spec) != DOCUMENT}

    got = await wired.fetch(port, ABSENT, headers={**JANE, "Impersonate-User": "carol"})

    assert got.status == 404
    assert causes(got) is None


async def test_what_is_found_costs_no_second_review(port, cluster):
    got = await wired.fetch(port, DOCUMENT.replace("v1beta1", "v1beta2"), headers=JANE)

    assert got.status == 200
    assert len(specs(cluster)) == 1
