"""Fuzz tests of client certificates: a trusted CA must have issued the identity, or it is a 401.

First the authenticator alone, then a server with real TLS handshakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl

import pytest
from cryptography import x509
from hypothesis import event, example, given
from hypothesis import strategies as st

from adapter import errors
from adapter.server.apimachinery import middleware, responses
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.filters import Guard
from adapter.server.auth.peer import Peer, certificate_user
from adapter.server.auth.tokens import TokenReviews
from adapter.server.auth.trust import Trust
from adapter.server.auth.user import User
from adapter.server.http.server import Listener
from adapter.server.tls.context import ReloadingContext
from certs.bundle import Bundle, CertificateError
from certs.chain import ClientCAs
from certs.issue import issue_temporary
from tests import chains, der, effort
from tests.adapter import wired
from tests.adapter.server.auth.credentials import (
    BAD,
    CAROL,
    CAROL_USER,
    GOOD,
    HEADERS,
    TOM,
    FakeTokenReviews,
)
from tests.chains import NOW, PROXY_NAME, ROOTS

TRUST = Trust(client_cas=ROOTS["client"].pem, proxy_cas=ROOTS["proxy"].pem, headers=HEADERS)
# Authenticator


def authenticate(chain, headers):
    """Return the user, or None for a 401; any other exception fails the test."""
    authenticator = Authenticator(lambda: TRUST, FakeTokenReviews(), clock=NOW.timestamp)
    peer = Peer(chain=tuple(chain))

    async def once():
        try:
            return await authenticator.authenticate(peer, wired.head(headers))
        except errors.ApiError as error:
            if error.code != 401:
                raise
            return None

    async def twice():
        return await once(), await once()

    first, second = asyncio.run(twice())
    assert first == second
    return first


some_headers = st.sampled_from(({}, CAROL, CAROL, {**CAROL, **GOOD}, {**CAROL, **BAD}, GOOD))


@given(chain=chains.chains(), headers=some_headers)
@example(chain=chains.simple("proxy", PROXY_NAME), headers=CAROL)
@example(chain=chains.simple("proxy", "jane"), headers=CAROL)
@example(chain=chains.simple("client", PROXY_NAME), headers=CAROL)
@example(chain=chains.simple("client", "jane", more=(chains.MORE[7],)), headers={})
@example(chain=chains.simple("client", "jane", version=1), headers={})
def test_the_user_is_one_that_a_trusted_ca_issued(chain, headers):
    leaf = chain.presented[0].der

    user = authenticate((certificate.der for certificate in chain.presented), headers)

    try:
        has_proxy_name = chains.attribute_values(chain.subject, der.CN)[-1:] == [PROXY_NAME]
    except ValueError:
        has_proxy_name = False
    if user == CAROL_USER:
        event("front proxy")
        assert has_proxy_name
        assert chain.leads_to("proxy")
    elif user == TOM:
        event("token")
        assert headers.items() >= GOOD.items()
    elif user is not None:
        event("client certificate")
        assert chain.leads_to("client")
        assert chains.is_named(user, chain.subject, leaf)
    else:
        event("401")
        assert not headers.items() >= GOOD.items()
    if has_proxy_name and "X-Remote-User" in headers and chain.is_beyond_doubt("proxy"):
        assert user == CAROL_USER


@given(chain=chains.chains())
def test_an_unambiguous_chain_is_trusted_until_its_first_expiry(chain):
    certificates = [certificate.der for certificate in chain.presented]
    for root in ROOTS:
        authorities = ClientCAs(TRUST.client_cas if root == "client" else TRUST.proxy_cas)
        try:
            verified = authorities.verify(certificates, now=NOW)
        except CertificateError:
            assert not chain.is_beyond_doubt(root)
        else:
            expiries = {
                min(certificate.until for certificate in path)
                for path in chains.paths(chain.presented, ROOTS[root])
            }
            assert verified.until in expiries


@given(subject=st.lists(chains.attributes(), max_size=6).map(tuple))
def test_the_subject_alone_determines_the_certificate_user(subject):
    leaf = chains.simple("client", "x").presented[0]
    certificate = dataclasses.replace(leaf, subject=der.name(*subject)).der

    try:
        user = certificate_user(x509.load_der_x509_certificate(certificate))
    except (ValueError, errors.Unauthenticated):
        return
    if user is None:
        assert chains.attribute_values(subject, der.CN)[-1:] in ([], [""])
    else:
        assert chains.is_named(user, subject, certificate)


# Modified bytes


def modify(data, changes):
    for position, kind, content in changes:
        start = position % (len(data) + 1)
        end = start + (len(content) if kind == "replace" else 0 if kind == "insert" else 1)
        data = data[:start] + (b"" if kind == "delete" else content) + data[end:]
    return data


changes = st.lists(
    st.tuples(
        st.integers(0, 2000),
        st.sampled_from(("replace", "replace", "insert", "delete")),
        st.binary(min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=3,
)


def issue_through(intermediate, root, name):
    """Return the subject of a leaf, the leaf, and the intermediate that `root` issued."""
    issuer = ROOTS[root]
    ca = chains.Certificate(
        subject=intermediate,
        issuer=issuer.subject,
        key=chains.FIRST_KEY,
        signer=issuer.key,
        ca=True,
    )
    subject = ((der.O, der.UTF8, b"gpu"), (der.CN, der.UTF8, name.encode()))
    leaf = chains.Certificate(
        subject=der.name(*subject), issuer=intermediate, key=chains.OWN_KEY, signer=chains.FIRST_KEY
    )
    return subject, leaf, ca


JANE, JANE_LEAF, JANE_CA = issue_through(chains.BETWEEN, "client", "jane")
_, PROXY_LEAF, PROXY_CA = issue_through(chains.BETWEEN, "proxy", PROXY_NAME)
PROXY_CHAIN = [PROXY_LEAF.der, PROXY_CA.der]


def signed_bytes(certificate):
    """Return the part of the certificate that its signature covers."""
    with contextlib.suppress(ValueError):
        return x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    return None


@given(client=st.sampled_from(("jane", "proxy")), index=st.integers(0, 1), changes=changes)
def test_a_modified_certificate_gives_no_other_identity(client, index, changes):
    chain = [JANE_LEAF.der, JANE_CA.der] if client == "jane" else list(PROXY_CHAIN)
    before = chain[index]
    chain[index] = modify(before, changes)

    user = authenticate(chain, CAROL)

    if user is not None:
        assert signed_bytes(chain[index]) == signed_bytes(before)
        if client == "proxy":
            assert user == CAROL_USER
        else:
            assert chains.is_named(user, JANE, chain[0])


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_arbitrary_bytes_are_rejected(chain):
    assert authenticate(chain, CAROL) is None


def test_path_building_is_bounded():
    """Many self-issued CAs sign each other: the number of possible paths is exponential."""
    leaf = chains.Certificate(
        subject=chains.named("jane"),
        issuer=chains.CLIENT_CA,
        key=chains.OWN_KEY,
        signer=chains.CLIENT_KEY,
    )
    entrance = chains.Certificate(
        subject=chains.CLIENT_CA,
        issuer=chains.OTHER,
        key=chains.CLIENT_KEY,
        signer=chains.SECOND_KEY,
        ca=True,
    )
    self_issued = [
        chains.Certificate(
            subject=chains.OTHER,
            issuer=chains.OTHER,
            key=chains.SECOND_KEY,
            signer=chains.SECOND_KEY,
            ca=True,
            serial=serial,
        )
        for serial in range(1, 100)
    ]
    presented = [each.der for each in (leaf, entrance, *self_issued)]

    def build_paths(number):
        user = authenticate(presented[:number], {})
        assert user is not None
        assert user.name == "jane"

    assert effort.growth(build_paths, 12) < 3


# TLS handshakes


SERVING = issue_temporary(("127.0.0.1",), now=NOW)
REFUSED = "refused"


class FakeApi:
    """Rejects all tokens and allows all requests."""

    async def post(self, path, document, *, timeout=None):
        return {"status": {"authenticated": False, "allowed": True}}


class RecordingAuthenticator:
    """Records the users that an authenticator returns."""

    def __init__(self, authenticator):
        self.users = []
        self._authenticator = authenticator

    def known(self, peer, head):
        return None

    async def authenticate(self, peer, head):
        user = await self._authenticator.authenticate(peer, head)
        self.users.append(user)
        return user


class ErrorHandler(logging.Handler):
    """Collects log records that are errors or have a traceback."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.errors = []

    def emit(self, record):
        if record.exc_info or record.levelno >= logging.ERROR:
            self.errors.append(self.format(record))


