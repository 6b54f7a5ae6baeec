from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from adapter.server.api import health
from adapter.server.apimachinery import middleware
from adapter.server.apimachinery.heads import Heads
from adapter.server.apimachinery.responses import Answer
from adapter.server.auth import filters
from adapter.server.auth.in_flight import WaitingForReview
from tests.adapter import wired
from tools.fakes import kubernetes
from tools.waiting import until

CUSTOM = "/apis/custom.metrics.k8s.io"
POD = f"{CUSTOM}/v1beta2/namespaces/default/pods/pod-a/http_requests_per_second"
JANE = {"Authorization": "Bearer jane-s3cret"}
ROOT = {"Authorization": "Bearer root-s3cret"}


def token(name, *groups):
    user = {"username": name, "groups": ["system:authenticated", *groups]}
    return {"authenticated": True, "user": user}


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let an answer wait for the review of its causes also while other processes run."""
    monkeypatch.setattr(filters, "_CAN_READ_TIMEOUT", 60.0)


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.tokens = {
        "jane-s3cret": token("jane"),
        "root-s3cret": token("root", "system:masters"),
    }
    return cluster


GATE = "/readyz/gate"


class Gate:
    """Health check that blocks its requests until it is opened."""

    def __init__(self):
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.left = asyncio.Event()

    async def pass_through(self):
        self.reached.set()
        try:
            await self.opened.wait()
        finally:
            self.left.set()


def build_router(api, *, gate=None, guard=None, heads=None, **limits):
    return wired.build_router(
        guard=guard or wired.guard(api, **limits),
        heads=heads,
        ready=[health.Check(name="gate", run=gate.pass_through)] if gate else (),
    )


@pytest.fixture
async def port(api):
    async with wired.listening(build_router(api)) as port:
        yield port


def specs(cluster):
    return [request.document["spec"] for request in cluster.requests_to(kubernetes.ACCESS_REVIEWS)]


@pytest.mark.parametrize("path", [POD, "/healthz", f"{CUSTOM}/v1beta2"])
async def test_heads_of_unauthorized_callers_are_not_remembered(api, cluster, path):
    cluster.decide = lambda spec: {"allowed": False}
    heads = Heads()

    async with wired.listening(build_router(api, guard=wired.guard(api), heads=heads)) as port:
        for _ in range(2):
            await wired.fetch(port, path)

    assert (heads.cache.hits, heads.cache.misses) == (0, 2)


async def test_heads_of_authorized_requests_for_metrics_are_remembered(api):
    heads = Heads()

    async with wired.listening(build_router(api, guard=wired.guard(api), heads=heads)) as port:
        for _ in range(3):
            await wired.fetch(port, POD)

    assert (heads.cache.hits, heads.cache.misses) == (2, 1)


async def test_a_rejected_token_is_a_401_without_a_review(port, cluster):
    got = await wired.fetch(port, POD, headers={"Authorization": "Bearer wrong"})

    assert got.status == 401
    assert got.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
    )
    assert "X-Content-Type-Options" not in got.headers
    assert specs(cluster) == []


async def test_a_failing_api_server_is_a_500(port, cluster, caplog):
    cluster.fail(kubernetes.ACCESS_REVIEWS, status=503, message="etcd at 10.0.0.7 is down")

    got = await wired.fetch(port, "/metrics?a=%3Cb%3E<b>", headers={"Accept": "text/html"})

    assert got.status == 500
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.body == (
        b'Internal Server Error: "/metrics?a=%3Cb%3E&lt;b&gt;": '
        b"authorization check failed; see the log of the adapter\n"
    )
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "etcd at 10.0.0.7 is down" in record.getMessage()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_probes_need_no_api_server(port, cluster, path):
    cluster.fail("/", status=500, times=1000)

    assert (await wired.fetch(port, path)).status == 200


# Order of the filters


BAD_TIMEOUT = "timeout=soon"
DENIED = {"allowed": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "method", "headers", "review", "limit", "status", "text"),
    [
        ("/%zz?" + BAD_TIMEOUT, "GET", {"Authorization": "Bearer x"}, DENIED, 0, 400, "400 Bad"),
        ("/apis?" + BAD_TIMEOUT, "GET", {"Authorization": "Bearer x"}, DENIED, 0, 400, "timeout"),
        ("/apis", "GET", {"Authorization": "Bearer x", "Impersonate-Uid": "1"}, DENIED, 0, 401, ""),
        ("/apis", "GET", {"Impersonate-Uid": "1"}, DENIED, 0, 400, "without impersonating a user"),
        (
            "/apis",
            "GET",
            {"Impersonate-User": "joe"},
            DENIED,
            0,
            403,
            "cannot impersonate resource",
        ),
        ("/nope", "GET", {}, DENIED, 0, 403, "cannot get path"),
        ("/apis", "DELETE", {}, DENIED, 1, 403, "cannot delete path"),
        ("/apis", "GET", {"Accept": "text/html"}, DENIED, 1, 403, "cannot get path"),
        (f"{CUSTOM}/v1beta3/nodes/n/m", "GET", {}, DENIED, 1, 403, "cannot get resource"),
        (POD + "?labelSelector=,", "GET", {}, DENIED, 1, 403, "cannot get resource"),
        ("/nope", "GET", {}, {"allowed": True}, 0, 429, "Too many requests"),
        ("/nope", "GET", {}, {"allowed": True}, 1, 404, "paths"),
        ("/apis", "DELETE", {"Accept": "text/html"}, {"allowed": True}, 1, 405, "method"),
        ("/apis", "GET", {"Accept": "text/html"}, {"allowed": True}, 1, 406, "406"),
    ],
)
async def test_each_filter_precedes_the_next(
    api, cluster, target, method, headers, review, limit, status, text
):
    cluster.decide = lambda spec: review

    async with wired.listening(build_router(api, max_read_only=limit)) as port:
        got = await wired.fetch(port, target, method=method, headers=headers)

    assert (got.status, text in got.body.decode()) == (status, True), got.body


# Impersonation


async def test_an_impersonated_user_is_authorized_instead_of_the_requester(port, cluster):
    headers = {**JANE, "Impersonate-User": "joe", "Impersonate-Group": "g"}

    got = await wired.fetch(port, "/version", headers=headers)

    assert got.status == 200
    jane = {"user": "jane", "groups": ["system:authenticated"]}
    impersonate = {"verb": "impersonate", "version": "v1"}
    assert specs(cluster) == [
        {"resourceAttributes": {**impersonate, "resource": "users", "name": "joe"}, **jane},
        {"resourceAttributes": {**impersonate, "resource": "groups", "name": "g"}, **jane},
        {
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
            "user": "joe",
            "groups": ["g", "system:authenticated"],
        },
    ]


async def test_system_masters_that_impersonate_lose_their_rights(port, cluster):
    cluster.decide = lambda spec: {"allowed": False}

    got = await wired.fetch(port, "/version", headers={**ROOT, "Impersonate-User": "joe"})

    assert got.status == 403
    assert b'User \\"joe\\"' in got.body


async def test_a_refused_impersonation_does_not_fall_back_to_the_requester(port, cluster):
    cluster.decide = lambda spec: {"allowed": "nonResourceAttributes" in spec}

    got = await wired.fetch(port, "/version", headers={**JANE, "Impersonate-User": "joe"})

    assert got.status == 403
    assert {spec["user"] for spec in specs(cluster)} == {"jane"}
    assert not any("nonResourceAttributes" in spec for spec in specs(cluster))


# In-flight limit


async def test_a_request_above_the_limit_is_a_429(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, max_read_only=1)) as port:
        first = asyncio.create_task(wired.fetch(port, GATE))
        await gate.reached.wait()

        second = await wired.fetch(port, "/healthz")

        assert (second.status, first.done()) == (429, False)
        assert second.body == b"Too many requests, please try again later.\n"
        assert second.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert second.headers["X-Content-Type-Options"] == "nosniff"
        assert second.headers["Retry-After"] == "1"
        gate.opened.set()
        assert (await first).status == 200
        assert (await wired.fetch(port, "/version")).status == 200


async def test_system_masters_are_served_above_the_limit(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, max_read_only=1)) as port:
        first = asyncio.create_task(wired.fetch(port, GATE))
        await gate.reached.wait()
        gate.reached.clear()
        above = asyncio.create_task(wired.fetch(port, GATE, headers=ROOT))
        await gate.reached.wait()
        gate.opened.set()

        assert ((await above).status, (await first).status) == (200, 200)
        assert (await wired.fetch(port, "/version")).status == 200


@pytest.mark.parametrize("read_only", [True, False])
async def test_read_only_and_mutating_requests_have_separate_limits(api, read_only):
    limits = {"max_read_only": int(read_only), "max_mutating": int(not read_only)}
    async with wired.listening(build_router(api, **limits)) as port:
        assert (await wired.fetch(port, "/healthz")).status == (200 if read_only else 429)
        for method in ("POST", "HEAD", "OPTIONS"):
            got = await wired.fetch(port, "/healthz", method=method)
            assert got.status == (429 if read_only else 200)


async def test_watches_need_no_slot(api):
    async with wired.listening(build_router(api, max_read_only=0, max_mutating=0)) as port:
        got = await wired.fetch(port, f"{CUSTOM}/v1beta2/namespaces/ns/pods//m?watch")

        assert got.status == 404


async def test_a_403_releases_its_slot(api, cluster):
    cluster.decide = lambda spec: {"allowed": False}
    async with wired.listening(build_router(api, max_read_only=1)) as port:
        for _ in range(2):
            assert (await wired.fetch(port, "/version")).status == 403


@pytest.mark.slow
async def test_a_timeout_releases_its_slot(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, max_read_only=1)) as port:
        assert (await wired.fetch(port, f"{GATE}?timeout=300ms")).status == 504
        gate.opened.set()
        assert (await wired.fetch(port, "/version")).status == 200


async def test_a_closed_connection_releases_its_slot(api):
    gate = Gate()
    async with wired.listening(build_router(api, gate=gate, max_read_only=1)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz/gate HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.reached.wait()
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(60):
            await gate.left.wait()
        gate.opened.set()

        assert (await wired.fetch(port, "/healthz")).status == 200


# Requests that wait for a review


async def start_waiting(cluster, port, *targets, headers=None, path=kubernetes.ACCESS_REVIEWS):
    """Send requests whose reviews do not end, and return their tasks once the reviews are sent."""
    before = len(cluster.requests_to(path))
    cluster.fail(path, delay=30, times=len(targets))
    tasks = [asyncio.create_task(wired.fetch(port, each, headers=headers)) for each in targets]
    await until(lambda: len(cluster.requests_to(path)) >= before + len(targets))
    return tasks


@pytest.mark.slow
async def test_a_request_that_waits_for_a_review_takes_no_place_of_an_allowed_one(api, cluster):
    async with wired.listening(build_router(api, max_read_only=1)) as port:
        [waiting] = await start_waiting(cluster, port, "/version?timeout=1s")

        assert (await wired.fetch(port, "/healthz")).status == 200
        assert (await waiting).status == 504


@pytest.mark.slow
async def test_cached_decisions_are_answered_while_anonymous_callers_wait(api, cluster):
    cluster.decide = lambda spec: {"allowed": path_of(spec) == "/version"}
    waiting = WaitingForReview(unidentified=3, identified=0)
    remembered = {"/version": 200, "/denied": 403}
    guard = wired.guard(api, max_read_only=1, waiting=waiting)
    async with wired.listening(build_router(api, guard=guard)) as port:
        waiting._identified.free = 1
        for path, status in remembered.items():
            assert (await wired.fetch(port, path, headers=JANE)).status == status
        waiting._identified.free = 0

        tasks = await start_waiting(cluster, port, "/a", "/b?timeout=4s", "/c")

        for path, status in remembered.items():
            assert (await wired.fetch(port, path, headers=JANE)).status == status
        above = await wired.fetch(port, "/d")
        assert (above.status, above.headers["Retry-After"]) == (429, "1")
        assert (await tasks[1]).status == 504
        cluster.failures.clear()
        assert (await wired.fetch(port, "/d")).status == 403  # a place is free again
        for task in tasks:
            task.cancel()


async def test_a_new_token_waits_with_the_anonymous_callers(api, cluster):
    guard = wired.guard(api, waiting=WaitingForReview(unidentified=1))
    async with wired.listening(build_router(api, guard=guard)) as port:
        assert (await wired.fetch(port, "/version", headers=JANE)).status == 200
        [task] = await start_waiting(
            cluster,
            port,
            "/a",
            headers={"Authorization": "Bearer x"},
            path=kubernetes.TOKEN_REVIEWS,
        )

        assert (await wired.fetch(port, "/version", headers=ROOT)).status == 429
        assert (await wired.fetch(port, "/anonymous")).status == 429
        assert (await wired.fetch(port, "/new-for-jane", headers=JANE)).status == 404
        task.cancel()


async def test_reviews_of_an_impersonation_wait_with_the_identified_callers(api, cluster):
    guard = wired.guard(api, waiting=WaitingForReview(identified=1))
    async with wired.listening(build_router(api, guard=guard)) as port:
        [task] = await start_waiting(cluster, port, "/a", headers=JANE)

        got = await wired.fetch(port, "/version", headers={**JANE, "Impersonate-User": "joe"})

        assert got.status == 429
        task.cancel()


async def test_a_404_has_no_causes_if_too_many_requests_wait(api, cluster):
    guard = wired.guard(api, waiting=WaitingForReview(identified=1))
    async with wired.listening(build_router(api, guard=guard)) as port:
        await wired.fetch(port, MISSING_METRIC + "?labelSelector=,", headers=JANE)
        [task] = await start_waiting(cluster, port, "/a", headers=JANE)

        got = await wired.fetch(port, MISSING_METRIC, headers=JANE)

        assert (got.status, causes(got)) == (404, None)
        task.cancel()


# Logs


@pytest.mark.slow
async def test_no_log_contains_a_token(port, cluster, caplog):
    caplog.set_level(logging.DEBUG)
    failures: tuple[dict[str, Any], ...] = (
        {"status": 500},
        {"body": b"jane-s3cret"},
        {"drop": True},
        {"status": 401},
    )
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


# Causes of a missing metric


MISSING_METRIC = f"{CUSTOM}/v1beta2/namespaces/default/pods/pod-a/nothing"
DISCOVERY = f"{CUSTOM}/v1beta1"


def path_of(spec):
    return spec.get("nonResourceAttributes", {}).get("path", "")


def causes(reply):
    return json.loads(reply.body).get("details", {}).get("causes")


async def test_a_404_has_causes_for_users_that_may_read_discovery(port, cluster):
    first = await wired.fetch(port, MISSING_METRIC, headers=JANE)
    again = await wired.fetch(port, MISSING_METRIC, headers=JANE)

    assert first.status == 404
    assert first.headers["Warning"] == '299 - "NoSeries: <none> were seen"'
    assert causes(first) == causes(again) == [{"reason": "NoSeries", "message": "<none> were seen"}]
    assert [path_of(spec) for spec in specs(cluster)] == ["", DISCOVERY]  # both are cached


async def test_a_404_has_no_causes_for_other_users(port, cluster):
    cluster.decide = lambda spec: {"allowed": path_of(spec) != DISCOVERY}

    got = await wired.fetch(port, MISSING_METRIC, headers=JANE)

    assert "Warning" not in got.headers
    assert got.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
        b'"the server could not find the metric nothing for pods","reason":"NotFound","code":404}\n'
    )


async def test_a_404_has_no_causes_if_the_review_fails(port, cluster):
    cluster.decide = lambda spec: {"allowed": True, "denied": path_of(spec) == DISCOVERY}
    contradictory = await wired.fetch(port, MISSING_METRIC, headers=JANE)
    cluster.fail(kubernetes.ACCESS_REVIEWS, status=503, message="etcd is down")

    failed = await wired.fetch(port, MISSING_METRIC, headers=JANE)

    assert (contradictory.status, failed.status) == (404, 404)
    assert causes(contradictory) is causes(failed) is None


async def test_system_masters_get_causes_without_a_review(port, cluster):
    got = await wired.fetch(port, MISSING_METRIC, headers=ROOT)

    assert causes(got)
    assert specs(cluster) == []


async def test_causes_depend_on_the_rights_of_the_impersonated_user(port, cluster):
    cluster.decide = lambda spec: {"allowed": spec["user"] == "jane" or path_of(spec) != DISCOVERY}

    got = await wired.fetch(port, MISSING_METRIC, headers={**JANE, "Impersonate-User": "carol"})

    assert got.status == 404
    assert causes(got) is None


@pytest.fixture
async def reading(api):
    """A function that sends a request and returns whether its user is known to read discovery."""

    guard = wired.guard(api)

    async def respond(request, head):
        caller = await guard(request, head, head.info)
        return Answer(body=str(caller.is_known_to_read(DISCOVERY)).encode())

    async with wired.listening(middleware.serving(respond)) as port:

        async def read(headers=JANE):
            return (await wired.fetch(port, "/healthz", headers=headers)).body == b"True"

        yield read


@pytest.mark.slow
async def test_the_review_of_causes_goes_on_after_the_answer(reading, cluster, monkeypatch):
    monkeypatch.setattr(filters, "_CAN_READ_TIMEOUT", 0.05)  # of answers that wait
    cluster.fail(kubernetes.ACCESS_REVIEWS, delay=0.3)

    assert not await reading()

    await until(reading)
    assert [path_of(spec) for spec in specs(cluster)] == [DISCOVERY]  # one for all of them


async def test_system_masters_are_known_to_read_discovery(reading, cluster):
    assert await reading(ROOT)
    assert specs(cluster) == []


async def test_a_review_that_failed_starts_again_with_the_next_answer(reading, cluster):
    cluster.decide = lambda spec: {"allowed": True, "denied": True}

    async def third() -> bool:
        assert not await reading()
        return len(specs(cluster)) == 3

    await until(third)


@pytest.mark.slow
async def test_reviews_that_no_request_waits_for_are_limited(reading, cluster, monkeypatch):
    monkeypatch.setattr(filters, "_MAX_REVIEWS", 1)
    cluster.tokens["joe"] = token("joe")
    cluster.fail(kubernetes.ACCESS_REVIEWS, delay=2)

    assert not await reading()
    assert not await reading({"Authorization": "Bearer joe"})
    await until(lambda: specs(cluster))
    await asyncio.sleep(0.1)

    assert [spec["user"] for spec in specs(cluster)] == ["jane"]
