"""Authentication and authorization over real TLS handshakes, with a fake API server."""

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

from adapter.server.apimachinery import middleware, responses
from adapter.server.auth import authentication, authorization, filters, tokens
from adapter.server.auth.trust import RequestHeaderConfig, Trust
from adapter.server.http.server import Listener
from adapter.server.tls.context import ReloadingContext
from certs.issue import issue_temporary
from tools.certificates import DAY, Holder
from tools.fakes import kubernetes

NOW = dt.datetime.now(dt.UTC)
SERVING = issue_temporary(("127.0.0.1",), now=NOW)
CLIENT_AUTH = (ExtendedKeyUsageOID.CLIENT_AUTH,)


def holder(name, *args, **options):
    return Holder(name, *args, now=NOW, **options)


PROXY_CA = holder("front-proxy-ca", ca=True)
INTERMEDIATE = holder("front-proxy-intermediate", PROXY_CA, ca=True)
CLIENT_CA = holder("client-ca", ca=True)
OTHER_CA = holder("front-proxy-ca", ca=True)
HEADERS = RequestHeaderConfig(
    allowed_names=("front-proxy-client",),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)

PROXY = holder("front-proxy-client", PROXY_CA, usages=CLIENT_AUTH)
JANE = holder("jane", CLIENT_CA, usages=CLIENT_AUTH, groups=("gpu",))
CAROL = {"X-Remote-User": "carol", "X-Remote-Group": "staff"}


PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/web-1/duty"
ATTRIBUTES = {
    "namespace": "default",
    "verb": "get",
    "group": "custom.metrics.k8s.io",
    "version": "v1beta2",
    "resource": "pods",
    "subresource": "duty",
    "name": "web-1",
}


class Server:
    """Filters in front of a handler that answers every request with "welcome"."""

    def __init__(self, tls, api):
        self.tls = tls
        self.set_trust(CLIENT_CA, PROXY_CA)
        authenticator = authentication.Authenticator(lambda: self.trust, tokens.TokenReviews(api))
        authorizer = authorization.Authorizer(api, allowed_ttl=0, denied_ttl=0)
        self.guard = filters.Guard(authenticator, authorizer)

    def set_trust(self, client_ca, proxy_ca):
        self.trust = Trust(client_cas=client_ca.pem, proxy_cas=proxy_ca.pem, headers=HEADERS)
        self.tls.request_client_certs((self.trust.client_cas, self.trust.proxy_cas))

    async def welcome(self, request, head):
        await self.guard(request, head, head.info)
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
    server = Server(ReloadingContext(SERVING), api)
    serve = middleware.serving(server.welcome)
    listener = Listener(serve, "127.0.0.1", 0, ssl_context=server.tls.context)
    listener.start()
    server.port = listener.port
    yield server
    await listener.close()


@pytest.fixture
def client(server, tmp_path):
    """Return a context with a session of one connection that presents `chain`."""

    @contextlib.asynccontextmanager
    async def _client(*chain, port=None, latest=ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cadata=SERVING.ca_pem.decode())
        context.maximum_version = latest
        if chain:
            chain[0].client(context, tmp_path, *chain[1:])
        url = f"https://127.0.0.1:{port or server.port}"
        connector = aiohttp.TCPConnector(ssl=context, limit=1)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            yield session

    return _client


async def fetch(session, headers=None):
    """Return the status and the body, or REFUSED if the connection fails."""
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

CAROL_SPEC = {"user": "carol", "groups": ["staff", "system:authenticated"]}
TOKEN_SPEC = {
    "user": "system:serviceaccount:a:b",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "uid": "u-1",
    "extra": {"authentication.kubernetes.io/pod-name": ["b-1"]},
}
ANONYMOUS_SPEC = {"user": "system:anonymous", "groups": ["system:unauthenticated"]}


