from __future__ import annotations

import base64
import datetime as dt

import pytest

from certs import issue, renew, secret
from certs.bundle import CertificateError
from certs.renew import Policy
from tests import chains
from tests.certificates import DAY, NOW, Holder

POLICY = Policy(name="adapter", hosts=("adapter.ns.svc",), settle=dt.timedelta(0))


def rotated():
    """A state of three authorities, of which each was announced and the last issued."""
    state = renew.create(POLICY, now=NOW)
    for _ in range(2):
        state = renew.announce(state, POLICY, now=NOW)
        state = renew.reconcile(state, POLICY, now=NOW, known=lambda _: True, jitter=1.0)
    return renew.announce(state, POLICY, now=NOW)


ROTATED = rotated()
BEGUN = renew.create(POLICY, now=NOW)


def encoded(**data):
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


@pytest.mark.parametrize("state", [BEGUN, ROTATED], ids=["new", "in-rotation"])
def test_what_is_written_reads_back(state):
    found = secret.read(secret.document(state, name="x", namespace="ns"))

    assert found.trusted == state.trusted
    assert found.serving.chain == state.serving.chain
    assert found.serving.key_pem == state.serving.key_pem
    assert found.authority.key_pem == state.authority.key_pem
    assert found.former == state.former
    assert found.ca_bundle == state.ca_bundle


def test_it_is_a_secret_for_tls():
    document = secret.document(BEGUN, name="x", namespace="ns")

    assert document["type"] == "kubernetes.io/tls"
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == ("x", "ns")
    assert set(document["data"]) == {"tls.crt", "tls.key", "ca.crt", "ca.key"}
    assert len(ROTATED.trusted) == 4


def test_what_else_a_secret_holds_stays():
    before = secret.document(ROTATED, name="x", namespace="ns")
    before["metadata"]["resourceVersion"] = "7"
    before["data"]["note"] = "aGk="

    after = secret.replaced(before, BEGUN)

    assert after["metadata"] == before["metadata"]
    assert set(after["data"]) == {"tls.crt", "tls.key", "ca.crt", "ca.key", "note"}
    assert secret.read(after).trusted == BEGUN.trusted


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
def test_an_empty_one_holds_nothing(document):
    assert secret.read(document) is None


WHOLE = secret.document(ROTATED, name="x", namespace="ns")["data"]
OTHER = secret.document(BEGUN, name="x", namespace="ns")["data"]
NO_CA = Holder("no-ca", ca=False)
PLAIN = Holder("plain")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tls.crt": "%"}, "its data is not base64"),
        ({"tls.crt": 7}, "its data is not base64"),
        ({"ca.crt": ""}, "ca.crt and ca.key: no certificate can be read"),
        ({"ca.key": OTHER["ca.key"]}, "ca.crt and ca.key: the key is not that of"),
        ({"tls.key": ""}, "tls.crt and tls.key: no private key can be read"),
        (
            {key: OTHER[key] for key in ("tls.crt", "tls.key")},
            "tls.crt and tls.key: not issued by ca.crt",
        ),
        ({"next-ca.key": ""}, "next-ca.crt and next-ca.key: no private key"),
        ({"previous.crt": "aGk="}, "previous.crt: no pairs of certificates"),
        ({"previous.crt": OTHER["ca.crt"]}, "previous.crt: no pairs of certificates"),
        (encoded(**{"previous.crt": chains.UNKNOWN.pem}), "previous.crt: no pairs of certificates"),
        (
            encoded(**{"ca.crt": NO_CA.pem, "ca.key": NO_CA.bundle.key_pem}),
            "ca.crt and ca.key: CN=no-ca is no CA",
        ),
        (
            encoded(**{"ca.crt": PLAIN.pem, "ca.key": PLAIN.bundle.key_pem}),
            "ca.crt and ca.key: CN=plain is no CA",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(CertificateError, match=f"^{message}"):
        secret.read({"data": {**WHOLE, **change}})


def test_an_authority_with_another_kind_of_key_is_refused():
    from cryptography.hazmat.primitives.asymmetric import rsa

    holder = Holder("rsa", ca=True, key=rsa.generate_private_key(65537, 2048))

    with pytest.raises(CertificateError, match="the key of CN=rsa is not for ECDSA"):
        issue.Authority.parse(holder.pem, holder.bundle.key_pem)


def test_an_authority_issues_nothing_that_outlives_it():
    authority = issue.Authority.create("x", now=NOW, valid=DAY)

    bundle = authority.issue(("a.test",), name="x", now=NOW, valid=2 * DAY)

    assert bundle.until == NOW + DAY


def test_a_long_name_is_cut_to_what_a_subject_may_have():
    bundle = issue.Authority.create("x" * 100, now=NOW).issue((), name="y" * 100, now=NOW)

    assert [len(each.subject.rfc4514_string()) for each in bundle.chain] == [67, 67]
