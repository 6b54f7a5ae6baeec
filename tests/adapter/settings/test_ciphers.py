from __future__ import annotations

import ssl

import pytest

from adapter.settings import ciphers

KUBE_PROMETHEUS = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
]


@pytest.mark.parametrize(
    ("version", "minimum", "notices"),
    [
        ("", ssl.TLSVersion.TLSv1_2, 0),
        ("VersionTLS10", ssl.TLSVersion.TLSv1_2, 1),
        ("VersionTLS11", ssl.TLSVersion.TLSv1_2, 1),
        ("VersionTLS12", ssl.TLSVersion.TLSv1_2, 0),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_3, 0),
    ],
)
def test_minimum_version_is_at_least_1_2(version, minimum, notices):
    options = ciphers.parse_tls_options(version)

    assert (options.minimum, len(options.notices)) == (minimum, notices)


def test_openssl_supports_every_suite_that_is_not_broken():
    options = ciphers.parse_tls_options(suites=tuple(ciphers.SUITES))

    (notice,) = options.notices
    unsupported = notice.partition(": ")[2].split(", ")
    assert all("RC4" in name or "3DES" in name for name in unsupported)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(options.ciphers)
    offered = {each["name"] for each in context.get_ciphers()}
    assert set(options.ciphers.split(":")) <= offered


def test_suites_of_kube_prometheus_keep_their_order():
    options = ciphers.parse_tls_options(suites=KUBE_PROMETHEUS)

    assert options.ciphers.startswith("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:")
    assert options.ciphers.count(":") == 7
    assert not options.notices


def test_two_names_of_one_suite_select_it_once():
    pair = [name for name in ciphers.SUITES if name.startswith("TLS_ECDHE_RSA_WITH_CHACHA20")]

    assert len(pair) == 2
    assert ciphers.parse_tls_options(suites=pair).ciphers == "ECDHE-RSA-CHACHA20-POLY1305"


def test_tls_1_2_is_disabled_without_a_suite_for_it():
    options = ciphers.parse_tls_options("VersionTLS12", ["TLS_AES_128_GCM_SHA256"])

    assert options == ciphers.TLSOptions(minimum=ssl.TLSVersion.TLSv1_3)
