from __future__ import annotations

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import chain
from certs.bundle import CertificateError
from tests.certificates import DAY, NOW, Holder

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
