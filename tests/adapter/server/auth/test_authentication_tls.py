"""Authentication over real TLS handshakes, with a fake API server.

`test_authentication` has more credentials, without handshakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from typing import Any

import aiohttp
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter.server.apimachinery import middleware, responses
from adapter.server.auth import authentication, authorization, filters, tokens
from adapter.server.auth.trust import Trust
from adapter.server.http.server import Listener
from adapter.server.tls.context import ReloadingContext
from certs.issue import issue_temporary
from tests.adapter.server.auth.credentials import CAROL, HEADERS
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
PROXY = holder("front-proxy-client", PROXY_CA, usages=CLIENT_AUTH)
JANE = holder("jane", CLIENT_CA, usages=CLIENT_AUTH, groups=("gpu",))


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
async def server(api):
    server: Any = Server(ReloadingContext(SERVING), api)
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
    """Return the status, or REFUSED if the connection fails."""
    try:
        async with session.get("/version", headers=headers or {}) as response:
            return response.status
    except aiohttp.ClientError:
        return REFUSED


REFUSED = "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chain", "headers", "outcome"),
    [
        pytest.param((PROXY,), CAROL, "carol", id="front proxy"),
        pytest.param((), CAROL, "system:anonymous", id="request headers without a certificate"),
        pytest.param((JANE,), {}, "jane", id="client certificate"),
        pytest.param(
            (holder("jane", CLIENT_CA, until=-DAY / 2),), {}, 401, id="expired client certificate"
        ),
        pytest.param(
            (holder("front-proxy-client", OTHER_CA, usages=CLIENT_AUTH),),
            CAROL,
            REFUSED,
            id="front proxy of another CA",
        ),
        pytest.param(
            (holder("front-proxy-client", INTERMEDIATE, usages=CLIENT_AUTH), INTERMEDIATE),
            CAROL,
            "carol",
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
    ],
)
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_certificates_determine_the_user_of_the_review(
    cluster, client, chain, headers, outcome, version
):
    async with client(*chain, latest=ssl.TLSVersion[version]) as session:
        answers = [await fetch(session, headers) for _ in range(2)]

    reviews = cluster.requests_to(kubernetes.ACCESS_REVIEWS)
    users = [request.document["spec"]["user"] for request in reviews]
    if outcome in (401, REFUSED):
        assert (answers, users) == ([outcome] * 2, [])
    else:
        assert (answers, users) == ([200] * 2, [outcome] * 2)


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

    assert before == (200, 200)
    assert after == (401, 200)
    assert successor == 200
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


@pytest.mark.slow
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
    assert outcome == (REFUSED if stolen else 200)
