from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from certs import issue
from certs.bundle import Bundle, CertificateError, Named, by_name
from tests import chains
from tools.certificates import Holder

NOW = datetime(2026, 11, 20, 20, 25, 37, tzinfo=UTC)


@pytest.fixture(scope="module")
def bundle():
    return issue.issue_temporary((), now=NOW)


def test_a_bundle_in_pem_parses_to_itself(bundle):
    parsed = Bundle.parse(bundle.chain_pem, bundle.key_pem)

    assert parsed.chain == bundle.chain
    assert parsed.key_pem == bundle.key_pem
    assert bundle.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize(
    "chain", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nxx\n", chains.UNKNOWN.pem]
)
def test_an_invalid_certificate_is_rejected(bundle, chain):
    with pytest.raises(CertificateError, match="cannot read a certificate"):
        Bundle.parse(chain, bundle.key_pem)


@pytest.mark.parametrize("key", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nxx\n"])
def test_an_invalid_key_is_rejected(bundle, key):
    with pytest.raises(CertificateError, match="cannot read a private key"):
        Bundle.parse(bundle.chain_pem, key)


def test_an_encrypted_key_is_rejected(bundle):
    encrypted = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )

    with pytest.raises(CertificateError, match="encrypted"):
        Bundle.parse(bundle.chain_pem, encrypted)


def test_a_key_of_another_certificate_is_rejected(bundle):
    other = issue.issue_temporary((), now=NOW)

    with pytest.raises(CertificateError, match=r"does not match the certificate of CN=localhost@"):
        Bundle.parse(bundle.chain_pem, other.key_pem)


def test_a_certificate_without_alternative_names_has_no_names():
    assert Holder("nobody").bundle.names == ()


def test_explicit_names_win_and_then_the_first_bundle():
    one, two, three = (
        Holder(name, dns=("Shared.test", f"{name}.test")).bundle for name in ("one", "two", "three")
    )

    bundles = by_name(
        [
            Named(bundle=one),
            Named(bundle=two),
            Named(bundle=three, domains=("two.test", "x.test")),
            Named(bundle=one, domains=("x.test",)),
        ]
    )

    assert bundles == {"shared.test": one, "one.test": one, "two.test": three, "x.test": three}
