from __future__ import annotations

import asyncio
import logging

import pytest
from multidict import CIMultiDict

from adapter import bounds, errors
from adapter.server.auth import tokens
from adapter.server.auth.user import User
from tools.waiting import Clock, until

SECRET = "s3cret.t0ken"
JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "u", "groups": ["a"], "extra": {"k": ["1", "2"]}},
}
USER = User(name="jane", uid="u", groups=("a", "system:authenticated"), extra={"k": ("1", "2")})


# Authorization header


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, ""),
        ("", ""),
        ("Bearer", ""),
        ("Bearer ", ""),
        ("Bearer t", "t"),
        ("bEARER t", "t"),
        ("  Bearer t  ", "t"),
        ("Bearer t and more", "t"),
        ("Bearer  t", ""),
        ("Bearer   t", ""),
        ("Basic Zm9vOmJhcg==", ""),
        ("Basic  t", ""),
        ("Bearer\tt", ""),
        ("Bearert", ""),
    ],
)
def test_a_bearer_token_is_parsed_as_kubernetes_does(header, token):
    headers = CIMultiDict({} if header is None else {"Authorization": header})

    assert tokens.bearer(headers) == token


def test_only_the_first_authorization_header_counts():
    headers = CIMultiDict([("Authorization", "Basic x"), ("Authorization", "Bearer t")])

    assert tokens.bearer(headers) == ""


# TokenReviews


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def token_reviews(api, clock):
    return lambda ttl=10.0: tokens.TokenReviews(api, ttl=ttl, clock=clock)


async def rejection(reviews, token=SECRET):
    with pytest.raises(errors.Unauthenticated) as caught:
        await reviews.user(token)
    assert token not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


async def test_a_token_review_has_no_audiences(cluster, token_reviews):
    cluster.tokens[SECRET] = JANE

    assert await token_reviews().user(SECRET) == USER
    (request,) = cluster.requests
    assert request.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert request.document == {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {"token": SECRET},
        "status": {"user": {}},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "user"),
    [
        ({"authenticated": True}, User(name="", groups=("system:authenticated",))),
        ({**JANE, "error": "something"}, USER),
        ({**JANE, "audiences": ["other"]}, USER),
        (
            {"authenticated": True, "user": {"username": "j", "groups": None, "extra": None}},
            User(name="j", groups=("system:authenticated",)),
        ),
    ],
)
async def test_unusual_statuses_are_accepted_as_in_kubernetes(cluster, token_reviews, status, user):
    cluster.tokens[SECRET] = status

    assert await token_reviews().user(SECRET) == user


async def test_results_are_cached_for_the_ttl(cluster, token_reviews, clock):
    cluster.tokens[SECRET] = JANE
    reviews = token_reviews(ttl=10.0)

    await reviews.user(SECRET)
    del cluster.tokens[SECRET]
    clock.now = 9.9
    assert await reviews.user(SECRET) == USER
    clock.now = 10.0
    assert await rejection(reviews) == "bearer token rejected by TokenReview"
    cluster.tokens[SECRET] = JANE
    clock.now = 19.9
    await rejection(reviews)
    clock.now = 20.0
    assert await reviews.user(SECRET) == USER

    assert len(cluster.requests) == 3


async def test_each_token_has_its_own_review(cluster, token_reviews):
    cluster.tokens[SECRET] = JANE
    reviews = token_reviews()

    await reviews.user(SECRET)
    await rejection(reviews, SECRET + "x")

    assert len(cluster.requests) == 2


async def test_a_ttl_of_zero_disables_the_cache(cluster, token_reviews):
    cluster.tokens[SECRET] = JANE
    reviews = token_reviews(ttl=0.0)

    await reviews.user(SECRET)
    await reviews.user(SECRET)

    assert len(cluster.requests) == 2


async def test_the_cache_evicts_the_least_recently_used_token(cluster, token_reviews, monkeypatch):
    monkeypatch.setattr(bounds, "TOKENS", 2)
    reviews = token_reviews()

    for token in ("one", "two", "three", "three", "two", "one"):
        await rejection(reviews, token)

    assert [request.document["spec"]["token"] for request in cluster.requests] == [
        "one",
        "two",
        "three",
        "one",
    ]


@pytest.mark.parametrize("status", [None, {}, {"authenticated": "true", "user": {"username": "a"}}])
async def test_anything_but_authenticated_true_is_a_rejection(cluster, token_reviews, status):
    cluster.tokens[SECRET] = status

    assert await rejection(token_reviews()) == "bearer token rejected by TokenReview"


async def test_an_error_of_a_review_is_redacted_and_not_cached(cluster, token_reviews, caplog):
    caplog.set_level(logging.DEBUG)
    cluster.tokens[SECRET] = {"error": f"[invalid bearer token, {SECRET} has expired]"}
    reviews = token_reviews()

    for _ in range(2):
        assert await rejection(reviews) == "[invalid bearer token, <redacted> has expired]"

    assert len(cluster.requests) == 2
    assert SECRET not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        ({"status": 403, "message": f"not {SECRET}"}, "403: not <redacted>"),
        ({"status": 503}, "503"),
        ({"body": b"[]"}, "malformed TokenReview"),
        ({"body": b'{"status": {"authenticated": true, "user": "x"}}'}, "malformed TokenReview"),
        ({"body": b'{"status": {"authenticated": true, "user": {"groups": "a"}}}'}, "not a list"),
        ({"body": b'{"status": {"authenticated": true, "user": {"groups": [1]}}}'}, "not a string"),
        ({"body": b'{"status": {"authenticated": true, "user": {"username": 1}}}'}, "not a string"),
    ],
)
async def test_a_failed_review_rejects_the_token_and_is_not_cached(
    cluster, token_reviews, caplog, failure, problem
):
    cluster.tokens[SECRET] = JANE
    cluster.fail("/apis/authentication", **failure)
    reviews = token_reviews()

    message = await rejection(reviews)

    assert message.startswith("TokenReview failed: ")
    assert message in caplog.text
    assert SECRET not in caplog.text
    assert await reviews.user(SECRET) == USER


@pytest.mark.slow
async def test_the_timeout_covers_all_attempts(cluster, token_reviews, monkeypatch):
    assert tokens.TIMEOUT == 10.0
    monkeypatch.setattr(tokens, "TIMEOUT", 0.7)
    cluster.fail("/apis/authentication", status=500, times=5)

    message = await rejection(token_reviews())

    assert message == "TokenReview failed: no answer within 0.7 s"
    assert len(cluster.requests) <= 2  # the second one follows after 0.5 s, the third after 1.25 s


async def test_an_unreachable_api_server_rejects_the_token(api_server, api):
    await api_server.close()

    assert "Cannot connect" in await rejection(tokens.TokenReviews(api))


@pytest.mark.slow
async def test_concurrent_requests_share_one_review(cluster, token_reviews):
    cluster.tokens[SECRET] = JANE
    cluster.fail("/apis/authentication", delay=0.2)
    reviews = token_reviews(ttl=0.0)

    async with asyncio.timeout(60):
        cancelled = asyncio.create_task(reviews.user(SECRET))
        others = [asyncio.create_task(reviews.user(SECRET)) for _ in range(3)]
        await until(lambda: cluster.requests)
        cancelled.cancel()
        users = await asyncio.gather(*others)

    assert users == [USER] * 3
    assert len(cluster.requests) == 1


def test_a_header_of_spaces_holds_no_token():
    assert tokens.bearer({"Authorization": "Bearer" + " " * 1_000_000 + "x"}) == ""
