from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import gc
import ssl
import tempfile
import weakref

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.server.auth.peer import read_chain
from adapter.server.tls import context
from adapter.settings.ciphers import TLSOptions
from certs import issue
from certs.bundle import Bundle, CertificateError, Named
from rules.findings import degraded
from tests import chains, der
from tools.certificates import DAY, Holder
from tools.waiting import until

NOW = dt.datetime.now(dt.UTC)
SERVING, OTHER = (issue.issue_temporary(("127.0.0.2", "adapter.test"), now=NOW) for _ in range(2))
CLIENT_CA = Holder("client-ca", ca=True, now=NOW)
PROXY_CA = Holder("proxy-ca", ca=True, now=NOW)
BETWEEN = Holder("between", PROXY_CA, ca=True, now=NOW)
TRUSTED = (SERVING.ca_pem + OTHER.ca_pem).decode()


class Server:
    """Echo server that says `hello` first and records the peer of its last connection."""

    def __init__(self, tls):
        self.tls = tls
        self.chain = None
        self.connections = weakref.WeakSet()

    @contextlib.asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self.tls.context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _talk(self, reader, writer):
        self.chain = read_chain(writer.transport)
        self.connections.add(writer.transport.get_extra_info("ssl_object"))
        writer.write(b"hello")
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    async def connect(self, client=None, *, host="localhost"):
        """Connect and read the greeting. Raises ssl.SSLError or ConnectionError."""
        client_context = client or trusting()
        if not host:
            client_context.check_hostname = False
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=client_context, server_hostname=host
        )
        try:
            await reader.readexactly(5)
        except asyncio.IncompleteReadError as error:
            writer.close()
            raise ConnectionResetError("the server closed the connection") from error
        return reader, writer

    async def handshake(self, client=None, *, host="localhost"):
        """Return the server's certificate, the TLS version and the ALPN protocol."""
        _, writer = await self.connect(client, host=host)
        connection = writer.get_extra_info("ssl_object")
        certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True))
        writer.close()
        await writer.wait_closed()
        return certificate, connection.version(), connection.selected_alpn_protocol()


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
    async with Server(context.ReloadingContext(SERVING)).listening() as listening:
        yield listening


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "127.0.0.2", "adapter.test"])
async def test_throwaway_certificate_is_valid_for_this_machine(server, host):
    _, version, protocol = await server.handshake(host=host)

    assert (version, protocol) == ("TLSv1.3", "http/1.1")


async def test_throwaway_certificate_is_not_valid_for_other_hosts(server):
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.handshake(host="elsewhere.test")


