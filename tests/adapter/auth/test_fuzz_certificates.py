"""Whatever certificates a client shows: it is whom they name, by an authority's word, or nobody.

First they are put to what decides, then to a server, in handshakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
import time

import pytest
from cryptography import x509
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from adapter import errors
from adapter.auth import authentication, authorization, filters, tokens
from adapter.auth import x509 as certificates
from adapter.auth.trust import Headers, Trust
from adapter.auth.user import User
from adapter.http import responses
from adapter.http import server as serving
from adapter.tls import context as tls
from certs.bundle import Bundle, CertificateError
from certs.chain import Authorities
from tests import chains, der
from tests.chains import NOW, PROXY_NAME, ROOTS

FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
HEADERS = Headers(
    allowed_names=(PROXY_NAME,),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
)
TRUST = Trust(client_cas=ROOTS["client"].pem, proxy_cas=ROOTS["proxy"].pem, headers=HEADERS)
CAROL = {"X-Remote-User": "carol", "X-Remote-Group": "staff", "X-Remote-Uid": "of-the-proxy"}
CAROL_IS = User(name="carol", groups=("staff", "system:authenticated"), uid="of-the-proxy")
TOM_IS = User(name="tom", groups=("system:authenticated",))
GOOD, BAD = {"Authorization": "Bearer good"}, {"Authorization": "Bearer bad"}


# What decides


class Connection:
    """Stands for what the TLS of one connection is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    chain: tuple[bytes, ...]
    connection: Connection = dataclasses.field(default_factory=Connection)


class Reviews:
    async def user(self, token):
        if token == "good":
            return TOM_IS
        raise errors.Unauthenticated("the token is nobody's")


def outcome(chain, headers):
    """The user, or None for a 401; anything else that is raised fails the test."""
    authenticator = authentication.Authenticator(lambda: TRUST, Reviews(), clock=NOW.timestamp)
    peer = Peer(chain=tuple(chain))

    async def ask():
        try:
            return await authenticator.authenticate(peer, CIMultiDict(headers))
        except errors.ApiError as error:
            if error.code != 401:
                raise
            return None

    async def twice():
        return await ask(), await ask()

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
@settings(FUZZ, max_examples=400)
def test_a_chain_makes_its_holder_whom_an_authority_named(chain, headers):
    first = chain.shown[0].der

    user = outcome((each.der for each in chain.shown), headers)

    try:
        proxy = chains.told(chain.subject, der.CN)[-1:] == [PROXY_NAME]
    except ValueError:
        proxy = False
    if user == CAROL_IS:
        event("a front proxy's word")
        assert proxy
        assert chain.leads_to("proxy")
    elif user == TOM_IS:
        event("a token")
        assert headers.items() >= GOOD.items()
    elif user is not None:
        event("a certificate")
        assert chain.leads_to("client")
        assert chains.is_named(user, chain.subject, first)
    else:
        event("nobody")
        assert not headers.items() >= GOOD.items()
    if proxy and "X-Remote-User" in headers and chain.is_beyond_doubt("proxy"):
        assert user == CAROL_IS


@given(chain=chains.chains())
@settings(FUZZ, max_examples=100)
def test_a_chain_that_is_beyond_doubt_is_trusted_and_until_its_first_end(chain):
    shown = [each.der for each in chain.shown]
    for root in ROOTS:
        judge = Authorities(TRUST.client_cas if root == "client" else TRUST.proxy_cas)
        try:
            verified = judge.verify(shown, now=NOW)
        except CertificateError:
            assert not chain.is_beyond_doubt(root)
        else:
            ends = {
                min(each.until for each in path) for path in chains.paths(chain.shown, ROOTS[root])
            }
            assert verified.until in ends


@given(subject=st.lists(chains.attributes(), max_size=6).map(tuple))
@settings(FUZZ, max_examples=300)
def test_a_certificate_names_nobody_but_the_user_it_names(subject):
    own = chains.simple("client", "x").shown[0]
    certificate = dataclasses.replace(own, subject=der.name(*subject)).der

    try:
        user = certificates.user(x509.load_der_x509_certificate(certificate))
    except (ValueError, errors.Unauthenticated):
        return
    if user is None:
        assert chains.told(subject, der.CN)[-1:] in ([], [""])
    else:
        assert chains.is_named(user, subject, certificate)


