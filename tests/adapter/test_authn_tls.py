"""Who is let in, shown with real handshakes: a server, clients with certificates, and no fakes
but the API server that reviews tokens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import ssl

import aiohttp
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import answers, authn, kube, serving, tls, tokens
from adapter.trust import Headers, Trust
from tests.certificates import DAY, Holder
from tests.fakes import kubernetes

NOW = dt.datetime.now(dt.UTC)
SERVING = tls.issued("127.0.0.1", now=NOW)
CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)


def holder(name, *args, **options):
    return Holder(name, *args, now=NOW, **options)


PROXY_CA = holder("front-proxy-ca", ca=True)
BETWEEN = holder("front-proxy-between", PROXY_CA, ca=True)
CLIENT_CA = holder("client-ca", ca=True)
STRANGERS_CA = holder("front-proxy-ca", ca=True)
HEADERS = Headers(
    allowed_names=("front-proxy-client",),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)

PROXY = holder("front-proxy-client", PROXY_CA, usages=CLIENTS)
JANE = holder("jane", CLIENT_CA, usages=CLIENTS, groups=("gpu",))
CAROL = {"X-Remote-User": "carol", "X-Remote-Group": "staff"}


class Server:
    """Answers with the user whom it takes its client for."""

    def __init__(self, live, reviews):
        self.live = live
        self.trusting(CLIENT_CA, PROXY_CA)
        self.authenticator = authn.Authenticator(lambda: self.trust, reviews)

    def trusting(self, client_ca, proxy_ca):
        self.trust = Trust(client_cas=client_ca.pem, proxy_cas=proxy_ca.pem, headers=HEADERS)
        self.live.ask_for((self.trust.client_cas, self.trust.proxy_cas))

    async def respond(self, request, ask):
        peer = tls.peer(request.transport)
        user = await self.authenticator.authenticate(peer, request.headers)
        document = {"name": user.name, "groups": user.groups}
        return answers.Answer(body=json.dumps(document).encode())


@pytest.fixture
async def cluster():
    cluster = kubernetes.Cluster()
    groups = ["system:serviceaccounts"]
    user = {"username": "system:serviceaccount:a:b", "groups": groups}
    cluster.tokens["good"] = {"authenticated": True, "user": user}
    cluster.tokens["expired"] = {"error": "[invalid bearer token, token has expired]"}
    return cluster


@pytest.fixture
async def api_server(cluster, aiohttp_server):
    return await aiohttp_server(cluster.app())


@pytest.fixture
async def server(api_server, tmp_path):
    api = await kube.Kube.connect(kubernetes.kubeconfig(tmp_path, api_server), qps=99, burst=99)
    server = Server(tls.Live(SERVING), tokens.TokenReviews(api))
    runner = serving.runner(serving.application(answers.outermost(server.respond)))
    await runner.setup()
    site = serving.Site(runner, "127.0.0.1", 0, ssl_context=server.live.context)
    await site.start()
    server.port = site.port
    yield server
    await runner.cleanup()
    await api.close()


@pytest.fixture
def client(server, tmp_path):
    """A session of one connection, whose certificates are `shown`."""

    @contextlib.asynccontextmanager
    async def _client(*shown, port=None, latest=ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cadata=SERVING.ca_pem.decode())
        context.maximum_version = latest
        if shown:
            shown[0].client(context, tmp_path, *shown[1:])
        url = f"https://127.0.0.1:{port or server.port}"
        connector = aiohttp.TCPConnector(ssl=context, limit=1)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            yield session

    return _client


async def ask(session, headers=None):
    """The user's name and groups, the status, or that there is no connection."""
    try:
        async with session.get("/apis", headers=headers or {}) as response:
            document = await response.json()
    except aiohttp.ClientError:
        return "refused"
    if response.status != 200:
        assert document["message"] == document["reason"] == "Unauthorized"
        return response.status
    return (document["name"], *document["groups"])


