"""Token of a ServiceAccount: when it is renewed, and what it does while that fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from adapter import errors
from adapter.clients.account_token import AccountToken
from adapter.clients.rights import Account
from tests import virtual_time

SECRET = "s3cret-t0ken"


class Server:
    """API server that issues `token-1` and so on, each for `lifetime` seconds; or fails."""

    def __init__(self, lifetime: float = 3600) -> None:
        self.lifetime = lifetime
        self.failure: errors.BackendError | None = None
        self.answer: Any = None
        self.delay = 0.0
        self.times: list[float] = []
        self.requests: list[tuple[str, Any]] = []

    async def post(self, path: str, document: Any) -> Any:
        self.times.append(asyncio.get_running_loop().time())
        self.requests.append((path, document))
        await asyncio.sleep(self.delay)
        if self.failure:
            raise self.failure
        return self.answer or {
            "spec": {"expirationSeconds": self.lifetime},
            "status": {"token": f"token-{len(self.times)}", "expirationTimestamp": "not used"},
        }


def run(server: Server, work: Callable[[AccountToken], Any]) -> Any:
    """Run `work` beside the renewal, in virtual time."""

    async def main() -> Any:
        token = AccountToken(server, Account(namespace="ns", name="reader"))
        task = asyncio.create_task(token.run())
        try:
            return await work(token)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return virtual_time.run(main())


async def sent(token: AccountToken, *, renew: bool = False) -> str:
    return (await token.headers(None, renew=renew))["Authorization"]


def test_it_requests_a_token_of_one_account_for_at_most_an_hour():
    server = Server()

    assert run(server, sent) == "Bearer token-1"
    ((path, document),) = server.requests
    assert path == "/api/v1/namespaces/ns/serviceaccounts/reader/token"
    assert document["spec"] == {"expirationSeconds": 3600}


@pytest.mark.parametrize("lifetime", [600, 3600])
def test_it_is_renewed_after_four_fifths_of_its_lifetime(lifetime):
    server = Server(lifetime)

    async def work(token):
        seen = [await sent(token)]
        await asyncio.sleep(1)
        for _ in range(3):
            await asyncio.sleep(lifetime * 0.8)
            seen.append(await sent(token))
        return seen

    assert run(server, work) == [f"Bearer token-{each}" for each in (1, 2, 3, 4)]
    assert server.times == pytest.approx([each * lifetime * 0.8 for each in range(4)])


def test_a_longer_lifetime_than_requested_is_not_used():
    server = Server(lifetime=86_400)

    run(server, lambda _: asyncio.sleep(3000))

    assert server.times == [0, 2880]


def test_while_renewal_fails_it_is_retried_with_backoff_and_the_token_used_until_its_end(caplog):
    server = Server(lifetime=600)

    async def work(token):
        await sent(token)
        server.failure = errors.Refused("403: forbidden", status=403)
        await asyncio.sleep(599)
        last = await sent(token)
        await asyncio.sleep(2)
        with pytest.raises(errors.NoCredentials, match="no token of the ServiceAccount ns/reader"):
            await sent(token)
        await asyncio.sleep(600)
        server.failure = None
        await asyncio.sleep(60)
        return last, await sent(token), token.problem

    last, after, problem = run(server, work)

    assert (last, problem) == ("Bearer token-1", "")
    assert after == f"Bearer token-{len(server.times)}"
    pauses = [later - earlier for earlier, later in itertools.pairwise(server.times[1:])]
    assert 0.5 <= pauses[0] <= 1
    assert max(pauses[:-1]) <= 60
    assert pauses[6] >= 30
    assert len(server.times) < 35
    # Once, not at each attempt.
    assert caplog.text.count("403: forbidden") == 1


def test_after_a_refusal_a_new_token_comes_but_not_at_each_refusal():
    server = Server()

    async def work(token):
        await sent(token)
        await asyncio.sleep(100)
        for _ in range(50):
            await sent(token, renew=True)
            await asyncio.sleep(0.1)
        return await sent(token)

    assert run(server, work) == "Bearer token-2"
    assert server.times == [0, 100]


def test_requests_wait_for_the_first_token():
    server = Server()
    server.delay = 3

    async def work(token):
        return await sent(token), asyncio.get_running_loop().time()

    assert run(server, work) == ("Bearer token-1", 3)


@pytest.mark.parametrize(
    "answer",
    [
        [SECRET],
        {"status": {"token": SECRET}},
        {"status": {"token": SECRET}, "spec": {"expirationSeconds": SECRET}},
        {"status": {"token": SECRET}, "spec": {"expirationSeconds": 0}},
        {"status": {"token": SECRET}, "spec": {"expirationSeconds": None}},
        {"status": {"token": ""}, "spec": {"expirationSeconds": 600}},
        {"status": {"token": [SECRET]}, "spec": {"expirationSeconds": 600}},
    ],
)
def test_what_is_no_token_request_is_refused_and_not_quoted(answer, caplog):
    server = Server()
    server.answer = answer

    async def work(token):
        with pytest.raises(errors.NoCredentials, match="is not a TokenRequest") as caught:
            await sent(token)
        return str(caught.value)

    assert SECRET not in run(server, work) + caplog.text
