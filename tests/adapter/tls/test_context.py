from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import gc
import ssl
import weakref

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter.auth.peer import read_peer
from adapter.tls import context as tls
from adapter.tls.ciphers import TLSOptions
from certs.bundle import Bundle, CertificateError, Named
from tests import chains, der
from tests.certificates import DAY, Holder

NOW = dt.datetime.now(dt.UTC)
SERVING = tls.issued("127.0.0.2", now=NOW, hosts=("adapter.test",))
OTHER = tls.issued("127.0.0.2", now=NOW, hosts=("adapter.test",))
CLIENT_CA = Holder("client-ca", ca=True, now=NOW)
PROXY_CA = Holder("proxy-ca", ca=True, now=NOW)
BETWEEN = Holder("between", PROXY_CA, ca=True, now=NOW)
TRUSTED = (SERVING.ca_pem + OTHER.ca_pem).decode()


class Server:
    """Says `hello`, then the same again to whatever it is told; knows its last client."""

    def __init__(self, live):
        self.live = live
        self.peer = None

    @contextlib.asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self.live.context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _talk(self, reader, writer):
        self.peer = read_peer(writer.transport)
        writer.write(b"hello")
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    async def connect(self, client=None, *, host="localhost"):
        """A connection that has been greeted. Raises ssl.SSLError or ConnectionError if not."""
        context = client or trusting()
        name = host or None
        if not host:
            context.check_hostname = False
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=name or ""
        )
        try:
            await reader.readexactly(5)
        except asyncio.IncompleteReadError as error:
            writer.close()
            raise ConnectionResetError("the server hung up") from error
        return reader, writer

    async def shown(self, client=None, *, host="localhost"):
        """The server's certificate, the version and the protocol that a client ends up with."""
        _, writer = await self.connect(client, host=host)
        found = writer.get_extra_info("ssl_object")
        certificate = x509.load_der_x509_certificate(found.getpeercert(binary_form=True))
        writer.close()
        await writer.wait_closed()
        return certificate, found.version(), found.selected_alpn_protocol()


def trusting(holder=None, tmp_path=None, *others, **options):
    client = ssl.create_default_context(cadata=TRUSTED)
    client.set_alpn_protocols(["h2", "http/1.1"])
    if holder is not None:
        holder.client(client, tmp_path, *others)
    for name, value in options.items():
        setattr(client, name, value)
    return client


@pytest.fixture
async def server():
    async with Server(tls.ReloadingContext(SERVING)).listening() as listening:
        yield listening


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "127.0.0.2", "adapter.test"])
async def test_our_own_certificate_is_good_for_this_machine(server, host):
    _, version, protocol = await server.shown(host=host)

    assert (version, protocol) == ("TLSv1.3", "http/1.1")


async def test_it_is_good_for_no_other(server):
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.shown(host="elsewhere.test")


async def test_tls_1_2_is_the_least(server):
    _, version, protocol = await server.shown(trusting(maximum_version=ssl.TLSVersion.TLSv1_2))

    assert (version, protocol) == ("TLSv1.2", "http/1.1")
    assert server.live.context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_the_terms_hold_after_every_change():
    terms = TLSOptions(ciphers="ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
    live = tls.ReloadingContext(SERVING, terms=terms)
    live.serve(OTHER)
    live.request_client_certs([CLIENT_CA.pem])
    refused, agreed = (trusting(maximum_version=ssl.TLSVersion.TLSv1_2) for _ in range(2))
    refused.set_ciphers("ECDHE+CHACHA20")
    agreed.set_ciphers("ECDHE+AES256:ECDHE+CHACHA20")

    async with Server(live).listening() as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.shown(refused)
        _, writer = await server.connect(agreed)
    assert writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    writer.close()


async def test_a_higher_minimum_refuses_tls_1_2():
    live = tls.ReloadingContext(SERVING, terms=TLSOptions(minimum=ssl.TLSVersion.TLSv1_3))

    async with Server(live).listening() as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.shown(trusting(maximum_version=ssl.TLSVersion.TLSv1_2))


@pytest.mark.parametrize("host", ["localhost", ""], ids=["sni", "no-sni"])
async def test_a_new_certificate_is_served_at_once_and_old_connections_go_on(server, host):
    reader, writer = await server.connect(host=host)

    server.live.serve(OTHER)

    assert (await server.shown(host=host))[0] == OTHER.leaf
    assert server.live.bundle is OTHER
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    writer.close()


async def test_a_certificate_that_cannot_be_served_changes_nothing(server):
    with pytest.raises(CertificateError, match="cannot be served: KEY_VALUES_MISMATCH"):
        server.live.serve(Bundle(chain=SERVING.chain, key=OTHER.key))

    assert (await server.shown())[0] == SERVING.leaf
    assert server.live.bundle is SERVING


async def test_each_name_gets_its_certificate(server):
    own = Holder("own", ca=True, now=NOW, dns=("own.test", "*.wild.test", "Both.test")).bundle
    explicit = Holder("x", ca=True, now=NOW, dns=("not-asked.test",)).bundle
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    server.live.sni(
        [
            Named(bundle=own),
            Named(bundle=explicit, domains=("both.test", "*.api.test")),
            Named(bundle=SERVING, domains=("both.test",)),
        ]
    )
    server.live.serve(OTHER)

    served = {
        name: (await server.shown(client, host=name))[0]
        for name in (
            "own.test",
            "a.wild.test",
            "a.b.wild.test",
            "wild.test",
            "BOTH.test",
            "z.api.test",
            "not-asked.test",
            "",
        )
    }

    assert served == {
        "own.test": own.leaf,
        "a.wild.test": own.leaf,
        "a.b.wild.test": OTHER.leaf,
        "wild.test": OTHER.leaf,
        "BOTH.test": explicit.leaf,
        "z.api.test": explicit.leaf,
        "not-asked.test": OTHER.leaf,
        "": OTHER.leaf,
    }


async def test_nobody_is_asked_for_a_certificate_while_no_ca_is_known(server, tmp_path):
    stranger = Holder("stranger", now=NOW)

    await server.shown(trusting(stranger, tmp_path))

    assert server.peer is None


EXPIRED = Holder("expired", CLIENT_CA, now=NOW, until=-DAY / 2)


@pytest.mark.parametrize(
    ("holder", "others"),
    [
        pytest.param(Holder("user", CLIENT_CA, now=NOW), (), id="client-ca"),
        pytest.param(Holder("proxy", PROXY_CA, now=NOW), (), id="proxy-ca"),
        pytest.param(Holder("proxy", BETWEEN, now=NOW), (BETWEEN,), id="intermediate"),
        pytest.param(EXPIRED, (), id="expired"),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_what_a_client_shows_is_told(server, tmp_path, holder, others, version):
    server.live.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])

    await server.shown(trusting(holder, tmp_path, *others, maximum_version=version))

    assert server.peer is not None
    assert server.peer.chain == (holder.der, *(each.der for each in others))


async def test_a_client_need_not_show_one(server):
    server.live.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])

    await server.shown()

    assert server.peer is None


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param(Holder("stranger", ca=False, now=NOW), id="unknown-ca"),
        pytest.param(Holder("proxy", BETWEEN, now=NOW), id="without-its-intermediate"),
        pytest.param(
            Holder("server", CLIENT_CA, now=NOW, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
            id="for-servers",
        ),
    ],
)
async def test_a_client_that_cannot_be_trusted_is_not_let_in(server, tmp_path, holder):
    server.live.request_client_certs([b"", CLIENT_CA.pem, PROXY_CA.pem + CLIENT_CA.pem])

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.shown(trusting(holder, tmp_path))