# Bytes


def changed(data, changes):
    for place, kind, content in changes:
        at = place % (len(data) + 1)
        kept = at + (len(content) if kind == "replace" else 0 if kind == "insert" else 1)
        data = data[:at] + (b"" if kind == "delete" else content) + data[kept:]
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


def through(between, root, name):
    """A chain of two below `root`."""
    issuer = ROOTS[root]
    mid = chains.Made(
        subject=between, issuer=issuer.subject, key=chains.FIRST_KEY, signer=issuer.key, ca=True
    )
    subject = ((der.O, der.UTF8, b"gpu"), (der.CN, der.UTF8, name.encode()))
    leaf = chains.Made(
        subject=der.name(*subject), issuer=between, key=chains.OWN_KEY, signer=chains.FIRST_KEY
    )
    return subject, leaf, mid


JANE, JANES, JANES_CA = through(chains.BETWEEN, "client", "jane")
_, PROXYS, PROXYS_CA = through(chains.BETWEEN, "proxy", PROXY_NAME)


def signed(certificate):
    """The bytes that the signature is about."""
    with contextlib.suppress(ValueError):
        return x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    return None


@given(whose=st.sampled_from(("jane", "proxy")), which=st.integers(0, 1), changes=changes)
@settings(FUZZ, max_examples=300)
def test_changed_bytes_make_nobody_of_anybody(whose, which, changes):
    chain = [each.der for each in ((JANES, JANES_CA) if whose == "jane" else (PROXYS, PROXYS_CA))]
    before = chain[which]
    chain[which] = changed(before, changes)

    user = outcome(chain, CAROL)

    if user is not None:
        assert signed(chain[which]) == signed(before)
        if whose == "proxy":
            assert user == CAROL_IS
        else:
            assert chains.is_named(user, JANE, chain[0])


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
@settings(FUZZ, max_examples=100)
def test_bytes_are_no_certificate(chain):
    assert outcome(chain, CAROL) is None


def test_a_maze_of_issuers_is_given_up_soon():
    """They lead from one to the next in so many ways that nobody could go them all."""
    leaf = chains.Made(
        subject=chains.named("jane"),
        issuer=chains.CLIENT_CA,
        key=chains.OWN_KEY,
        signer=chains.CLIENT_KEY,
    )
    door = chains.Made(
        subject=chains.CLIENT_CA,
        issuer=chains.OTHER,
        key=chains.CLIENT_KEY,
        signer=chains.SECOND_KEY,
        ca=True,
    )
    maze = [
        chains.Made(
            subject=chains.OTHER,
            issuer=chains.OTHER,
            key=chains.SECOND_KEY,
            signer=chains.SECOND_KEY,
            ca=True,
            serial=each,
        )
        for each in range(1, 100)
    ]
    began = time.monotonic()

    user = outcome([each.der for each in (leaf, door, *maze)], {})

    assert time.monotonic() - began < 5
    assert user is not None
    assert user.name == "jane"


# Handshakes


SERVING = tls.issued("127.0.0.1", now=NOW)
JANE_SHOWS = (JANES, JANES_CA)
REFUSED = "refused"


class Api:
    """Knows no token, and allows everything."""

    async def post(self, path, document, *, timeout=None):
        return {"status": {"authenticated": False, "allowed": True}}


class Witness:
    """An authenticator, and whom it let in."""

    def __init__(self, authenticator):
        self.users = []
        self._authenticator = authenticator

    async def authenticate(self, peer, headers):
        user = await self._authenticator.authenticate(peer, headers)
        self.users.append(user)
        return user


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.found = []

    def emit(self, record):
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(self.format(record))


