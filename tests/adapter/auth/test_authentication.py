from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from multidict import CIMultiDict

from adapter import errors
from adapter.auth import authentication
from adapter.auth.trust import Headers, Trust
from adapter.auth.user import ANONYMOUS, User
from tests.certificates import DAY, NOW, Holder

PROXY_CA = Holder("front-proxy-ca", ca=True)
PROXY_BETWEEN = Holder("front-proxy-between", PROXY_CA, ca=True)
CLIENT_CA = Holder("client-ca", ca=True)
STRANGERS_CA = Holder("front-proxy-ca", ca=True)
SERVERS = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)
HEADERS = Headers(
    allowed_names=("front-proxy-client",),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
TRUST = Trust(generation=1, client_cas=CLIENT_CA.pem, proxy_cas=PROXY_CA.pem, headers=HEADERS)

PROXY = Holder("front-proxy-client", PROXY_CA, usages=CLIENTS)
JANE = Holder("jane", CLIENT_CA, usages=CLIENTS, groups=("gpu", "ops"))
PRETENDER = Holder("front-proxy-client", CLIENT_CA, usages=CLIENTS)
STRANGER = Holder("front-proxy-client", STRANGERS_CA, usages=CLIENTS)

CAROL = {"X-Remote-User": "carol", "X-Remote-Group": "staff", "X-Remote-Extra-Scopes": "read"}
GOOD = {"Authorization": "Bearer good"}
BAD = {"Authorization": "Bearer bad"}


class Connection:
    """Stands for what the TLS of one connection is."""


class Peer:
    def __init__(self, *chain):
        self.chain = tuple(each.der for each in chain)
        self.connection = Connection()


class Reviews:
    def __init__(self):
        self.asked = []

    async def user(self, token):
        self.asked.append(token)
        if token == "good":
            return User(name="tom", groups=("system:authenticated",))
        raise errors.Unauthenticated("the token is nobody's")


class Meter:
    def __init__(self):
        self.users = []

    def authenticated(self, name):
        self.users.append(name)

    def unauthenticated(self):
        self.users.append(401)


class World:
    """An authenticator, and everything that it depends on."""

    def __init__(self, trust=TRUST):
        self.trust = trust
        self.meter = Meter()
        self.now = NOW.timestamp()
        self.reviews = Reviews()
        self.authenticator = authentication.Authenticator(
            lambda: self.trust, self.reviews, meter=self.meter, clock=lambda: self.now
        )

    async def ask(self, peer=None, headers=None):
        """The user's name, or the status that is answered."""
        try:
            user = await self.authenticator.authenticate(peer, CIMultiDict(headers or {}))
        except errors.ApiError as error:
            return error.code
        return user.name


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize(
    ("chain", "headers", "who"),
    [
        ((PROXY,), CAROL, "carol"),
        ((PROXY,), {**CAROL, **BAD}, "carol"),
        ((PROXY,), {}, 401),
        ((PROXY,), {"X-Remote-User": ""}, 401),
        ((PROXY,), GOOD, "tom"),
        ((Holder("front-proxy-client", PROXY_BETWEEN), PROXY_BETWEEN), CAROL, "carol"),
        ((Holder("front-proxy-client", PROXY_BETWEEN),), CAROL, 401),
        ((Holder("other-name", PROXY_CA),), CAROL, 401),
        ((Holder("other-name", PROXY_CA),), {**CAROL, **GOOD}, "tom"),
        ((Holder("front-proxy-client", PROXY_CA, until=-DAY / 2),), CAROL, 401),
        ((Holder("front-proxy-client", PROXY_CA, since=DAY / 2),), CAROL, 401),
        ((Holder("front-proxy-client", PROXY_CA, usages=SERVERS),), CAROL, 401),
        ((STRANGER,), CAROL, 401),
        ((STRANGER,), {**CAROL, **GOOD}, "tom"),
        ((PRETENDER,), CAROL, "front-proxy-client"),
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
async def test_who_asks(world, chain, headers, who):
    peer = Peer(*chain) if chain else None

    assert [await world.ask(peer, headers) for _ in range(2)] == [who, who]
    assert world.meter.users == [who, who]


async def test_everything_about_a_proxied_user_is_carried(world):
    headers = CIMultiDict({**CAROL, "X-Remote-Uid": "u-1"})

    user = await world.authenticator.authenticate(Peer(PROXY), headers)

    assert user == User(
        name="carol",
        groups=("staff", "system:authenticated"),
        uid="u-1",
        extra={"scopes": ("read",)},
    )


async def test_everything_about_a_certificate_is_carried(world):
    user = await world.authenticator.authenticate(Peer(JANE), CIMultiDict())

    assert user.groups == ("gpu", "ops", "system:authenticated")
    assert list(user.extra) == ["authentication.kubernetes.io/credential-id"]


async def test_nobody_in_particular_is_anonymous(world):
    user = await world.authenticator.authenticate(None, CIMultiDict())

    assert user == ANONYMOUS == User(name="system:anonymous", groups=("system:unauthenticated",))


@pytest.mark.parametrize("known", ["client_cas", "proxy_cas"])
async def test_a_way_without_cas_has_no_opinion(known):
    world = World(Trust(generation=1, headers=HEADERS, **{known: getattr(TRUST, known)}))

    proxied = await world.ask(Peer(PROXY), CAROL)
    certified = await world.ask(Peer(JANE), {})
    nameless = await world.ask(Peer(PROXY), {})

    if known == "client_cas":
        assert (proxied, certified, nameless) == (401, "jane", 401)
    else:
        assert (proxied, certified, nameless) == ("carol", 401, "system:anonymous")


async def test_without_any_ca_certificates_mean_nothing():
    world = World(Trust())

    assert await world.ask(Peer(PROXY), CAROL) == "system:anonymous"
    assert await world.ask(Peer(PROXY), BAD) == 401


async def test_without_allowed_names_every_proxy_of_the_ca_is_believed():
    world = World(Trust(proxy_cas=PROXY_CA.pem, headers=Headers(username_headers=("X-User",))))

    assert await world.ask(Peer(Holder("any", PROXY_CA)), {"x-user": "carol"}) == "carol"


async def test_a_websocket_may_carry_a_token(world):
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.Z29vZA, v4",
    }

    assert await world.ask(None, headers) == "tom"
    assert await world.ask(None, {**headers, **BAD}) == "tom"
    assert world.reviews.asked == ["good", "bad", "good"]


async def test_a_ca_that_is_dropped_is_not_believed_at_the_next_request(world):
    proxy, jane = Peer(PROXY), Peer(JANE)
    before = [await world.ask(proxy, CAROL), await world.ask(jane)]

    world.trust = Trust(
        generation=2, client_cas=CLIENT_CA.pem, proxy_cas=STRANGERS_CA.pem, headers=HEADERS
    )
    dropped = [await world.ask(proxy, CAROL), await world.ask(jane)]
    stranger = await world.ask(Peer(STRANGER), CAROL)
    world.trust = Trust(generation=3, headers=HEADERS)
    nothing = [await world.ask(proxy, CAROL), await world.ask(jane)]

    assert before == ["carol", "jane"]
    assert dropped == [401, "jane"]
    assert stranger == "carol"
    assert nothing == ["system:anonymous"] * 2


async def test_a_certificate_that_expires_is_not_believed_from_then_on(world):
    jane, proxy = Peer(JANE), Peer(PROXY)

    before = [await world.ask(jane), await world.ask(proxy, CAROL)]
    world.now += DAY.total_seconds() + 2
    after = [await world.ask(jane), await world.ask(proxy, CAROL)]

    assert before == ["jane", "carol"]
    assert after == [401, 401]


async def test_a_certificate_that_becomes_valid_is_believed_soon(world):
    peer = Peer(Holder("jane", CLIENT_CA, since=DAY / 24))

    before = await world.ask(peer)
    world.now += 3600 + 10
    after = await world.ask(peer)

    assert (before, after) == (401, "jane")


async def test_a_connection_is_judged_once(world):
    believed = world.authenticator._believed
    judged = []
    real = believed.judge
    believed.judge = lambda chain, now: judged.append(now) or real(chain, now)
    proxy, jane = Peer(PROXY), Peer(JANE)

    for _ in range(3):
        await world.ask(proxy, CAROL)
        await world.ask(jane)
    world.now += 9
    await world.ask(proxy, CAROL)

    assert len(judged) == 2


async def test_connections_that_are_gone_are_forgotten(world):
    peer = Peer(JANE)
    await world.ask(peer)
    judgements = world.authenticator._believed.judgements
    assert len(judgements) == 1

    del peer
    gc.collect()

    assert len(judgements) == 0


@pytest.mark.parametrize("chain", [(b"",), (b"\x30\x00",), (JANE.der[:-5],), (JANE.der, b"junk")])
async def test_what_is_no_certificate_is_nobody(world, chain):
    peer = Peer()
    peer.chain = chain

    assert await world.ask(peer) == 401


async def test_why_is_told_to_the_log_alone_and_without_the_token(world, caplog):
    caplog.set_level(logging.DEBUG)

    await world.ask(Peer(Holder("other-name", PROXY_CA)), {"Authorization": "Bearer s3cret"})

    assert "as a front proxy: subject with cn=other-name is not in the allowed list" in caplog.text
    assert "as a user: the client's certificate is not trusted" in caplog.text
    assert "the token is nobody's" in caplog.text
    assert "s3cret" not in caplog.text


async def test_an_answer_never_says_why(world):
    with pytest.raises(errors.ApiError) as caught:
        await world.authenticator.authenticate(Peer(STRANGER), CIMultiDict(BAD))

    told = caught.value
    assert (told.code, told.message, told.reason) == (401, "Unauthorized", "Unauthorized")
    assert (told.details, told.headers, told.__cause__) == (None, {}, None)


async def test_many_at_once_each_get_their_own(world):
    proxy = Peer(PROXY)

    async def ask(number):
        return await world.ask(proxy, {"X-Remote-User": f"user-{number}"})

    assert await asyncio.gather(*map(ask, range(50))) == [f"user-{n}" for n in range(50)]
