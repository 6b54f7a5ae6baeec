from __future__ import annotations

import asyncio
import contextlib
from unittest import mock

import pytest

from adapter import errors
from adapter.server.auth.authorization import ALWAYS_ALLOWED_PATHS, AlwaysAllowedPaths, Authorizer
from adapter.server.auth.user import User
from tests.adapter.server.auth.test_attributes import CUSTOM, EXTERNAL, JANE, attributes_of
from tools.fakes import kubernetes
from tools.waiting import Clock


@pytest.mark.parametrize(
    ("paths", "path", "allowed"),
    [
        (ALWAYS_ALLOWED_PATHS, "/healthz", True),
        (ALWAYS_ALLOWED_PATHS, "healthz", True),
        (ALWAYS_ALLOWED_PATHS, "//healthz", False),
        (ALWAYS_ALLOWED_PATHS, "/healthz/", False),
        (ALWAYS_ALLOWED_PATHS, "/healthz/ping", False),
        (ALWAYS_ALLOWED_PATHS, "/Healthz", False),
        (("healthz/*",), "/healthz/ping", True),
        (("/healthz/*",), "/healthz", False),
        (("/",), "/", True),
        (("/",), "/a", False),
        (("",), "/", True),
        (("*",), "/anything/at/all", True),
        (("/a*b",), "/axb", False),
        ((), "/healthz", False),
    ],
)
def test_always_allowed_paths_match_exactly_or_by_prefix(paths, path, allowed):
    assert (path in AlwaysAllowedPaths(paths)) is allowed


# SubjectAccessReviews


def access_reviews(cluster):
    return cluster.requests_to(kubernetes.ACCESS_REVIEWS)


async def test_a_review_is_sent_as_kubernetes_does(cluster, api):
    await Authorizer(api).authorize(attributes_of("/version"), target="/version")

    [request] = access_reviews(cluster)
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


async def test_a_resource_request_is_never_always_allowed(cluster, api):
    cluster.decide = lambda spec: {"allowed": False}
    authorizer = Authorizer(api, always_allow_paths=("*",))
    await authorizer.authorize(attributes_of("/version"), target="/")

    with pytest.raises(errors.ApiError, match="is forbidden"):
        await authorizer.authorize(attributes_of(f"{CUSTOM}/nodes/n/M"), target="/")


@pytest.mark.slow
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
async def test_anything_but_allowed_true_is_a_403(cluster, api, status, reason):
    cluster.decide = lambda spec: status

    with pytest.raises(errors.ApiError) as raised:
        await Authorizer(api).authorize(attributes_of("/metrics"), target="/metrics")

    assert raised.value.code == 403
    assert raised.value.message == f'forbidden: User "jane" cannot get path "/metrics"{reason}'


async def test_a_reason_does_not_turn_allowed_into_a_403(cluster, api):
    cluster.decide = lambda spec: {"allowed": True, "reason": "RBAC: allowed by …"}

    await Authorizer(api).authorize(attributes_of("/metrics"), target="/metrics")


async def test_an_answer_that_allows_and_denies_is_a_500(cluster, api):
    cluster.decide = lambda spec: {"allowed": True, "denied": True}

    with pytest.raises(errors.TextError) as raised:
        await Authorizer(api).authorize(attributes_of("/x"), target="/x?a=<b>&\xe9")

    assert (raised.value.code, raised.value.message) == (
        500,
        (
            'Internal Server Error: "/x?a=&lt;b&gt;&amp;\xe9": '
            "webhook subject access review returned both allow and deny response"
        ),
    )


@pytest.mark.slow
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
async def test_a_failed_review_is_a_500_and_is_not_cached(cluster, api, failure, cause):
    cluster.fail(kubernetes.ACCESS_REVIEWS, **failure)
    authorizer = Authorizer(api)

    with pytest.raises(errors.TextError) as raised:
        await authorizer.authorize(attributes_of("/metrics"), target="/metrics")

    assert (raised.value.code, raised.value.message) == (
        500,
        (
            'Internal Server Error: "/metrics": authorization check failed; '
            "see the log of the adapter"
        ),
    )
    assert isinstance(raised.value.__cause__, cause)
    # Not cached: the next review succeeds.
    await authorizer.authorize(attributes_of("/metrics"), target="/metrics")


async def test_retryable_errors_are_retried(cluster, api):
    delays = []

    async def sleep(seconds):
        delays.append(seconds)

    cluster.fail(kubernetes.ACCESS_REVIEWS, status=500, times=4)

    await Authorizer(api, sleep=sleep).authorize(attributes_of("/metrics"), target="/metrics")

    assert len(access_reviews(cluster)) == 5
    assert 0.5 <= delays[0] <= 0.6 < delays[-1]


