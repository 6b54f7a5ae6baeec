from __future__ import annotations

import asyncio
import base64
import logging

import pytest
from multidict import CIMultiDict

from adapter import errors
from adapter.auth import tokens
from adapter.auth.user import User

SECRET = "s3cret.t0ken"
JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "u", "groups": ["a"], "extra": {"k": ["1", "2"]}},
}
USER = User(name="jane", uid="u", groups=("a", "system:authenticated"), extra={"k": ("1", "2")})


# Where tokens are


@pytest.mark.parametrize(
    ("header", "token", "misplaced"),
    [
        (None, "", False),
        ("", "", False),
        ("Bearer", "", False),
        ("Bearer ", "", False),
        ("Bearer t", "t", False),
        ("bEARER t", "t", False),
        ("  Bearer t  ", "t", False),
        ("Bearer t and more", "t", False),
        ("Bearer  t", "", True),
        ("Bearer   t", "", True),
        ("Basic Zm9vOmJhcg==", "", False),
        ("Basic  t", "", False),
        ("Bearer\tt", "", False),
        ("Bearert", "", False),
    ],
)
def test_a_bearer_token_is_found(header, token, misplaced):
    headers = CIMultiDict({} if header is None else {"Authorization": header})

    assert tokens.bearer(headers) == token
    assert tokens.is_misplaced(headers) is misplaced


def test_only_the_first_authorization_counts():
    headers = CIMultiDict([("Authorization", "Basic x"), ("Authorization", "Bearer t")])

    assert tokens.bearer(headers) == ""


def protocol(token):
    text = base64.urlsafe_b64encode(token).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{text}"


UPGRADE = [("Connection", "keep-alive"), ("connection", "x, UPGRADE"), ("Upgrade", "WebSocket")]


@pytest.mark.parametrize(
    ("protocols", "token"),
    [
        ([], ""),
        (["v4.channel.k8s.io"], ""),
        ([f"v4.channel.k8s.io, {protocol(b't?>oken')}"], "t?>oken"),
        ([protocol("tökän".encode()), "other"], "tökän"),
        ([protocol(b"")], ""),
    ],
)
def test_a_websocket_token_is_found(protocols, token):
    offered = [("Sec-WebSocket-Protocol", each) for each in protocols]

    assert tokens.websocket(CIMultiDict([*UPGRADE, *offered])) == token


@pytest.mark.parametrize("missing", ["Connection", "Upgrade"])
def test_a_websocket_token_counts_for_a_websocket_alone(missing):
    headers = CIMultiDict([*UPGRADE, ("Sec-WebSocket-Protocol", protocol(b"t"))])
    headers.popall(missing)

    assert tokens.websocket(headers) == ""


@pytest.mark.parametrize(
    ("protocols", "problem"),
    [
        ([protocol(b"s3cret")], "no websocket protocol beside"),
        ([protocol(b"s3cret"), "x", protocol(b"s3cret")], "several tokens"),
        ([protocol(b"\xffs3cret"), "x"], "not base64url of text"),
        ([protocol(b"s3cret") + "=", "x"], "not base64url of text"),
        ([protocol(b"s3cret") + "!", "x"], "not base64url of text"),
    ],
)
def test_a_websocket_token_has_to_be_there_in_the_right_way(protocols, problem):
    offered = [("Sec-WebSocket-Protocol", each) for each in protocols]

    with pytest.raises(errors.Unauthenticated, match=problem) as caught:
        tokens.websocket(CIMultiDict([*UPGRADE, *offered]))

    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


# Whose tokens are


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reviewing(api, clock):
    return lambda ttl=10.0: tokens.TokenReviews(api, ttl=ttl, clock=clock)


async def rejected(reviews, token=SECRET):
    with pytest.raises(errors.Unauthenticated) as caught:
        await reviews.user(token)
    assert token not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


async def test_a_token_is_reviewed_without_audiences(cluster, reviewing):
    cluster.tokens[SECRET] = JANE

    assert await reviewing().user(SECRET) == USER
    (request,) = cluster.requests
    assert request.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert request.document == {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {"token": SECRET},
        "status": {"user": {}},
    }


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
async def test_a_review_may_say_odd_things(cluster, reviewing, status, user):
    cluster.tokens[SECRET] = status

    assert await reviewing().user(SECRET) == user


async def test_what_is_known_of_a_token_holds_for_a_while(cluster, reviewing, clock):
    cluster.tokens[SECRET] = JANE
    reviews = reviewing(ttl=10.0)

    await reviews.user(SECRET)
    del cluster.tokens[SECRET]
    clock.now = 9.9
    assert await reviews.user(SECRET) == USER
    clock.now = 10.0
    assert await rejected(reviews) == "the token is nobody's"
    cluster.tokens[SECRET] = JANE
    clock.now = 19.9
    await rejected(reviews)
    clock.now = 20.0
    assert await reviews.user(SECRET) == USER

    assert len(cluster.requests) == 3