async def test_a_ca_that_is_dropped_lets_nobody_in_even_by_a_session_from_before(server, tmp_path):
    user = Holder("user", CLIENT_CA, now=NOW)
    client = trusting(user, tmp_path)
    server.live.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])
    await server.shown(client)

    server.live.request_client_certs([PROXY_CA.pem])

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.shown(client)
    server.live.request_client_certs([])
    await server.shown(client)
    assert server.peer is None


async def test_what_was_asked_for_outlives_a_new_certificate(server, tmp_path):
    server.live.request_client_certs([CLIENT_CA.pem])
    before = server.live._chosen
    server.live.request_client_certs([CLIENT_CA.pem])

    assert server.live._chosen is before
    server.live.serve(OTHER)

    await server.shown(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))
    assert server.peer is not None


@pytest.mark.parametrize(
    "bundle",
    [
        b"hello",
        b"-----BEGIN CERTIFICATE-----\nxx\n",
        b"\xff",
        chains.UNKNOWN.pem,
        dataclasses.replace(
            chains.ROOTS["client"], subject=der.name((der.CN, der.UTF8, b"\xff"))
        ).pem,
    ],
    ids=["text", "no certificate", "bytes", "unknown version", "no UTF-8"],
)
async def test_a_ca_bundle_that_cannot_be_read_changes_nothing(server, tmp_path, bundle):
    server.live.request_client_certs([CLIENT_CA.pem])

    with pytest.raises(CertificateError, match="the CAs of clients"):
        server.live.request_client_certs([PROXY_CA.pem, bundle])

    await server.shown(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))
    assert server.peer is not None


async def test_what_is_remembered_of_a_connection_ends_with_it(server, tmp_path):
    server.live.request_client_certs([CLIENT_CA.pem])
    remembered = weakref.WeakKeyDictionary()

    await server.shown(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))
    remembered[server.peer.connection] = "user"
    server.peer = None
    for _ in range(10):
        await asyncio.sleep(0.01)
        gc.collect()

    assert not remembered


@pytest.mark.parametrize("transport", [None, asyncio.Transport()], ids=["gone", "in-the-clear"])
def test_without_tls_there_is_no_peer(transport):
    assert read_peer(transport) is None


def test_readiness_ends_with_the_certificate():
    now = NOW
    live = tls.ReloadingContext(SERVING, clock=lambda: now)

    assert live.check() == f"good until {SERVING.until}"
    now = SERVING.until
    with pytest.raises(RuntimeError, match="the serving certificate expired at "):
        live.check()


def test_the_expiry_of_what_is_served_is_shown():
    shown = []

    class Meter:
        def serving(self, until):
            shown.append(until)

    live = tls.ReloadingContext(SERVING, meter=Meter())
    live.serve(OTHER)

    assert shown == [SERVING.until.timestamp(), OTHER.until.timestamp()]


def test_given_files_are_read(tmp_path):
    (tmp_path / "tls.crt").write_bytes(SERVING.chain_pem)
    (tmp_path / "tls.key").write_bytes(SERVING.key_pem)

    loaded = tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")

    assert loaded.chain == SERVING.chain


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CertificateError, match=r"tls\.crt cannot be read: No such file"):
        tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_a_file_that_is_no_certificate_is_named(tmp_path):
    (tmp_path / "tls.crt").write_bytes(b"hello")
    (tmp_path / "tls.key").write_bytes(b"hello")

    with pytest.raises(CertificateError, match=r"tls\.crt and .*tls\.key: cannot read"):
        tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")
