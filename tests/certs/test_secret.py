from __future__ import annotations

import base64
import datetime as dt

import pytest

from certs import issue, renew, secret
from certs.bundle import CertificateError
from certs.renew import CertificatePolicy
from tests import chains
from tools.certificates import DAY, NOW, Holder

POLICY = CertificatePolicy(name="adapter", hosts=("adapter.ns.svc",), propagation=dt.timedelta(0))


def rotated():
    """A state with two retired CAs, a present one and a next one."""
    state = renew.create(POLICY, now=NOW)
    for _ in range(2):
        state = renew.announce(state, POLICY, now=NOW)
        state = renew.reconcile(state, POLICY, now=NOW, known=lambda _: True, jitter=1.0)
    return renew.announce(state, POLICY, now=NOW)


ROTATED = rotated()
NEW = renew.create(POLICY, now=NOW)


def encoded(**data):
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


@pytest.mark.parametrize("state", [NEW, ROTATED], ids=["new", "in-rotation"])
def test_a_state_is_read_back(state):
    read = secret.read(secret.document(state, name="x", namespace="ns"))

    assert read.trusted == state.trusted
    assert read.serving.chain == state.serving.chain
    assert read.serving.key_pem == state.serving.key_pem
    assert read.authority.key_pem == state.authority.key_pem
    assert read.retired == state.retired
    assert read.ca_bundle == state.ca_bundle


def test_the_secret_fits_one_of_any_type():
    document = secret.document(NEW, name="x", namespace="ns")

    assert "type" not in document
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == ("x", "ns")
    assert set(document["data"]) == {"tls.crt", "tls.key", "ca.crt", "ca.key"}
    assert len(ROTATED.trusted) == 4


@pytest.mark.parametrize("kind", ["Opaque", "kubernetes.io/tls"])
def test_the_type_may_be_that_of_the_manifests_or_of_an_earlier_version(kind):
    document = secret.document(NEW, name="x", namespace="ns") | {"type": kind}

    assert secret.read(document).trusted == NEW.trusted
    assert secret.updated(document, ROTATED)["type"] == kind


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {"tls.crt": "aGk="}}])
def test_a_secret_of_another_type_is_rejected(data):
    document = {"type": "kubernetes.io/service-account-token"} | data

    with pytest.raises(CertificateError, match="service-account-token is not Opaque"):
        secret.read(document)


def test_other_data_and_metadata_of_a_secret_stay():
    before = secret.document(ROTATED, name="x", namespace="ns")
    before["metadata"]["resourceVersion"] = "7"
    before["data"]["note"] = "aGk="

    after = secret.updated(before, NEW)

    assert after["metadata"] == before["metadata"]
    assert set(after["data"]) == {"tls.crt", "tls.key", "ca.crt", "ca.key", "note"}
    assert secret.read(after).trusted == NEW.trusted


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"data": None},
        {"data": {}},
        {"data": {"note": "aGk=", "ca.crt": ""}},
        {"data": {"tls.crt": "", "tls.key": ""}},
    ],
)
def test_a_secret_without_certificates_has_no_state(document):
    assert secret.read(document) is None


WHOLE = secret.document(ROTATED, name="x", namespace="ns")["data"]
OTHER = secret.document(NEW, name="x", namespace="ns")["data"]
NO_CA = Holder("no-ca", ca=False)
PLAIN = Holder("plain")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tls.crt": "%"}, "data is not base64"),
        ({"tls.crt": 7}, "data is not base64"),
        ({"ca.crt": ""}, "ca.crt and ca.key: cannot read a certificate"),
        ({"ca.key": OTHER["ca.key"]}, "ca.crt and ca.key: the private key does not match"),
        ({"tls.key": ""}, "tls.crt and tls.key: cannot read a private key"),
        (
            {key: OTHER[key] for key in ("tls.crt", "tls.key")},
            "tls.crt and tls.key: the certificate is not issued by ca.crt",
        ),
        ({"next-ca.key": ""}, "next-ca.crt and next-ca.key: cannot read a private key"),
        ({"previous.crt": "aGk="}, "previous.crt: cannot read pairs of certificates"),
        ({"previous.crt": OTHER["ca.crt"]}, "previous.crt: cannot read pairs of certificates"),
        (
            encoded(**{"previous.crt": chains.UNKNOWN.pem}),
            "previous.crt: cannot read pairs of certificates",
        ),
        (
            encoded(**{"ca.crt": NO_CA.pem, "ca.key": NO_CA.bundle.key_pem}),
            "ca.crt and ca.key: CN=no-ca is not a CA",
        ),
        (
            encoded(**{"ca.crt": PLAIN.pem, "ca.key": PLAIN.bundle.key_pem}),
            "ca.crt and ca.key: CN=plain is not a CA",
        ),
    ],
)
def test_invalid_or_inconsistent_data_is_rejected(change, message):
    with pytest.raises(CertificateError, match=f"^{message}"):
        secret.read({"data": {**WHOLE, **change}})


def test_a_ca_with_an_rsa_key_is_rejected():
    from cryptography.hazmat.primitives.asymmetric import rsa

    holder = Holder("rsa", ca=True, key=rsa.generate_private_key(65537, 2048))

    with pytest.raises(CertificateError, match="the key of CN=rsa is not an ECDSA key"):
        issue.Authority.parse(holder.pem, holder.bundle.key_pem)


def test_a_certificate_expires_with_its_ca_at_the_latest():
    authority = issue.Authority.create("x", now=NOW, valid=DAY)

    bundle = authority.issue(("a.test",), name="x", now=NOW, valid=2 * DAY)

    assert bundle.until == NOW + DAY


def test_a_long_name_is_truncated_to_64_characters():
    authority = issue.Authority.create("x" * 100, now=NOW, valid=DAY)

    bundle = authority.issue((), name="y" * 100, now=NOW, valid=DAY)

    assert [len(each.subject.rfc4514_string()) for each in bundle.chain] == [67, 67]
