from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from adapter import errors
from adapter.auth import attributes, authorization
from adapter.auth.user import User
from adapter.http import request_info
from tests.fakes import kubernetes

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
JANE = User(name="jane", groups=("a", "system:authenticated"))


def asked(target, *, method="GET", user=JANE):
    path, _, query = target.partition("?")
    return attributes.attributes(user, request_info.parse(path, query, method))


@pytest.mark.parametrize(
    ("paths", "path", "open_"),
    [
        (authorization.OPEN_PATHS, "/healthz", True),
        (authorization.OPEN_PATHS, "healthz", True),
        (authorization.OPEN_PATHS, "//healthz", False),
        (authorization.OPEN_PATHS, "/healthz/", False),
        (authorization.OPEN_PATHS, "/healthz/ping", False),
        (authorization.OPEN_PATHS, "/Healthz", False),
        (("healthz/*",), "/healthz/ping", True),
        (("/healthz/*",), "/healthz", False),
        (("/",), "/", True),
        (("/",), "/a", False),
        (("",), "/", True),
        (("*",), "/anything/at/all", True),
        ((), "/healthz", False),
    ],
)
def test_some_paths_are_open(paths, path, open_):
    assert (path in authorization.OpenPaths(paths)) is open_


@pytest.mark.parametrize("path", ["/a*b", "**", "/*/x"])
def test_a_path_that_is_open_in_its_middle_is_refused(path):
    with pytest.raises(ValueError, match=r"only trailing \* allowed in"):
        authorization.OpenPaths((path,))


# Verdicts


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def reviewed(cluster):
    return cluster.asked(kubernetes.ACCESS_REVIEWS)


async def test_a_review_is_sent_as_kubernetes_sends_it(cluster, api):
    await authorization.Authorizer(api).authorize(asked("/version"), target="/version")

    [request] = reviewed(cluster)
    assert (request.method, request.query) == ("POST", {"timeout": "10s"})
    assert request.document == {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
            "user": "jane",
            "groups": ["a", "system:authenticated"],
        },
        "status": {"allowed": False},
    }


@pytest.mark.parametrize("target", ["/healthz", "/readyz", "/livez"])
async def test_open_paths_need_no_review(cluster, api, target):
    await authorization.Authorizer(api).authorize(asked(target), target=target)

    assert reviewed(cluster) == []


async def test_a_resource_is_never_open(cluster, api):
    cluster.decide = lambda spec: {"allowed": False}
    everything = authorization.Authorizer(api, open_paths=("*",))
    await everything.authorize(asked("/version"), target="/")

    with pytest.raises(errors.ApiError, match="is forbidden"):
        await everything.authorize(asked(f"{CUSTOM}/nodes/n/M"), target="/")


async def test_masters_need_no_review(cluster, api):
    master = User(name="root", groups=("system:masters",))

    await authorization.Authorizer(api).authorize(asked("/metrics", user=master), target="/metrics")

    assert reviewed(cluster) == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"allowed": False}, ""),
        ({"allowed": False, "reason": "no"}, ": no"),
        ({"allowed": False, "denied": True, "reason": "never"}, ": never"),
        ({"allowed": None, "evaluationError": "secret"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
async def test_what_is_not_allowed_is_forbidden(cluster, api, status, reason):
    cluster.decide = lambda spec: status

    with pytest.raises(errors.ApiError) as raised:
        await authorization.Authorizer(api).authorize(asked("/metrics"), target="/metrics")

    assert raised.value.code == 403
    assert raised.value.message == f'forbidden: User "jane" cannot get path "/metrics"{reason}'


async def test_a_reason_to_allow_is_no_reason_to_forbid(cluster, api):
    cluster.decide = lambda spec: {"allowed": True, "reason": "RBAC: allowed by …"}

    await authorization.Authorizer(api).authorize(asked("/metrics"), target="/metrics")


async def test_a_verdict_that_contradicts_itself_is_none(cluster, api):
    cluster.decide = lambda spec: {"allowed": True, "denied": True}

    with pytest.raises(errors.TextError) as raised:
        await authorization.Authorizer(api).authorize(asked("/x"), target="/x?a=<b>&\xe9")

    assert (raised.value.code, raised.value.message) == (
        500,
        (
            'Internal Server Error: "/x?a=&lt;b&gt;&amp;\xe9": '
            "webhook subject access review returned both allow and deny response"
        ),
    )


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ({"status": 403, "message": "jane has secrets"}, errors.Refused),
        ({"status": 400}, errors.Refused),
        ({"body": b"[]"}, errors.Broken),
        ({"body": b"null"}, errors.Broken),
        ({"body": b'{"status": true}'}, errors.Broken),
        ({"body": b'{"status": {"allowed": "true"}}'}, errors.Broken),
        ({"body": b'{"status": {"allowed": true, "denied": 1}}'}, errors.Broken),
        ({"body": b'{"status": {"allowed": true, "reason": {"a": 1}}}'}, errors.Broken),
        ({"body": b"allowed"}, errors.Broken),
    ],
)
async def test_no_verdict_lets_nobody_in(cluster, api, failure, cause):
    cluster.fail(kubernetes.ACCESS_REVIEWS, **failure)
    authorizer = authorization.Authorizer(api)

    with pytest.raises(errors.TextError) as raised:
        await authorizer.authorize(asked("/metrics"), target="/metrics")

    assert (raised.value.code, raised.value.message) == (
        500,
        (
            'Internal Server Error: "/metrics": no verdict could be had; '
            "the log of the adapter says why"
        ),
    )
    assert isinstance(raised.value.__cause__, cause)
    # And it is not remembered.
    await authorizer.authorize(asked("/metrics"), target="/metrics")