CAROL_IS = ("carol", "staff", "system:authenticated")
JANE_IS = ("jane", "gpu", "system:authenticated")
TOKEN_IS = ("system:serviceaccount:a:b", "system:serviceaccounts", "system:authenticated")
ANONYMOUS = ("system:anonymous", "system:unauthenticated")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("latest", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize(
    ("shown", "headers", "outcome"),
    [
        pytest.param((PROXY,), CAROL, CAROL_IS, id="proxy"),
        pytest.param((PROXY,), {}, 401, id="proxy for nobody"),
        pytest.param(
            (holder("front-proxy-client", STRANGERS_CA, usages=CLIENTS),),
            CAROL,
            "refused",
            id="proxy of a wrong CA",
        ),
        pytest.param((holder("other", PROXY_CA),), CAROL, 401, id="proxy of a wrong name"),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, until=-DAY / 2),),
            CAROL,
            401,
            id="expired proxy",
        ),
        pytest.param(
            (holder("front-proxy-client", CLIENT_CA, usages=CLIENTS),),
            CAROL,
            ("front-proxy-client", "system:authenticated"),
            id="user who pretends to be the proxy",
        ),
        pytest.param(
            (holder("front-proxy-client", BETWEEN, usages=CLIENTS), BETWEEN),
            CAROL,
            CAROL_IS,
            id="proxy via an intermediate",
        ),
        pytest.param(
            (holder("front-proxy-client", BETWEEN, usages=CLIENTS),),
            CAROL,
            "refused",
            id="proxy without its intermediate",
        ),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),),
            CAROL,
            "refused",
            id="proxy with a server's certificate",
        ),
        pytest.param((), CAROL, ANONYMOUS, id="headers without a certificate"),
        pytest.param((), {**CAROL, **bearer("good")}, TOKEN_IS, id="headers beside a token"),
        pytest.param((JANE,), {}, JANE_IS, id="user"),
        pytest.param((JANE,), {**CAROL, **bearer("bad")}, JANE_IS, id="user with a bad token"),
        pytest.param((holder("jane", CLIENT_CA, until=-DAY / 2),), {}, 401, id="expired user"),
        pytest.param(
            (holder("jane", CLIENT_CA, until=-DAY / 2),),
            bearer("good"),
            TOKEN_IS,
            id="expired user with a good token",
        ),
        pytest.param((), bearer("good"), TOKEN_IS, id="token"),
        pytest.param((), bearer("bad"), 401, id="bad token"),
        pytest.param((), bearer("expired"), 401, id="expired token"),
        pytest.param((), {}, ANONYMOUS, id="nobody"),
    ],
)
async def test_who_is_let_in_as_whom(client, shown, headers, outcome, latest):
    async with client(*shown, latest=ssl.TLSVersion[latest]) as session:
        assert [await ask(session, headers) for _ in range(2)] == [outcome] * 2


async def test_no_token_is_believed_while_the_api_server_is_down(client, api_server):
    await api_server.close()

    async with client() as session:
        assert await ask(session, bearer("good")) == 401
        assert await ask(session) == ANONYMOUS
    async with client(PROXY) as session:
        assert await ask(session, CAROL) == CAROL_IS


async def test_a_dropped_ca_ends_the_belief_on_standing_connections(server, client):
    renewed = holder("front-proxy-ca", ca=True)

    async with client(PROXY) as old, client(JANE) as jane:
        before = await ask(old, CAROL), await ask(jane)
        server.trusting(CLIENT_CA, renewed)
        after = await ask(old, CAROL), await ask(jane)
        async with client(holder("front-proxy-client", renewed)) as new:
            successor = await ask(new, CAROL)
    async with client(PROXY) as again:
        refused = await ask(again, CAROL)

    assert before == (CAROL_IS, JANE_IS)
    assert after == (401, JANE_IS)
    assert successor == CAROL_IS
    assert refused == "refused"


@contextlib.asynccontextmanager
async def relayed(port, swap):
    """A port whose bytes go to `port`, changed on their way there by `swap`."""
    tasks = []

    async def pass_on(reader, writer, change):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(change(data))
        writer.close()

    async def accept(reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", port)
        tasks.append(asyncio.create_task(pass_on(there, writer, lambda data: data)))
        await pass_on(reader, back, swap)

    relay = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield relay.sockets[0].getsockname()[1]
    relay.close()
    await asyncio.gather(*tasks)
    await relay.wait_closed()


@pytest.mark.parametrize("stolen", [True, False])
async def test_a_certificate_is_worth_nothing_without_its_key(server, client, stolen):
    """OpenSSL loads no such pair, so the certificate is swapped on its way, in the clear of 1.2."""
    swapped = []

    def swap(data):
        swapped.append(thief.der in data)
        return data.replace(thief.der, JANE.der)

    thief = holder("jane", holder("client-ca", ca=True), usages=CLIENTS, groups=("gpu",))
    while len(thief.der) != len(JANE.der):
        thief = holder("jane", holder("client-ca", ca=True), usages=CLIENTS, groups=("gpu",))

    async with relayed(server.port, swap) as port:
        shown = thief if stolen else JANE
        async with client(shown, port=port, latest=ssl.TLSVersion.TLSv1_2) as session:
            outcome = await ask(session)

    assert any(swapped) is stolen
    assert outcome == ("refused" if stolen else JANE_IS)