class Server:
    """Tells whom it let in, or what it said else; fails with what it logged."""

    def __init__(self, loop, folder, complaints):
        self.loop = loop
        self.complaints = complaints
        self._files = folder / "chain.pem", folder / "key.pem"
        own = Bundle(chain=(), key=chains.OWN_KEY)
        self._files[1].write_bytes(own.key_pem)

    async def start(self):
        live = tls.ReloadingContext(SERVING)
        live.request_client_certs((TRUST.client_cas, TRUST.proxy_cas))
        reviews = tokens.TokenReviews(Api())
        self.witness = Witness(
            authentication.Authenticator(lambda: TRUST, reviews, clock=NOW.timestamp)
        )

        async def welcome(request, ask):
            return responses.Answer(body=b"welcome", content_type="text/plain")

        respond = filters.Guard(self.witness, authorization.Authorizer(Api()))(welcome)
        self.runner = serving.runner(responses.error_middleware(respond), shutdown_timeout=0.1)
        await self.runner.setup()
        site = serving.Site(self.runner, "127.0.0.1", 0, ssl_context=live.context)
        await site.start()
        self.port = site.port

    def ask(self, shown, *, swap=None):
        """Who asks for /version: a user, the status that is said, or REFUSED.

        None where OpenSSL does not even send such certificates. `swap` changes what is sent.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=SERVING.ca_pem.decode())
        if swap:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._files[0].write_text("".join(map(ssl.DER_cert_to_PEM_cert, shown)))
        try:
            context.load_cert_chain(*self._files)
        except ssl.SSLError:
            return None
        self.witness.users.clear()
        self.complaints.found.clear()
        said = self.loop.run(self._exchange(context, swap or (lambda data: data)))
        assert self.complaints.found == []
        users = self.witness.users
        assert bool(users) is (said == 200)
        return users[0] if users else said

    async def _exchange(self, context, swap):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
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
            async with asyncio.timeout(10):
                await until_done(secured.do_handshake)
                secured.write(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
                secured.write(b"X-Remote-User: carol\r\nX-Remote-Group: staff\r\n")
                secured.write(b"X-Remote-Uid: of-the-proxy\r\n\r\n")
                answer = await until_done(lambda: secured.read(1 << 16))
        except (ssl.SSLError, ConnectionError):
            return REFUSED
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return int(answer.split()[1]) if answer else REFUSED


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    complaints = Complaints()
    root = logging.getLogger()
    level = root.level
    root.addHandler(complaints)
    root.setLevel(logging.INFO)
    with asyncio.Runner() as loop:
        found = Server(loop, tmp_path_factory.mktemp("certificates"), complaints)
        loop.run(found.start())
        yield found
        loop.run(found.runner.cleanup())
    root.removeHandler(complaints)
    root.setLevel(level)


def test_a_server_knows_users_and_front_proxies(server):
    assert chains.is_named(server.ask([each.der for each in JANE_SHOWS]), JANE, JANES.der)
    assert server.ask([PROXYS.der, PROXYS_CA.der]) == CAROL_IS
    assert server.ask([PROXYS.der]) == REFUSED


@given(chain=chains.chains())
@settings(FUZZ, max_examples=100)
def test_no_chain_confuses_a_server(server, chain):
    shown = [each.der for each in chain.shown]

    who = server.ask(shown)

    event(str(who) if isinstance(who, str | int) else type(who).__name__)
    if who == CAROL_IS:
        assert chains.told(chain.subject, der.CN)[-1] == PROXY_NAME
        assert chain.leads_to("proxy")
    elif isinstance(who, User):
        assert chain.leads_to("client")
        assert chains.is_named(who, chain.subject, shown[0])
    else:
        assert who in {None, REFUSED, 401}
    assert server.ask([PROXYS.der, PROXYS_CA.der]) == CAROL_IS


@given(which=st.integers(0, 1), changes=changes)
@settings(FUZZ, max_examples=100)
def test_no_bytes_confuse_a_server(server, which, changes):
    chain = [PROXYS.der, PROXYS_CA.der]
    before = chain[which]
    chain[which] = changed(before, changes)

    who = server.ask(chain)

    event(str(who) if isinstance(who, str | int) else type(who).__name__)
    assert who in {None, REFUSED, 401} or signed(chain[which]) == signed(before)
    assert server.ask([PROXYS.der, PROXYS_CA.der]) == CAROL_IS


@given(
    which=st.integers(0, 1),
    place=st.integers(0, 1000),
    content=st.binary(min_size=1, max_size=3),
)
@settings(FUZZ, max_examples=100)
def test_bytes_that_are_swapped_on_their_way_end_the_handshake(server, which, place, content):
    before = (PROXYS, PROXYS_CA)[which].der
    at = place % (len(before) - len(content))
    after = before[:at] + content + before[at + len(content) :]

    who = server.ask([PROXYS.der, PROXYS_CA.der], swap=lambda data: data.replace(before, after))

    assert who == (CAROL_IS if after == before else REFUSED)