async def test_what_may_pass_is_asked_again(cluster, api):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    cluster.fail(kubernetes.ACCESS_REVIEWS, status=500, times=4)

    await authorization.Authorizer(api, sleep=sleep).authorize(asked("/metrics"), target="/metrics")

    assert len(reviewed(cluster)) == 5
    assert 0.5 <= pauses[0] <= 0.6 < pauses[-1]


@pytest.mark.parametrize(("allowed", "seconds"), [(True, 60), (False, 10)])
async def test_verdicts_are_remembered(cluster, api, allowed, seconds):
    cluster.decide = lambda spec: {"allowed": allowed}
    clock = Clock()
    authorizer = authorization.Authorizer(api, clock=clock)
    for now in (0, seconds - 0.1, seconds):
        clock.now = now
        assert (await authorizer.review(asked("/metrics"))).allowed is allowed

    assert len(reviewed(cluster)) == 2


@pytest.mark.parametrize(("allowed", "times"), [(True, 1), (False, 2)])
async def test_how_long_verdicts_hold_can_be_told(cluster, api, allowed, times):
    cluster.decide = lambda spec: {"allowed": allowed}
    clock = Clock()
    authorizer = authorization.Authorizer(api, allowed_seconds=3, denied_seconds=0, clock=clock)
    for _ in range(2):
        await authorizer.review(asked("/metrics"))

    assert len(reviewed(cluster)) == times


@pytest.mark.parametrize(
    "other",
    [
        asked("/livez"),
        asked("/metrics", method="POST"),
        asked("/metrics", user=User(name="joe", groups=JANE.groups)),
        asked("/metrics", user=User(name="jane")),
        asked("/metrics", user=User(name="jane", groups=JANE.groups, uid="1")),
        asked("/metrics", user=User(name="jane", groups=JANE.groups, extra={"k": ("v",)})),
    ],
)
async def test_a_verdict_holds_for_nothing_else(cluster, api, other):
    authorizer = authorization.Authorizer(api, open_paths=())

    await authorizer.review(asked("/metrics"))
    await authorizer.review(other)

    assert len(reviewed(cluster)) == 2


async def test_what_only_the_router_tells_apart_is_one_question(cluster, api):
    authorizer = authorization.Authorizer(api)
    for tail in ("", "/", "/more", "?pretty"):
        await authorizer.review(asked(f"{CUSTOM}/nodes/n/M{tail}"))

    assert len(reviewed(cluster)) == 1


@pytest.mark.parametrize(("length", "times"), [(9_900, 1), (10_000, 2)])
@pytest.mark.parametrize("target", ["/{}", f"{EXTERNAL}/namespaces/ns/q?labelSelector={{}}"])
async def test_what_callers_make_long_is_not_remembered(cluster, api, target, length, times):
    authorizer = authorization.Authorizer(api)
    for _ in range(2):
        await authorizer.review(asked(target.format("x" * length)))

    assert len(reviewed(cluster)) == times


class Agreeable:
    """Allows everything."""

    async def post(self, path, document, *, timeout=None):
        return {"status": {"allowed": True}}


async def test_callers_cannot_fill_the_memory():
    authorizer = authorization.Authorizer(Agreeable())
    for number in range(900):
        await authorizer.review(asked(f"/{number:09000}"))

    kept = authorizer._verdicts._cached._entries
    assert 800 < len(kept) < 900
    assert sum(key.controlled for key in kept) < 8 << 20


async def test_the_same_asked_at_once_is_one_review(cluster, api):
    authorizer = authorization.Authorizer(api)
    cluster.fail(kubernetes.ACCESS_REVIEWS, delay=0.05)

    verdicts = await asyncio.gather(*(authorizer.review(asked("/metrics")) for _ in range(20)))

    assert all(verdict.allowed for verdict in verdicts)
    assert len(reviewed(cluster)) == 1


async def test_bytes_that_are_no_text_reach_the_api_server_as_json(cluster, api):
    user = User(name="j\udcffne", extra={"\udc80": ("\udc81",)})

    await authorization.Authorizer(api).review(asked("/%ff", user=user))

    [request] = reviewed(cluster)
    assert request.document["spec"] == {
        "nonResourceAttributes": {"path": "/\ufffd", "verb": "get"},
        "user": "j\ufffdne",
        "extra": {"\ufffd": ["\ufffd"]},
    }
    json.dumps(request.document).encode()


class Meter:
    def __init__(self):
        self.results = []

    def authorized(self, result):
        self.results.append(result)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ({"allowed": True}, "allowed"),
        ({"allowed": False, "reason": "no RBAC policy matched"}, "no-opinion"),
        ({"allowed": False, "denied": True}, "denied"),
        ({"allowed": True, "denied": True}, "error"),
        ("nothing", "error"),
    ],
)
async def test_what_became_of_requests_is_counted(cluster, api, status, result):
    cluster.decide = lambda spec: status
    meter = Meter()
    authorizer = authorization.Authorizer(api, meter=meter)

    for _ in range(2):
        with contextlib.suppress(errors.ApiError):
            await authorizer.authorize(asked("/version"), target="/version")

    assert meter.results == [result] * 2


async def test_what_needs_no_review_is_counted_and_a_review_of_somebody_else_is_not(cluster, api):
    meter = Meter()
    authorizer = authorization.Authorizer(api, meter=meter)

    await authorizer.authorize(asked("/healthz"), target="/healthz")
    await authorizer.review(asked("/version"))

    assert meter.results == ["allowed"]
