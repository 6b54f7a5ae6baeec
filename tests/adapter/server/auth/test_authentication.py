from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from unittest import mock

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import errors
from adapter.server.auth.authentication import Authenticator, TrustVerifier
from adapter.server.auth.peer import Peer
from adapter.server.auth.trust import RequestHeaderConfig, Trust
from adapter.server.auth.user import ANONYMOUS, User
from tests.adapter import wired
from tests.adapter.server.auth.credentials import (
    BAD,
    CAROL,
    CAROL_USER,
    GOOD,
    HEADERS,
    FakeTokenReviews,
)
from tools.certificates import DAY, NOW, Holder

PROXY_CA = Holder("front-proxy-ca", ca=True)
INTERMEDIATE = Holder("front-proxy-intermediate", PROXY_CA, ca=True)
CLIENT_CA = Holder("client-ca", ca=True)
OTHER_CA = Holder("front-proxy-ca", ca=True)
SERVER_AUTH = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENT_AUTH = (ExtendedKeyUsageOID.CLIENT_AUTH,)
TRUST = Trust(client_cas=CLIENT_CA.pem, proxy_cas=PROXY_CA.pem, headers=HEADERS)

PROXY = Holder("front-proxy-client", PROXY_CA, usages=CLIENT_AUTH)
JANE = Holder("jane", CLIENT_CA, usages=CLIENT_AUTH, groups=("gpu", "ops"))
PROXY_NAME_OF_CLIENT_CA = Holder("front-proxy-client", CLIENT_CA, usages=CLIENT_AUTH)
PROXY_OF_OTHER_CA = Holder("front-proxy-client", OTHER_CA, usages=CLIENT_AUTH)


def peer_with(*chain):
    return Peer(chain=tuple(holder.der for holder in chain))


class Environment:
    """An authenticator with its trust, clock and metrics."""

    def __init__(self, trust=TRUST):
        self.trust = trust
        self.metrics = mock.Mock()
        self.now = NOW.timestamp()
        self.authenticator = Authenticator(
            lambda: self.trust, FakeTokenReviews(), meter=self.metrics, clock=lambda: self.now
        )

    async def authenticate(self, peer=None, headers=None):
        """Return the user's name, or the status of the error answer."""
        try:
            user = await self.authenticator.authenticate(peer or Peer(), wired.head(headers or {}))
        except errors.ApiError as error:
            return error.code
        return user.name


@pytest.fixture
def env():
    return Environment()


@pytest.mark.parametrize(
    ("chain", "headers", "outcome"),
    [
        ((PROXY,), CAROL, "carol"),
        ((PROXY,), {**CAROL, **BAD}, "carol"),
        ((PROXY,), {}, 401),
        ((PROXY,), {"X-Remote-User": ""}, 401),
        ((PROXY,), GOOD, "tom"),
        ((Holder("front-proxy-client", INTERMEDIATE), INTERMEDIATE), CAROL, "carol"),
        ((Holder("front-proxy-client", INTERMEDIATE),), CAROL, 401),
        ((Holder("other-name", PROXY_CA),), CAROL, 401),
        ((Holder("other-name", PROXY_CA),), {**CAROL, **GOOD}, "tom"),
        ((Holder("front-proxy-client", PROXY_CA, until=-DAY / 2),), CAROL, 401),
        ((Holder("front-proxy-client", PROXY_CA, since=DAY / 2),), CAROL, 401),
        ((Holder("front-proxy-client", PROXY_CA, usages=SERVER_AUTH),), CAROL, 401),
        ((PROXY_OF_OTHER_CA,), CAROL, 401),
        ((PROXY_OF_OTHER_CA,), {**CAROL, **GOOD}, "tom"),
        ((PROXY_NAME_OF_CLIENT_CA,), CAROL, "front-proxy-client"),
        ((JANE,), {}, "jane"),
        ((JANE,), CAROL, "jane"),
        ((JANE,), {**CAROL, **BAD}, "jane"),
        ((Holder("jane", CLIENT_CA, until=-DAY / 2),), {}, 401),
        ((Holder("jane", CLIENT_CA, until=-DAY / 2),), GOOD, "tom"),
        ((), {}, "system:anonymous"),
        ((), CAROL, "system:anonymous"),
        ((), {"Impersonate-User": "carol"}, "system:anonymous"),
        ((), {**CAROL, **GOOD}, "tom"),
        ((), BAD, 401),
        ((), {"Authorization": "Bearer "}, "system:anonymous"),
        ((), {"Authorization": "Bearer  good"}, "system:anonymous"),
        ((), {"Authorization": "Basic Zm9vOmJhcg=="}, "system:anonymous"),
    ],
)  # fmt: skip  # more to a line
async def test_the_first_method_that_succeeds_determines_the_user(env, chain, headers, outcome):
    peer = peer_with(*chain)

    assert [await env.authenticate(peer, headers) for _ in range(2)] == [outcome] * 2
    counted = mock.call.unauthenticated() if outcome == 401 else mock.call.authenticated(outcome)
    assert env.metrics.mock_calls == [counted] * 2


async def test_a_front_proxy_user_has_all_request_header_fields(env):
    head = wired.head({**CAROL, "X-Remote-Extra-Scopes": "read"})

    user = await env.authenticator.authenticate(peer_with(PROXY), head)

    assert user == replace(CAROL_USER, extra={"scopes": ("read",)})


