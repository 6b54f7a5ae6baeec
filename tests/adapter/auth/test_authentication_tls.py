"""Who is let in as whom, shown with real handshakes; only the API server is a fake."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import json
import ssl

import aiohttp
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.auth import authentication, authorization, filters, tokens
from adapter.auth.trust import Headers, Trust
from adapter.http import responses
from adapter.http import server as serving
from adapter.tls import context as tls
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


PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/web-1/duty"
ASKED = {
    "namespace": "default",
    "verb": "get",
    "group": "custom.metrics.k8s.io",
    "version": "v1beta2",
    "resource": "pods",
    "subresource": "duty",
    "name": "web-1",
}


class Server:
    """Answers those who are let in."""

    def __init__(self, live, api):
        self.live = live
        self.trusting(CLIENT_CA, PROXY_CA)
        authenticator = authentication.Authenticator(lambda: self.trust, tokens.TokenReviews(api))
        authorizer = authorization.Authorizer(api, allowed_seconds=0, denied_seconds=0)
        self.respond = filters.Guard(authenticator, authorizer)(self.welcome)

    def trusting(self, client_ca, proxy_ca):
        self.trust = Trust(client_cas=client_ca.pem, proxy_cas=proxy_ca.pem, headers=HEADERS)
        self.live.request_client_certs((self.trust.client_cas, self.trust.proxy_cas))

    async def welcome(self, request, ask):
        return responses.Answer(body=b"welcome", content_type="text/plain")


@pytest.fixture
async def cluster():
    cluster = kubernetes.Cluster()
    user = {
        "username": "system:serviceaccount:a:b",
        "uid": "u-1",
        "groups": ["system:serviceaccounts"],
        "extra": {"authentication.kubernetes.io/pod-name": ["b-1"]},
    }
    cluster.tokens["good"] = {"authenticated": True, "user": user}
    cluster.tokens["expired"] = {"error": "[invalid bearer token, token has expired]"}
    return cluster


@pytest.fixture
async def server(api):
    server = Server(tls.ReloadingContext(SERVING), api)
    runner = serving.runner(responses.error_middleware(server.respond))
    await runner.setup()
    site = serving.Site(runner, "127.0.0.1", 0, ssl_context=server.live.context)
    await site.start()
    server.port = site.port
    yield server
    await runner.cleanup()


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
    """The status, and what was said with it; or that there is no connection."""
    try:
        async with session.get(PATH, headers=headers or {}) as response:
            return response.status, await response.text()
    except aiohttp.ClientError:
        return REFUSED


REFUSED = "refused", ""
WELCOME = 200, "welcome"
UNAUTHORIZED = (
    401,
    (
        '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        '"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
    ),
)

CAROL_IS = {"user": "carol", "groups": ["staff", "system:authenticated"]}
TOKEN_IS = {
    "user": "system:serviceaccount:a:b",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "uid": "u-1",
    "extra": {"authentication.kubernetes.io/pod-name": ["b-1"]},
}
ANONYMOUS = {"user": "system:anonymous", "groups": ["system:unauthenticated"]}


def is_certified(client, *groups):
    digest = hashlib.sha256(client.der).hexdigest()
    return {
        "user": client.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value,
        "groups": [*groups, "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]},
    }


JANE_IS = is_certified(JANE, "gpu")
PRETENDER = holder("front-proxy-client", CLIENT_CA, usages=CLIENTS)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("shown", "headers", "outcome"),
    [
        pytest.param((PROXY,), CAROL, CAROL_IS, id="proxy"),
        pytest.param((PROXY,), {}, UNAUTHORIZED, id="proxy for nobody"),
        pytest.param(
            (holder("front-proxy-client", STRANGERS_CA, usages=CLIENTS),),
            CAROL,
            REFUSED,
            id="proxy of a wrong CA",
        ),
        pytest.param((holder("other", PROXY_CA),), CAROL, UNAUTHORIZED, id="proxy of a wrong name"),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, until=-DAY / 2),),
            CAROL,
            UNAUTHORIZED,
            id="expired proxy",
        ),
        pytest.param(
            (PRETENDER,),
            CAROL,
            is_certified(PRETENDER),
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
            REFUSED,
            id="proxy without its intermediate",
        ),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),),
            CAROL,
            REFUSED,
            id="proxy with a server's certificate",
        ),
        pytest.param((), CAROL, ANONYMOUS, id="headers without a certificate"),
        pytest.param((), {**CAROL, **bearer("good")}, TOKEN_IS, id="headers beside a token"),
        pytest.param((JANE,), {}, JANE_IS, id="user"),
        pytest.param((JANE,), {**CAROL, **bearer("bad")}, JANE_IS, id="user with a bad token"),
        pytest.param(
            (holder("jane", CLIENT_CA, until=-DAY / 2),), {}, UNAUTHORIZED, id="expired user"
        ),
        pytest.param(
            (holder("jane", CLIENT_CA, until=-DAY / 2),),
            bearer("good"),
            TOKEN_IS,
            id="expired user with a good token",
        ),
        pytest.param((), bearer("good"), TOKEN_IS, id="token"),
        pytest.param((), bearer("bad"), UNAUTHORIZED, id="bad token"),
        pytest.param((), bearer("expired"), UNAUTHORIZED, id="expired token"),
        pytest.param((), {}, ANONYMOUS, id="nobody"),
    ],
)
@pytest.mark.parametrize(
    ("verdict", "latest"),
    [("allowed", "TLSv1_2"), ("allowed", "TLSv1_3"), ("denied", "TLSv1_3"), ("none", "TLSv1_3")],
)
async def test_who_is_let_in_as_whom(cluster, client, shown, headers, outcome, verdict, latest):
    cluster.decide = lambda spec: {"allowed": verdict == "allowed", "reason": "as <we> say"}
    if verdict == "none":
        cluster.fail(kubernetes.ACCESS_REVIEWS, status=403, message="no reviews for you", times=2)

    async with client(*shown, latest=ssl.TLSVersion[latest]) as session:
        said = [await ask(session, headers) for _ in range(2)]

    specs = [one.document["spec"] for one in cluster.asked(kubernetes.ACCESS_REVIEWS)]
    if isinstance(outcome, dict):
        assert specs == [{**outcome, "resourceAttributes": ASKED}] * 2
        assert said == [answered(verdict, outcome["user"])] * 2
    else:
        assert specs == []
        assert said == [outcome] * 2


def answered(verdict, user):
    if verdict == "allowed":
        return WELCOME
    if verdict == "none":
        why = "no verdict could be had; the log of the adapter says why"
        return 500, f'Internal Server Error: "{PATH}": {why}\n'
    message = (
        f'pods.custom.metrics.k8s.io "web-1" is forbidden: User "{user}" cannot get resource '
        '"pods/duty" in API group "custom.metrics.k8s.io" in the namespace "default": as <we> say'
    )
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": {"name": "web-1", "group": "custom.metrics.k8s.io", "kind": "pods"},
        "code": 403,
    }
    text = json.dumps(document, separators=(",", ":"))
    return 403, text.replace("<", "\\u003c").replace(">", "\\u003e") + "\n"


async def test_nobody_is_let_in_while_the_api_server_is_down(client, api_server):
    await api_server.close()

    async with client() as session:
        token, anonymous = await ask(session, bearer("good")), await ask(session)
    async with client(PROXY) as session:
        proxied = await ask(session, CAROL)
        aggregator = await ask(session, {"X-Remote-User": "a", "X-Remote-Group": "system:masters"})

    assert token == UNAUTHORIZED
    assert anonymous == proxied == answered("none", "")
    assert aggregator == WELCOME


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

    assert before == (WELCOME, WELCOME)
    assert after == (UNAUTHORIZED, WELCOME)
    assert successor == WELCOME
    assert refused == REFUSED


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
    assert outcome == (REFUSED if stolen else WELCOME)
