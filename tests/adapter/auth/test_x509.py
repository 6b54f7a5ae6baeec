from __future__ import annotations

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from adapter import errors
from adapter.auth import x509 as certificates
from adapter.auth.user import User
from tests.certificates import DAY, NOW

CN, O, UID = (  # noqa: E741 - the names of the field
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    x509.ObjectIdentifier("1.3.6.1.4.1.57683.2"),
)
KEY = ec.generate_private_key(ec.SECP256R1())


def issued(*attributes):
    subject = x509.Name(
        [x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .sign(KEY, hashes.SHA256())
    )


def with_bytes(certificate, old, new):
    """The certificate with other bytes in it; nobody looks at its signature here."""
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert old in der
    return x509.load_der_x509_certificate(der.replace(old, new))


@pytest.mark.parametrize(
    ("attributes", "name", "groups", "uid"),
    [
        ([(CN, "jane")], "jane", (), ""),
        ([(O, "b"), (CN, "jane"), (O, "a")], "jane", ("b", "a"), ""),
        ([(CN, "jane"), (CN, "ophelia")], "ophelia", (), ""),
        ([(CN, "jane"), (UID, "u-1")], "jane", (), "u-1"),
        ([(CN, "jane"), (O, "system:masters"), (O, "system:masters")], "jane", None, ""),
    ],
)
def test_a_user_is_read_from_the_subject(attributes, name, groups, uid):
    certificate = issued(*attributes)

    user = certificates.user(certificate)

    if groups is None:
        groups = ("system:masters", "system:masters")
    digest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    assert user == User(
        name=name,
        groups=(*groups, "system:authenticated"),
        uid=uid,
        extra={"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)},
    )
    assert certificates.common_name(certificate) == name


def test_a_name_may_be_longer_than_the_standard_allows():
    with pytest.warns(UserWarning, match="length"):
        certificate = issued((CN, "system:serviceaccount:" + "n" * 200))

    user = certificates.user(with_bytes(certificate, b"", b""))

    assert len(user.name) == 222


def test_nobody_has_no_common_name():
    certificate = issued((O, "system:masters"))

    assert certificates.user(certificate) is None
    assert certificates.common_name(certificate) == ""


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (issued((CN, "jane"), (UID, "a"), (UID, "b")), "UID is not one text"),
        (
            with_bytes(issued((CN, "jane"), (UID, "uuuu")), b"\x0c\x04uuuu", b"\x03\x04\x00uuu"),
            "no readable subject|UID is not one text",
        ),
        (
            with_bytes(issued((CN, "jane")), b"jane", b"ja\xffe"),
            "no readable subject",
        ),
    ],
    ids=["two UIDs", "a UID of bits", "no UTF-8"],
)
def test_a_subject_that_cannot_be_read_is_nobody(certificate, problem):
    with pytest.raises(errors.Unauthenticated, match=problem):
        certificates.user(certificate)