async def test_a_certificate_user_has_groups_and_credential_id(env):
    user = await env.authenticator.authenticate(peer_with(JANE), wired.head())

    assert user.groups == ("gpu", "ops", "system:authenticated")
    assert list(user.extra) == ["authentication.kubernetes.io/credential-id"]


async def test_a_request_without_credentials_is_anonymous(env):
    user = await env.authenticator.authenticate(Peer(), wired.head())

    assert user == ANONYMOUS == User(name="system:anonymous", groups=("system:unauthenticated",))


@pytest.mark.parametrize("field", ["client_cas", "proxy_cas"])
async def test_a_method_without_cas_has_no_opinion(field):
    env = Environment(Trust(headers=HEADERS, **{field: getattr(TRUST, field)}))

    proxied = await env.authenticate(peer_with(PROXY), CAROL)
    certified = await env.authenticate(peer_with(JANE), {})
    unnamed = await env.authenticate(peer_with(PROXY), {})

    if field == "client_cas":
        assert (proxied, certified, unnamed) == (401, "jane", 401)
    else:
        assert (proxied, certified, unnamed) == ("carol", 401, "system:anonymous")


async def test_without_cas_certificates_are_ignored():
    env = Environment(Trust())

    assert await env.authenticate(peer_with(PROXY), CAROL) == "system:anonymous"
    assert await env.authenticate(peer_with(PROXY), BAD) == 401


async def test_without_allowed_names_every_certificate_of_the_request_header_ca_is_a_front_proxy():
    env = Environment(
        Trust(proxy_cas=PROXY_CA.pem, headers=RequestHeaderConfig(username_headers=("X-User",)))
    )

    assert (
        await env.authenticate(peer_with(Holder("any", PROXY_CA)), {"x-user": "carol"}) == "carol"
    )


async def test_a_removed_ca_is_not_trusted_from_the_next_request_on(env):
    proxy, jane = peer_with(PROXY), peer_with(JANE)
    before = [await env.authenticate(proxy, CAROL), await env.authenticate(jane)]

    env.trust = Trust(client_cas=CLIENT_CA.pem, proxy_cas=OTHER_CA.pem, headers=HEADERS)
    replaced = [await env.authenticate(proxy, CAROL), await env.authenticate(jane)]
    other = await env.authenticate(peer_with(PROXY_OF_OTHER_CA), CAROL)
    env.trust = Trust(headers=HEADERS)
    removed = [await env.authenticate(proxy, CAROL), await env.authenticate(jane)]

    assert before == ["carol", "jane"]
    assert replaced == [401, "jane"]
    assert other == "carol"
    assert removed == ["system:anonymous"] * 2


async def test_an_expired_certificate_is_rejected_on_an_open_connection(env):
    jane, proxy = peer_with(JANE), peer_with(PROXY)

    before = [await env.authenticate(jane), await env.authenticate(proxy, CAROL)]
    env.now += DAY.total_seconds() + 2
    after = [await env.authenticate(jane), await env.authenticate(proxy, CAROL)]

    assert before == ["jane", "carol"]
    assert after == [401, 401]


async def test_a_certificate_that_becomes_valid_is_accepted_on_an_open_connection(env):
    peer = peer_with(Holder("jane", CLIENT_CA, since=DAY / 24))

    before = await env.authenticate(peer)
    env.now += 3600 + 10
    after = await env.authenticate(peer)

    assert (before, after) == (401, "jane")


async def test_the_certificates_of_a_connection_are_verified_once_in_ten_seconds(env, monkeypatch):
    verified = []
    verify = TrustVerifier.identify
    monkeypatch.setattr(
        TrustVerifier,
        "identify",
        lambda self, chain, now: verified.append(now) or verify(self, chain, now),
    )
    proxy, jane = peer_with(PROXY), peer_with(JANE)

    for seconds in (0, 0, 9.9, 0.1):
        env.now += seconds
        await env.authenticate(proxy, CAROL)
        await env.authenticate(jane)

    assert len(verified) == 4


@pytest.mark.parametrize("chain", [(b"",), (b"\x30\x00",), (JANE.der[:-5],), (JANE.der, b"junk")])
async def test_a_malformed_chain_is_rejected(env, chain):
    peer = Peer(chain=chain)

    assert await env.authenticate(peer) == 401


async def test_the_log_has_the_reasons_of_a_401_but_not_the_token(env, caplog):
    caplog.set_level(logging.DEBUG)

    await env.authenticate(
        peer_with(Holder("other-name", PROXY_CA)), {"Authorization": "Bearer s3cret"}
    )

    assert "as front proxy: subject with cn=other-name is not in the allowed list" in caplog.text
    assert "as client: client certificate is not trusted" in caplog.text
    assert "bearer token rejected by TokenReview" in caplog.text
    assert "s3cret" not in caplog.text


async def test_the_answer_does_not_contain_the_reasons(env):
    with pytest.raises(errors.ApiError) as caught:
        await env.authenticator.authenticate(peer_with(PROXY_OF_OTHER_CA), wired.head(BAD))

    error = caught.value
    assert (error.code, error.message, error.reason) == (401, "Unauthorized", "Unauthorized")
    assert (error.details, error.headers, error.__cause__) == (None, {}, None)


async def test_concurrent_requests_of_one_front_proxy_have_their_own_users(env):
    proxy = peer_with(PROXY)

    async def authenticate(number):
        return await env.authenticate(proxy, {"X-Remote-User": f"user-{number}"})

    assert await asyncio.gather(*map(authenticate, range(50))) == [f"user-{n}" for n in range(50)]
