from __future__ import annotations

import dataclasses

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import chain
from certs.bundle import CertificateError
from tests import chains, der
from tools.certificates import DAY, NOW, Holder

CA = Holder("ca", ca=True, until=10 * DAY)
TWIN = Holder("ca", ca=True, until=10 * DAY)
BETWEEN = Holder("between", CA, ca=True, until=5 * DAY)
NO_CA = Holder("no-ca", CA, ca=False)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
ANY = (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)


@pytest.mark.parametrize(
    ("presented", "until"),
    [
        pytest.param([Holder("proxy", CA)], DAY, id="no-key-usages"),
        pytest.param([Holder("proxy", CA, ca=False, usages=CLIENT)], DAY, id="client-auth"),
        pytest.param(
            [Holder("proxy", CA, usages=SERVER + CLIENT)], DAY, id="server-and-client-auth"
        ),
        pytest.param([Holder("proxy", CA, usages=ANY)], DAY, id="any-usage"),
        pytest.param([Holder("proxy", CA, keys=False)], DAY, id="no-key-identifiers"),
        pytest.param([Holder("proxy", BETWEEN), BETWEEN], DAY, id="intermediate"),
        pytest.param(
            [Holder("proxy", BETWEEN, until=9 * DAY), CA, BETWEEN], 5 * DAY, id="any-order"
        ),
    ],
)
@pytest.mark.parametrize("bundle", [CA.pem, TWIN.pem + CA.pem], ids=["ca", "two-cas-of-one-name"])
def test_a_chain_is_trusted_until_its_first_certificate_expires(bundle, presented, until):
    verified = chain.ClientCAs(bundle).verify([each.der for each in presented], now=NOW)

    assert verified.leaf == presented[0].certificate
    assert verified.until == NOW + until


@pytest.mark.parametrize(
    "presented",
    [
        pytest.param([Holder("proxy", TWIN)], id="another-ca-of-that-name"),
        pytest.param([Holder("proxy", TWIN), TWIN], id="chain-with-the-other-ca"),
        pytest.param([Holder("proxy", ca=False)], id="self-signed"),
        pytest.param([Holder("proxy", CA, usages=SERVER)], id="server-auth"),
        pytest.param([Holder("proxy", CA, until=-DAY / 2)], id="expired"),
        pytest.param([Holder("proxy", BETWEEN)], id="without-its-intermediate"),
        pytest.param([Holder("proxy", NO_CA), NO_CA], id="issued-by-a-leaf"),
    ],
)
def test_other_chains_are_not_trusted(presented):
    with pytest.raises(CertificateError, match="client certificate is not trusted"):
        chain.ClientCAs(CA.pem).verify([each.der for each in presented], now=NOW)


@pytest.mark.parametrize("der_chain", [[], [b"hello"]], ids=["empty", "not-der"])
def test_an_invalid_chain_is_not_trusted(der_chain):
    with pytest.raises(CertificateError, match="not trusted"):
        chain.ClientCAs(CA.pem).verify(der_chain, now=NOW)


@pytest.mark.parametrize("pem", [b"", b"hello"], ids=["empty", "not-pem"])
def test_a_bundle_without_certificates_is_rejected(pem):
    with pytest.raises(CertificateError, match="cannot read a CA bundle"):
        chain.ClientCAs(pem)


def through(leaf=None, between=None):
    """A leaf and an intermediate below the client CA of `chains`, each with changes."""
    intermediate = chains.Certificate(
        subject=chains.BETWEEN,
        issuer=chains.CLIENT_CA,
        key=chains.FIRST_KEY,
        signer=chains.CLIENT_KEY,
        ca=True,
    )
    end_entity = chains.Certificate(
        subject=chains.named("jane"),
        issuer=chains.BETWEEN,
        key=chains.OWN_KEY,
        signer=chains.FIRST_KEY,
    )
    return (
        dataclasses.replace(end_entity, **(leaf or {})).der,
        dataclasses.replace(intermediate, **(between or {})).der,
    )


def constrained(tag, content):
    return {"more": ((der.NAME_CONSTRAINTS, True, chains.constraint(tag, content)),)}


CLIENT_CAS = chain.ClientCAs(chains.ROOTS["client"].pem)
GPU = der.name((der.O, der.UTF8, b"gpu"))
X400_ADDRESS = (der.ALTERNATIVE_NAMES, True, der.sequence(der.tlv(0xA3, b"x400")))


@pytest.mark.parametrize(
    "der_chain",
    [
        pytest.param(through(), id="plain"),
        pytest.param(through(between={"usage": 0x04}), id="key-cert-sign"),
        pytest.param(through(between={"purposes": [chains.CLIENT_AUTH]}), id="ca-with-client-auth"),
        pytest.param(
            through(between=constrained(0x82, b"example.com")), id="ca-with-a-dns-constraint"
        ),
        pytest.param(through({"serial": 0}), id="serial-zero"),
    ],
)
def test_restrictions_that_do_not_concern_clients_are_accepted(der_chain):
    CLIENT_CAS.verify(der_chain, now=chains.NOW)


@pytest.mark.parametrize(
    "der_chain",
    [
        pytest.param(through(between={"usage": 0x80}), id="no-key-cert-sign"),
        pytest.param(
            through(between={"purposes": [chains.SERVER_AUTH]}), id="ca-with-server-auth-only"
        ),
        pytest.param(through(between=constrained(0xA4, GPU)), id="ca-with-a-directory-constraint"),
        pytest.param(through({"version": 1}), id="version-2"),
        pytest.param((*through(), through({"version": 3})[0]), id="extra-certificate-of-version-4"),
        pytest.param(through({"more": (X400_ADDRESS,)}), id="x400-address"),
    ],
)
def test_forbidden_or_malformed_certificates_are_not_trusted(der_chain):
    with pytest.raises(CertificateError, match="not trusted"):
        CLIENT_CAS.verify(der_chain, now=chains.NOW)


def test_a_bundle_with_a_certificate_of_an_unknown_version_is_rejected():
    with pytest.raises(CertificateError, match="cannot read a CA bundle"):
        chain.ClientCAs(chains.ROOTS["proxy"].pem + chains.UNKNOWN.pem)