class Server:
    """Server behind the filters, with a client; errors in its log fail the test."""

    def __init__(self, loop, folder, log):
        self.loop = loop
        self.log = log
        self._files = folder / "chain.pem", folder / "key.pem"
        self._files[1].write_bytes(Bundle(chain=(), key=chains.OWN_KEY).key_pem)

    async def start(self):
        tls = ReloadingContext(SERVING)
        tls.request_client_certs((TRUST.client_cas, TRUST.proxy_cas))
        reviews = TokenReviews(FakeApi())
        self.authenticator = RecordingAuthenticator(
            Authenticator(lambda: TRUST, reviews, clock=NOW.timestamp)
        )

        guard = Guard(self.authenticator, Authorizer(FakeApi()))

        async def welcome(request, head):
            await guard(request, head, head.info)
            return responses.Answer(body=b"welcome", content_type="text/plain")

        serve = middleware.serving(welcome)
        self.listener = Listener(
            serve, "127.0.0.1", 0, ssl_context=tls.context, shutdown_seconds=0.1
        )
        self.listener.start()
        self.port = self.listener.port

    def connect(self, chain, *, swap=None):
        """Request /version with `chain`; return the user, the status of an error, or REFUSED.

        Returns None if OpenSSL does not load the chain. `swap` modifies what the client sends.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=SERVING.ca_pem.decode())
        if swap:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._files[0].write_text("".join(map(ssl.DER_cert_to_PEM_cert, chain)))
        try:
            context.load_cert_chain(*self._files)
        except ssl.SSLError:
            return None
        self.authenticator.users.clear()
        self.log.errors.clear()
        status = self.loop.run(self._exchange(context, swap or (lambda data: data)))
        assert self.log.errors == []
        users = self.authenticator.users
        assert bool(users) is (status == 200)
        return users[0] if users else status

    async def _exchange(self, context, swap):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def until_done(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    writer.write(swap(outgoing.read()))
                    received = await reader.read(1 << 16)
                    incoming.write(received) if received else incoming.write_eof()

        try:
            async with asyncio.timeout(60):
                await until_done(tls.do_handshake)
                tls.write(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
                tls.write("".join(f"{key}: {each}\r\n" for key, each in CAROL.items()).encode())
                tls.write(b"\r\n")
                answer = await until_done(lambda: tls.read(1 << 16))
        except (ssl.SSLError, ConnectionError):
            return REFUSED
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return int(answer.split()[1]) if answer else REFUSED


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    handler = ErrorHandler()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    with asyncio.Runner() as loop:
        server = Server(loop, tmp_path_factory.mktemp("certificates"), handler)
        loop.run(server.start())
        yield server
        loop.run(server.listener.close())
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_server_authenticates_clients_and_front_proxies(server):
    user = server.connect([JANE_LEAF.der, JANE_CA.der])

    assert chains.is_named(user, JANE, JANE_LEAF.der)
    assert server.connect(PROXY_CHAIN) == CAROL_USER
    assert server.connect([PROXY_LEAF.der]) == REFUSED


def outcome_name(outcome):
    return str(outcome) if isinstance(outcome, str | int) else type(outcome).__name__


@pytest.mark.slow
@given(chain=chains.chains())
def test_a_server_survives_every_chain(server, chain):
    certificates = [certificate.der for certificate in chain.presented]

    outcome = server.connect(certificates)

    event(outcome_name(outcome))
    if outcome == CAROL_USER:
        assert chains.attribute_values(chain.subject, der.CN)[-1] == PROXY_NAME
        assert chain.leads_to("proxy")
    elif isinstance(outcome, User):
        assert chain.leads_to("client")
        assert chains.is_named(outcome, chain.subject, certificates[0])
    else:
        assert outcome in {None, REFUSED, 401}
    assert server.connect(PROXY_CHAIN) == CAROL_USER


@given(index=st.integers(0, 1), changes=changes)
def test_a_server_survives_every_modified_certificate(server, index, changes):
    chain = list(PROXY_CHAIN)
    before = chain[index]
    chain[index] = modify(before, changes)

    outcome = server.connect(chain)

    event(outcome_name(outcome))
    assert outcome in {None, REFUSED, 401} or signed_bytes(chain[index]) == signed_bytes(before)
    assert server.connect(PROXY_CHAIN) == CAROL_USER


@given(
    index=st.integers(0, 1),
    position=st.integers(0, 1000),
    content=st.binary(min_size=1, max_size=3),
)
def test_a_certificate_modified_in_transit_ends_the_handshake(server, index, position, content):
    before = PROXY_CHAIN[index]
    start = position % (len(before) - len(content))
    after = before[:start] + content + before[start + len(content) :]

    outcome = server.connect(PROXY_CHAIN, swap=lambda data: data.replace(before, after))

    assert outcome == (CAROL_USER if after == before else REFUSED)
