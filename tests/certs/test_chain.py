from __future__ import annotations

import dataclasses

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import chain
from certs.bundle import CertificateError
from tests import chains, der
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


def through(leaf=None, between=None):
    """A chain of two below the CA of `chains`, each changed as it is said."""
    mid = chains.Made(
        subject=chains.BETWEEN,
        issuer=chains.CLIENT_CA,
        key=chains.FIRST_KEY,
        signer=chains.CLIENT_KEY,
        ca=True,
    )
    own = chains.Made(
        subject=chains.named("jane"),
        issuer=chains.BETWEEN,
        key=chains.OWN_KEY,
        signer=chains.FIRST_KEY,
    )
    changed = dataclasses.replace(own, **(leaf or {})), dataclasses.replace(mid, **(between or {}))
    return tuple(each.der for each in changed)


def constrained(tag, content):
    return {"more": ((der.NAME_CONSTRAINTS, True, chains.constraint(tag, content)),)}


JUDGE = chain.Authorities(chains.ROOTS["client"].pem)
GPU = der.name((der.O, der.UTF8, b"gpu"))
STRANGE = (der.ALTERNATIVE_NAMES, True, der.sequence(der.tlv(0xA3, b"x400")))


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(through(), id="plain"),
        pytest.param(through(between={"usage": 0x04}), id="key-for-signing"),
        pytest.param(through(between={"purposes": [chains.CLIENT_AUTH]}), id="ca-for-clients"),
        pytest.param(through(between=constrained(0x82, b"example.com")), id="ca-of-a-domain"),
        pytest.param(through({"serial": 0}), id="serial-zero"),
    ],
)
def test_what_limits_or_graces_nobody_here_is_no_obstacle(shown):
    JUDGE.verify(shown, now=chains.NOW)


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(through(between={"usage": 0x80}), id="key-not-for-signing"),
        pytest.param(through(between={"purposes": [chains.SERVER_AUTH]}), id="ca-for-servers"),
        pytest.param(through(between=constrained(0xA4, GPU)), id="ca-of-a-directory"),
        pytest.param(through({"version": 1}), id="version-2"),
        pytest.param((*through(), through({"version": 3})[0]), id="version-4-beside"),
        pytest.param(through({"more": (STRANGE,)}), id="x400-address"),
    ],
)
def test_what_is_forbidden_or_unreadable_is_not_trusted(shown):
    with pytest.raises(CertificateError, match="not trusted"):
        JUDGE.verify(shown, now=chains.NOW)


def test_a_bundle_with_a_certificate_of_no_known_version_is_refused():
    with pytest.raises(CertificateError, match="no bundle of CA certificates"):
        chain.Authorities(chains.ROOTS["proxy"].pem + chains.UNKNOWN.pem)