async def test_tls_1_2_is_the_minimum(server):
    _, version, protocol = await server.handshake(trusting(maximum_version=ssl.TLSVersion.TLSv1_2))

    assert (version, protocol) == ("TLSv1.2", "http/1.1")
    assert server.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_options_apply_after_every_change():
    options = TLSOptions(ciphers="ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
    tls = context.ReloadingContext(SERVING, options=options)
    tls.serve(OTHER)
    tls.request_client_certs([CLIENT_CA.pem])
    refused, agreed = (trusting(maximum_version=ssl.TLSVersion.TLSv1_2) for _ in range(2))
    refused.set_ciphers("ECDHE+CHACHA20")
    agreed.set_ciphers("ECDHE+AES256:ECDHE+CHACHA20")

    async with Server(tls).listening() as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.handshake(refused)
        _, writer = await server.connect(agreed)
    assert writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    writer.close()


async def test_minimum_of_1_3_refuses_tls_1_2():
    tls = context.ReloadingContext(SERVING, options=TLSOptions(minimum=ssl.TLSVersion.TLSv1_3))

    async with Server(tls).listening() as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.handshake(trusting(maximum_version=ssl.TLSVersion.TLSv1_2))


@pytest.mark.parametrize("host", ["localhost", ""], ids=["sni", "no-sni"])
async def test_new_certificate_is_served_at_once_and_open_connections_continue(server, host):
    reader, writer = await server.connect(host=host)

    server.tls.serve(OTHER)

    assert (await server.handshake(host=host))[0] == OTHER.leaf
    assert server.tls.bundle is OTHER
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    writer.close()


async def test_certificate_that_openssl_refuses_changes_nothing(server):
    with pytest.raises(CertificateError, match="cannot be served: KEY_VALUES_MISMATCH"):
        server.tls.serve(Bundle(chain=SERVING.chain, key=OTHER.key))

    assert (await server.handshake())[0] == SERVING.leaf
    assert server.tls.bundle is SERVING


async def test_files_that_cannot_be_written_change_nothing(server, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(CertificateError, match=r"cannot be served: .*No such file"):
        server.tls.serve(OTHER)

    assert server.tls.bundle is SERVING


async def test_sni_selects_the_certificate(server):
    own = Holder("own", ca=True, now=NOW, dns=("own.test", "*.wild.test", "Both.test")).bundle
    explicit = Holder("x", ca=True, now=NOW, dns=("own-name.test",)).bundle
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    server.tls.serve_sni(
        [
            Named(bundle=own),
            Named(bundle=explicit, domains=("both.test", "*.api.test")),
            Named(bundle=SERVING, domains=("both.test",)),
        ]
    )
    server.tls.serve(OTHER)

    served = {
        name: (await server.handshake(client, host=name))[0]
        for name in (
            "own.test",
            "a.wild.test",
            "a.b.wild.test",
            "wild.test",
            "BOTH.test",
            "z.api.test",
            "own-name.test",
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
        "own-name.test": OTHER.leaf,
        "": OTHER.leaf,
    }


async def test_client_certificates_are_not_requested_without_cas(server, tmp_path):
    stranger = Holder("stranger", now=NOW)

    await server.handshake(trusting(stranger, tmp_path))

    assert server.chain == ()


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
async def test_client_chain_is_available(server, tmp_path, holder, others, version):
    server.tls.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])

    await server.handshake(trusting(holder, tmp_path, *others, maximum_version=version))

    assert server.chain == (holder.der, *(each.der for each in others))


async def test_client_certificate_is_optional(server):
    server.tls.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])

    await server.handshake()

    assert server.chain == ()


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
async def test_untrusted_client_certificate_fails_the_handshake(server, tmp_path, holder):
    server.tls.request_client_certs([b"", CLIENT_CA.pem, PROXY_CA.pem + CLIENT_CA.pem])

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.handshake(trusting(holder, tmp_path))


async def test_removed_ca_is_not_accepted_even_by_resumption(server, tmp_path):
    user = Holder("user", CLIENT_CA, now=NOW)
    client = trusting(user, tmp_path)
    server.tls.request_client_certs([CLIENT_CA.pem, PROXY_CA.pem])
    await server.handshake(client)

    server.tls.request_client_certs([PROXY_CA.pem])

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await server.handshake(client)
    server.tls.request_client_certs([])
    await server.handshake(client)
    assert server.chain == ()


async def test_client_cas_outlive_a_new_certificate(server, tmp_path):
    server.tls.request_client_certs([CLIENT_CA.pem])
    before = server.tls._contexts
    server.tls.request_client_certs([CLIENT_CA.pem])

    assert server.tls._contexts is before
    server.tls.serve(OTHER)

    await server.handshake(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))
    assert server.chain


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
async def test_unreadable_ca_bundle_changes_nothing(server, tmp_path, bundle):
    server.tls.request_client_certs([CLIENT_CA.pem])

    with pytest.raises(CertificateError, match="client CAs"):
        server.tls.request_client_certs([PROXY_CA.pem, bundle])

    await server.handshake(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))
    assert server.chain


@pytest.mark.slow
async def test_connection_is_garbage_collected_after_it_is_closed(server, tmp_path):
    server.tls.request_client_certs([CLIENT_CA.pem])

    await server.handshake(trusting(Holder("user", CLIENT_CA, now=NOW), tmp_path))

    assert server.chain
    await until(lambda: gc.collect() >= 0 and not server.connections)


@pytest.mark.parametrize("transport", [None, asyncio.Transport()], ids=["closed", "no-tls"])
def test_without_tls_there_is_no_peer(transport):
    assert read_chain(transport) == ()


def test_an_expired_certificate_leaves_the_pod_ready():
    now = NOW
    tls = context.ReloadingContext(SERVING, clock=lambda: now)

    assert tls.check().fact == f"valid until {SERVING.until}"
    now = SERVING.until
    assert tls.check() == degraded(f"the serving certificate expired at {SERVING.until}")


def test_meter_gets_the_expiry_of_the_certificate():
    registry = CollectorRegistry()
    name = "gpu_metrics_adapter_serving_certificate_expiry_timestamp_seconds"

    tls = context.ReloadingContext(SERVING, meter=telemetry.CertificateMetrics(registry))
    assert registry.get_sample_value(name) == SERVING.until.timestamp()
    tls.serve(OTHER)
    assert registry.get_sample_value(name) == OTHER.until.timestamp()
