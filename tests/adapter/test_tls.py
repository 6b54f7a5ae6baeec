from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import pytest

from adapter import tls
from certs.bundle import Bundle, CertificateError


@pytest.fixture
def bundle():
    return tls.issued("127.0.0.2", now=datetime.now(UTC), hosts=("adapter.test",))


async def handshake(context, host, bundle, **options):
    """The TLS version and the protocol that a client that trusts `bundle` ends up with."""
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    client = ssl.create_default_context(cadata=bundle.ca_pem.decode())
    client.set_alpn_protocols(["h2", "http/1.1"])
    for name, value in options.items():
        setattr(client, name, value)
    try:
        _, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.sockets[0].getsockname()[1],
            ssl=client,
            server_hostname=host,
        )
        found = writer.get_extra_info("ssl_object")
        writer.close()
        await writer.wait_closed()
        return found.version(), found.selected_alpn_protocol()
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "127.0.0.2", "adapter.test"])
async def test_our_own_certificate_is_good_for_this_machine(bundle, host):
    version, protocol = await handshake(tls.context(bundle), host, bundle)

    assert (version, protocol) == ("TLSv1.3", "http/1.1")


async def test_it_is_good_for_no_other(bundle):
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(tls.context(bundle), "elsewhere.test", bundle)


async def test_tls_1_2_is_the_least(bundle):
    context = tls.context(bundle)
    version, _ = await handshake(
        context, "localhost", bundle, maximum_version=ssl.TLSVersion.TLSv1_2
    )

    assert version == "TLSv1.2"
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_given_files_are_read(bundle, tmp_path):
    (tmp_path / "tls.crt").write_bytes(bundle.chain_pem)
    (tmp_path / "tls.key").write_bytes(bundle.key_pem)

    loaded = tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")

    assert loaded.chain == bundle.chain


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CertificateError, match=r"tls\.crt cannot be read: No such file"):
        tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_a_file_that_is_no_certificate_is_named(tmp_path):
    (tmp_path / "tls.crt").write_bytes(b"hello")
    (tmp_path / "tls.key").write_bytes(b"hello")

    with pytest.raises(CertificateError, match=r"tls\.crt and .*tls\.key: no certificate"):
        tls.load(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_a_pair_that_openssl_refuses_is_an_error_of_ours(bundle):
    other = tls.issued("127.0.0.1", now=datetime.now(UTC))

    with pytest.raises(CertificateError, match="cannot be served"):
        tls.context(Bundle(chain=bundle.chain, key=other.key))
