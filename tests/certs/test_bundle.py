from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from certs import issue
from certs.bundle import Bundle, CertificateError, Named, by_name
from tests import chains
from tests.certificates import Holder

NOW = datetime(2026, 11, 20, 20, 25, 37, tzinfo=UTC)


@pytest.fixture(scope="module")
def bundle():
    return issue.throw_away((), now=NOW)


def test_what_is_written_reads_back(bundle):
    again = Bundle.parse(bundle.chain_pem, bundle.key_pem)

    assert again.chain == bundle.chain
    assert again.key_pem == bundle.key_pem
    assert bundle.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_the_last_certificate_is_what_clients_trust(bundle):
    assert bundle.chain_pem.endswith(bundle.ca_pem)
    assert bundle.leaf is bundle.chain[0]


@pytest.mark.parametrize(
    "chain", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nxx\n", chains.UNKNOWN.pem]
)
def test_what_is_no_certificate_is_refused(bundle, chain):
    with pytest.raises(CertificateError, match="no certificate can be read"):
        Bundle.parse(chain, bundle.key_pem)


@pytest.mark.parametrize("key", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nxx\n"])
def test_what_is_no_key_is_refused(bundle, key):
    with pytest.raises(CertificateError, match="no private key can be read"):
        Bundle.parse(bundle.chain_pem, key)


def test_an_encrypted_key_is_refused(bundle):
    encrypted = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )

    with pytest.raises(CertificateError, match="encrypted"):
        Bundle.parse(bundle.chain_pem, encrypted)


def test_a_key_of_another_certificate_is_refused(bundle):
    other = issue.throw_away((), now=NOW)

    with pytest.raises(CertificateError, match=r"not that of the certificate of CN=localhost@"):
        Bundle.parse(bundle.chain_pem, other.key_pem)


def test_a_certificate_without_names_has_none():
    assert Holder("nobody").bundle.names == ()


def test_a_bundle_ends_with_its_own_certificate(bundle):
    assert bundle.until == bundle.leaf.not_valid_after_utc


def test_names_go_to_the_first_that_has_them_and_explicit_ones_before_all_others():
    one, two, three = (
        Holder(name, dns=("Shared.test", f"{name}.test")).bundle for name in ("one", "two", "three")
    )

    found = by_name(
        [
            Named(bundle=one),
            Named(bundle=two),
            Named(bundle=three, domains=("two.test", "x.test")),
            Named(bundle=one, domains=("x.test",)),
        ]
    )

    assert found == {"shared.test": one, "one.test": one, "two.test": three, "x.test": three}