async def test_each_token_is_reviewed_by_itself(cluster, reviewing):
    cluster.tokens[SECRET] = JANE
    reviews = reviewing()

    await reviews.user(SECRET)
    await rejected(reviews, SECRET + "x")

    assert len(cluster.requests) == 2


async def test_a_ttl_of_zero_keeps_nothing(cluster, reviewing):
    cluster.tokens[SECRET] = JANE
    reviews = reviewing(ttl=0.0)

    await reviews.user(SECRET)
    await reviews.user(SECRET)

    assert len(cluster.requests) == 2


async def test_only_so_much_is_remembered(cluster, reviewing, monkeypatch):
    monkeypatch.setattr(tokens, "REMEMBERED", 2)
    reviews = reviewing()

    for token in ("one", "two", "three", "three", "two", "one"):
        await rejected(reviews, token)

    assert [request.document["spec"]["token"] for request in cluster.requests] == [
        "one",
        "two",
        "three",
        "one",
    ]


@pytest.mark.parametrize("status", [None, {}, {"authenticated": "true", "user": {"username": "a"}}])
async def test_whoever_is_not_said_to_be_authenticated_is_not(cluster, reviewing, status):
    cluster.tokens[SECRET] = status

    assert await rejected(reviewing()) == "the token is nobody's"


async def test_an_error_of_a_review_is_told_without_the_token_and_not_kept(
    cluster, reviewing, caplog
):
    caplog.set_level(logging.DEBUG)
    cluster.tokens[SECRET] = {"error": f"[invalid bearer token, {SECRET} has expired]"}
    reviews = reviewing()

    for _ in range(2):
        assert await rejected(reviews) == "[invalid bearer token, (the token) has expired]"

    assert len(cluster.requests) == 2
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        ({"status": 403, "message": f"not {SECRET}"}, r"403: not \(the token\)"),
        ({"status": 503}, "503"),
        ({"body": b"[]"}, "the answer is no review"),
        ({"body": b'{"status": {"authenticated": true, "user": "x"}}'}, "no review"),
        ({"body": b'{"status": {"authenticated": true, "user": {"groups": "a"}}}'}, "no list"),
        ({"body": b'{"status": {"authenticated": true, "user": {"groups": [1]}}}'}, "no text"),
        ({"body": b'{"status": {"authenticated": true, "user": {"username": 1}}}'}, "no text"),
    ],
)
async def test_a_review_that_fails_lets_nobody_in(cluster, reviewing, caplog, failure, problem):
    cluster.tokens[SECRET] = JANE
    cluster.fail("/apis/authentication", **failure)
    reviews = reviewing()

    message = await rejected(reviews)

    assert message.startswith("a token cannot be reviewed: ")
    assert message in caplog.text
    assert SECRET not in caplog.text
    assert await reviews.user(SECRET) == USER


async def test_what_may_pass_is_asked_again(cluster, reviewing):
    cluster.tokens[SECRET] = JANE
    cluster.fail("/apis/authentication", status=500)

    assert await reviewing().user(SECRET) == USER
    assert len(cluster.requests) == 2


async def test_a_review_has_ten_seconds_for_everything(cluster, reviewing, monkeypatch):
    assert tokens.TIMEOUT == 10.0
    monkeypatch.setattr(tokens, "TIMEOUT", 0.7)
    cluster.fail("/apis/authentication", status=500, times=5)
    began = asyncio.get_running_loop().time()

    message = await rejected(reviewing())

    assert message == "a token cannot be reviewed: no answer within 0.7 s"
    assert asyncio.get_running_loop().time() - began < 1.5


async def test_an_api_server_that_is_down_lets_nobody_in(api_server, api):
    await api_server.close()

    assert "Cannot connect" in await rejected(tokens.TokenReviews(api))


async def test_who_asks_at_the_same_time_shares_one_review(cluster, reviewing):
    cluster.tokens[SECRET] = JANE
    cluster.fail("/apis/authentication", delay=0.2)
    reviews = reviewing(ttl=0.0)

    async with asyncio.timeout(5):
        impatient = asyncio.create_task(reviews.user(SECRET))
        others = [asyncio.create_task(reviews.user(SECRET)) for _ in range(3)]
        await asyncio.sleep(0.05)
        impatient.cancel()
        users = await asyncio.gather(*others)

    assert users == [USER] * 3
    assert len(cluster.requests) == 1


async def test_a_token_that_is_no_utf8_is_reviewed(cluster, reviewing):
    cluster.tokens["t\ufffd"] = JANE

    assert await reviewing().user("t\udcff") == USER


async def test_a_token_of_bytes_that_are_no_text_is_reviewed_as_go_would_write_it():
    class Api:
        async def post(self, path, document, *, timeout=None):
            self.token = document["spec"]["token"]
            return {"status": {"authenticated": False}}

    api = Api()

    with pytest.raises(errors.Unauthenticated):
        await tokens.TokenReviews(api).user("a\udcffb")

    assert api.token == "a\ufffdb"
