from __future__ import annotations

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from adapter import errors
from adapter.server.auth.peer import certificate_user, common_name
from adapter.server.auth.user import User
from tools.certificates import DAY, NOW

CN, O, UID = (  # noqa: E741 - the usual abbreviations
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    x509.ObjectIdentifier("1.3.6.1.4.1.57683.2"),
)
KEY = ec.generate_private_key(ec.SECP256R1())


def issue(*attributes):
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


def replace_bytes(certificate, old, new):
    """Return the certificate with other bytes; its signature is not verified here."""
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
        (
            [(CN, "jane"), (O, "system:masters"), (O, "system:masters")],
            "jane",
            ("system:masters",) * 2,
            "",
        ),
    ],
)
def test_the_subject_determines_the_user(attributes, name, groups, uid):
    certificate = issue(*attributes)

    user = certificate_user(certificate)

    digest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    assert user == User(
        name=name,
        groups=(*groups, "system:authenticated"),
        uid=uid,
        extra={"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)},
    )
    assert common_name(certificate) == name


def test_a_common_name_longer_than_x509_allows_is_accepted_without_a_warning():
    with pytest.warns(UserWarning, match="length"):
        certificate = issue((CN, "system:serviceaccount:" + "n" * 200))

    user = certificate_user(replace_bytes(certificate, b"", b""))

    assert len(user.name) == 222


def test_without_a_common_name_there_is_no_user():
    certificate = issue((O, "system:masters"))

    assert certificate_user(certificate) is None
    assert common_name(certificate) == ""


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (
            issue((CN, "jane"), (UID, "a"), (UID, "b")),
            "UID of the client certificate is not a single string",
        ),
        (
            replace_bytes(issue((CN, "jane"), (UID, "uuuu")), b"\x0c\x04uuuu", b"\x03\x04\x00uuu"),
            "cannot be decoded|not a single string",
        ),
        (
            replace_bytes(issue((CN, "jane")), b"jane", b"ja\xffe"),
            "subject of the client certificate cannot be decoded",
        ),
    ],
    ids=["two UIDs", "a UID of bits", "not UTF-8"],
)
def test_a_malformed_subject_is_rejected(certificate, problem):
    with pytest.raises(errors.Unauthenticated, match=problem):
        certificate_user(certificate)
