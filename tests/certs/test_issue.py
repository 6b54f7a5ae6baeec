from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from certs import issue
from certs.bundle import CertificateError

NOW = datetime(2026, 11, 20, 20, 25, 37, tzinfo=UTC)


def names(bundle):
    """The DNS names and the addresses in the leaf."""
    names = bundle.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return names.get_values_for_type(x509.DNSName), [str(address) for address in addresses]


@pytest.mark.parametrize(
    ("hosts", "dns", "addresses"),
    [
        ((), [], []),
        (("0.0.0.0",), [], []),
        (("::",), [], []),
        (("10.1.2.3", "localhost"), [], ["10.1.2.3"]),
        (("[fd00::1]", "adapter.ns.svc"), ["adapter.ns.svc"], ["fd00::1"]),
        (("0:0:0:0:0:0:0:1",), [], []),
    ],
)
def test_a_temporary_certificate_names_this_machine_and_the_hosts(hosts, dns, addresses):
    bundle = issue.issue_temporary(hosts, now=NOW)

    assert names(bundle) == (["localhost", *dns], ["127.0.0.1", "::1", *addresses])


def test_an_invalid_host_is_rejected():
    with pytest.raises(CertificateError, match="cannot issue a certificate for host 'ä'"):
        issue.issue_temporary(("ä",), now=NOW)


def test_a_client_that_trusts_the_ca_accepts_the_certificate():
    bundle = issue.issue_temporary((), now=NOW)
    store = Store(x509.load_pem_x509_certificates(bundle.ca_pem))
    verifier = (
        PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName("localhost"))
    )

    chain = verifier.verify(bundle.leaf, [])

    assert chain == list(bundle.chain)


def test_a_certificate_is_for_servers_with_a_key_on_p256():
    bundle = issue.issue_temporary((), now=NOW)

    usage = bundle.leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert isinstance(bundle.key, ec.EllipticCurvePrivateKey)
    assert isinstance(bundle.key.curve, ec.SECP256R1)


def test_a_certificate_is_valid_from_an_hour_ago():
    authority = issue.Authority.create("x", now=NOW, valid=timedelta(days=2))
    bundle = authority.issue((), name="x", now=NOW, valid=timedelta(days=2))

    for certificate in bundle.chain:
        assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
        assert certificate.not_valid_after_utc == NOW + timedelta(days=2)


@pytest.mark.parametrize("since", [timedelta(0), timedelta(days=40)])
def test_a_ca_that_expired_issues_nothing(since):
    until = NOW - since
    authority = issue.Authority.create("x", now=until - timedelta(days=2), valid=timedelta(days=2))

    with pytest.raises(CertificateError, match=r"CN=x-ca@\d+ expired at 2026-.*; use another CA"):
        authority.issue((), name="x", now=NOW, valid=timedelta(days=2))


def test_every_temporary_ca_is_different():
    one, other = (issue.issue_temporary((), now=NOW) for _ in range(2))

    assert one.ca_pem != other.ca_pem
    assert one.leaf.serial_number != other.leaf.serial_number