@pytest.mark.parametrize(("allowed", "seconds"), [(True, 60), (False, 10)])
async def test_decisions_are_cached_for_the_default_ttl(cluster, api, allowed, seconds):
    cluster.decide = lambda spec: {"allowed": allowed}
    clock = Clock()
    authorizer = Authorizer(api, clock=clock)
    for now in (0, seconds - 0.1, seconds):
        clock.now = now
        assert (await authorizer.review(attributes_of("/metrics"))).allowed is allowed

    assert len(access_reviews(cluster)) == 2


@pytest.mark.parametrize(("allowed", "times"), [(True, 1), (False, 2)])
async def test_the_ttls_are_configurable(cluster, api, allowed, times):
    cluster.decide = lambda spec: {"allowed": allowed}
    clock = Clock()
    authorizer = Authorizer(api, allowed_ttl=3, denied_ttl=0, clock=clock)
    for _ in range(2):
        await authorizer.review(attributes_of("/metrics"))

    assert len(access_reviews(cluster)) == times


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        attributes_of("/livez"),
        attributes_of("/metrics", method="POST"),
        attributes_of("/metrics", user=User(name="joe", groups=JANE.groups)),
        attributes_of("/metrics", user=User(name="jane")),
        attributes_of("/metrics", user=User(name="jane", groups=JANE.groups, uid="1")),
        attributes_of("/metrics", user=User(name="jane", groups=JANE.groups, extra={"k": ("v",)})),
    ],
)
async def test_a_decision_is_cached_for_equal_attributes_only(cluster, api, other):
    authorizer = Authorizer(api, always_allow_paths=())

    await authorizer.review(attributes_of("/metrics"))
    await authorizer.review(other)

    assert len(access_reviews(cluster)) == 2


async def test_paths_with_equal_attributes_share_a_decision(cluster, api):
    authorizer = Authorizer(api)
    for suffix in ("", "/", "/more", "?pretty"):
        await authorizer.review(attributes_of(f"{CUSTOM}/nodes/n/M{suffix}"))

    assert len(access_reviews(cluster)) == 1


@pytest.mark.parametrize(("length", "times"), [(9_900, 1), (10_000, 2)])
@pytest.mark.parametrize("target", ["/{}", f"{EXTERNAL}/namespaces/ns/q?labelSelector={{}}"])
async def test_large_attributes_are_not_cached(cluster, api, target, length, times):
    authorizer = Authorizer(api)
    for _ in range(2):
        await authorizer.review(attributes_of(target.format("x" * length)))

    assert len(access_reviews(cluster)) == times


class AllowAll:
    """API server that allows all requests and counts the reviews."""

    reviews = 0

    async def post(self, path, document, *, timeout=None):
        self.reviews += 1
        return {"status": {"allowed": True}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attributes", "held"),
    [
        (lambda number: attributes_of(f"/{number:09000}"), 836),
        (
            lambda number: attributes_of(
                "/metrics", user=User(name=str(number), extra={"k": ("x" * 100_000,)})
            ),
            83,
        ),
    ],
    ids=["attributes", "users"],
)
async def test_the_cache_is_limited_by_the_size_of_attributes_and_users(attributes, held):
    api = AllowAll()
    authorizer = Authorizer(api)
    for number in range(held + 1):
        await authorizer.review(attributes(number))

    reviews = []
    for number in (held, 0):
        await authorizer.review(attributes(number))
        reviews.append(api.reviews)

    assert reviews == [held + 1, held + 2]


async def test_concurrent_requests_share_one_review(cluster, api):
    authorizer = Authorizer(api)
    cluster.fail(kubernetes.ACCESS_REVIEWS, delay=0.05)

    decisions = await asyncio.gather(
        *(authorizer.review(attributes_of("/metrics")) for _ in range(20))
    )

    assert all(decision.allowed for decision in decisions)
    assert len(access_reviews(cluster)) == 1


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
async def test_results_are_counted(cluster, api, status, result):
    cluster.decide = lambda spec: status
    meter = mock.Mock()
    authorizer = Authorizer(api, meter=meter)

    for _ in range(2):
        with contextlib.suppress(errors.ApiError):
            await authorizer.authorize(attributes_of("/version"), target="/version")

    assert meter.mock_calls == [mock.call.authorized(result)] * 2


async def test_authorize_is_counted_without_a_review_and_review_alone_is_not(cluster, api):
    meter = mock.Mock()
    authorizer = Authorizer(api, meter=meter)

    await authorizer.authorize(attributes_of("/healthz"), target="/healthz")
    await authorizer.review(attributes_of("/version"))

    assert meter.mock_calls == [mock.call.authorized("allowed")]


async def test_a_500_repeats_at_most_1_kib_of_the_target(cluster, api):
    cluster.fail(kubernetes.ACCESS_REVIEWS, status=403)

    with pytest.raises(errors.TextError) as raised:
        await Authorizer(api).authorize(attributes_of("/metrics"), target="/" + "<" * 100_000)

    assert raised.value.message.startswith('Internal Server Error: "/&lt;')
    assert raised.value.message.endswith("log of the adapter")
    assert len(raised.value.message) < 5000
