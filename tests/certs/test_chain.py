from __future__ import annotations

import datetime as dt
import itertools

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import chain
from certs.bundle import CertificateError

NOW = dt.datetime(2026, 11, 20, 20, 25, 37, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
_SERIAL = itertools.count(1)


class Holder:
    """A certificate and its key, issued by another holder or by itself."""

    def __init__(self, name, issuer=None, *, ca=None, usages=(), until=DAY, keys=True):
        self.key = ec.generate_private_key(ec.SECP256R1())
        issuer = issuer or self
        self.name = _name(name)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(issuer.name)
            .public_key(self.key.public_key())
            .serial_number(next(_SERIAL))
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + until)
        )
        if ca is not None:
            builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        if keys:
            point = issuer.key.public_key()
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(point), False
            ).add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
        self.certificate = builder.sign(issuer.key, hashes.SHA256())

    @property
    def der(self):
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def _name(common):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


CA = Holder("ca", ca=True, until=10 * DAY)
TWIN = Holder("ca", ca=True, until=10 * DAY)
BETWEEN = Holder("between", CA, ca=True, until=5 * DAY)
NO_CA = Holder("no-ca", CA, ca=False)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
ANY = (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)


@pytest.mark.parametrize(
    ("shown", "until"),
    [
        pytest.param([Holder("proxy", CA)], DAY, id="no-usages"),
        pytest.param([Holder("proxy", CA, ca=False, usages=CLIENT)], DAY, id="for-clients"),
        pytest.param([Holder("proxy", CA, usages=SERVER + CLIENT)], DAY, id="for-both"),
        pytest.param([Holder("proxy", CA, usages=ANY)], DAY, id="for-anything"),
        pytest.param([Holder("proxy", CA, keys=False)], DAY, id="no-key-identifiers"),
        pytest.param([Holder("proxy", BETWEEN), BETWEEN], DAY, id="intermediate"),
        pytest.param(
            [Holder("proxy", BETWEEN, until=9 * DAY), CA, BETWEEN], 5 * DAY, id="any-order"
        ),
    ],
)
@pytest.mark.parametrize("bundle", [CA.pem, TWIN.pem + CA.pem], ids=["ca", "ca-and-its-twin"])
def test_whom_an_authority_issued_is_trusted_until_the_first_expires(bundle, shown, until):
    verified = chain.Authorities(bundle).verify([each.der for each in shown], now=NOW)

    assert verified.leaf == shown[0].certificate
    assert verified.until == NOW + until


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param([Holder("proxy", TWIN)], id="another-ca-of-that-name"),
        pytest.param([Holder("proxy", TWIN), TWIN], id="and-it-brings-that-ca"),
        pytest.param([Holder("proxy", ca=False)], id="self-signed"),
        pytest.param([Holder("proxy", CA, usages=SERVER)], id="for-servers"),
        pytest.param([Holder("proxy", CA, until=-DAY / 2)], id="expired"),
        pytest.param([Holder("proxy", BETWEEN)], id="without-its-intermediate"),
        pytest.param([Holder("proxy", NO_CA), NO_CA], id="issued-by-no-authority"),
    ],
)
def test_all_others_are_not(shown):
    with pytest.raises(CertificateError, match="the client's certificate is not trusted"):
        chain.Authorities(CA.pem).verify([each.der for each in shown], now=NOW)


@pytest.mark.parametrize("shown", [[], [b"hello"]], ids=["nothing", "no-certificate"])
def test_what_is_no_chain_is_not(shown):
    with pytest.raises(CertificateError, match="not trusted"):
        chain.Authorities(CA.pem).verify(shown, now=NOW)


@pytest.mark.parametrize("pem", [b"", b"hello"], ids=["nothing", "no-certificate"])
def test_a_bundle_without_certificates_is_refused(pem):
    with pytest.raises(CertificateError, match="no bundle of CA certificates"):
        chain.Authorities(pem)