def certificate_spec(client, *groups):
    digest = hashlib.sha256(client.der).hexdigest()
    return {
        "user": client.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value,
        "groups": [*groups, "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]},
    }


JANE_SPEC = certificate_spec(JANE, "gpu")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("chain", "headers", "outcome"),
    [
        pytest.param((PROXY,), CAROL, CAROL_SPEC, id="front proxy"),
        pytest.param((PROXY,), {}, UNAUTHORIZED, id="front proxy without a user"),
        pytest.param(
            (holder("front-proxy-client", OTHER_CA, usages=CLIENT_AUTH),),
            CAROL,
            REFUSED,
            id="front proxy of another CA",
        ),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, until=-DAY / 2),),
            CAROL,
            UNAUTHORIZED,
            id="expired front proxy",
        ),
        pytest.param(
            (holder("front-proxy-client", INTERMEDIATE, usages=CLIENT_AUTH), INTERMEDIATE),
            CAROL,
            CAROL_SPEC,
            id="front proxy with its intermediate",
        ),
        pytest.param(
            (holder("front-proxy-client", INTERMEDIATE, usages=CLIENT_AUTH),),
            CAROL,
            REFUSED,
            id="front proxy without its intermediate",
        ),
        pytest.param(
            (holder("front-proxy-client", PROXY_CA, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),),
            CAROL,
            REFUSED,
            id="front proxy with a serving certificate",
        ),
        pytest.param((), CAROL, ANONYMOUS_SPEC, id="request headers without a certificate"),
        pytest.param((JANE,), {}, JANE_SPEC, id="client certificate"),
        pytest.param(
            (holder("jane", CLIENT_CA, until=-DAY / 2),),
            {},
            UNAUTHORIZED,
            id="expired client certificate",
        ),
        pytest.param((), bearer("good"), TOKEN_SPEC, id="token"),
        pytest.param((), bearer("expired"), UNAUTHORIZED, id="expired token"),
        pytest.param((), {}, ANONYMOUS_SPEC, id="no credentials"),
    ],
)
@pytest.mark.parametrize(
    ("decision", "version"),
    [("allowed", "TLSv1_2"), ("denied", "TLSv1_3")],
)
async def test_credentials_determine_the_user_of_the_review(
    cluster, client, chain, headers, outcome, decision, version
):
    """`test_authentication` has more combinations, without handshakes."""
    cluster.decide = lambda spec: {"allowed": decision == "allowed", "reason": "<reason>"}

    async with client(*chain, latest=ssl.TLSVersion[version]) as session:
        answers = [await fetch(session, headers) for _ in range(2)]

    specs = [request.document["spec"] for request in cluster.requests_to(kubernetes.ACCESS_REVIEWS)]
    if isinstance(outcome, dict):
        assert specs == [{**outcome, "resourceAttributes": ATTRIBUTES}] * 2
        assert answers == [answer_for(decision, outcome["user"])] * 2
    else:
        assert specs == []
        assert answers == [outcome] * 2


def answer_for(decision, user):
    if decision == "allowed":
        return WELCOME
    if decision == "none":
        reason = "authorization check failed; see the log of the adapter"
        return 500, f'Internal Server Error: "{PATH}": {reason}\n'
    message = (
        f'pods.custom.metrics.k8s.io "web-1" is forbidden: User "{user}" cannot get resource '
        '"pods/duty" in API group "custom.metrics.k8s.io" in the namespace "default": <reason>'
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


async def test_only_system_masters_are_served_while_the_api_server_is_down(client, api_server):
    await api_server.close()

    async with client() as session:
        token, anonymous = await fetch(session, bearer("good")), await fetch(session)
    async with client(PROXY) as session:
        proxied = await fetch(session, CAROL)
        aggregator = await fetch(
            session, {"X-Remote-User": "a", "X-Remote-Group": "system:masters"}
        )

    assert token == UNAUTHORIZED
    assert anonymous == proxied == answer_for("none", "")
    assert aggregator == WELCOME


async def test_a_removed_ca_is_not_trusted_any_more_on_open_connections(server, client):
    renewed = holder("front-proxy-ca", ca=True)

    async with client(PROXY) as old, client(JANE) as jane:
        before = await fetch(old, CAROL), await fetch(jane)
        server.set_trust(CLIENT_CA, renewed)
        after = await fetch(old, CAROL), await fetch(jane)
        async with client(holder("front-proxy-client", renewed)) as new:
            successor = await fetch(new, CAROL)
    async with client(PROXY) as again:
        refused = await fetch(again, CAROL)

    assert before == (WELCOME, WELCOME)
    assert after == (UNAUTHORIZED, WELCOME)
    assert successor == WELCOME
    assert refused == REFUSED


@contextlib.asynccontextmanager
async def relay(port, change):
    """Yield a port that forwards to `port`; `change` modifies what clients send."""
    tasks = []

    async def forward(reader, writer, change):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(change(data))
        writer.close()

    async def accept(client_reader, client_writer):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        tasks.append(asyncio.create_task(forward(reader, client_writer, lambda data: data)))
        await forward(client_reader, writer, change)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("stolen", [True, False])
async def test_a_certificate_without_its_key_is_refused(server, client, stolen):
    """OpenSSL does not load such a pair: a relay swaps the certificate, plain text in TLS 1.2."""
    swapped = []

    def swap(data):
        swapped.append(thief.der in data)
        return data.replace(thief.der, JANE.der)

    # The lengths must be equal. That of an ECDSA signature varies, and serial numbers grow.
    authority, name = holder("client-ca", ca=True), "thief"
    thief = holder(name, authority, usages=CLIENT_AUTH, groups=("gpu",))
    while excess := len(thief.der) - len(JANE.der):
        name = "t" * max(1, len(name) - excess)
        thief = holder(name, authority, usages=CLIENT_AUTH, groups=("gpu",))

    async with relay(server.port, swap) as port:
        presented = thief if stolen else JANE
        async with client(presented, port=port, latest=ssl.TLSVersion.TLSv1_2) as session:
            outcome = await fetch(session)

    assert any(swapped) is stolen
    assert outcome == (REFUSED if stolen else WELCOME)
