"""Every flag of the original, release 0.12.0: each sets what it says, or says why it does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from adapter import settings
from adapter.settings.serving import CertKeyPair
from adapter.settings.settings import GROUPS, IGNORED

# Flag, a value that is not the default, and the setting with the value it must then have. Without
# a field, that of the flag's name.
EFFECTIVE = (
    # cmd/adapter/adapter.go
    ("prometheus-url", "http://p:9090/base", "prometheus.url", "http://p:9090/base"),
    ("prometheus-auth-incluster", "true", "prometheus.auth_in_cluster", True),
    ("prometheus-auth-config", "/kube", "prometheus.auth_config", "/kube"),
    ("prometheus-ca-file", "/ca", "prometheus.ca_file", "/ca"),
    ("prometheus-client-tls-cert-file", "/crt", "prometheus.client_cert_file", "/crt"),
    ("prometheus-client-tls-key-file", "/key", "prometheus.client_key_file", "/key"),
    ("prometheus-token-file", "/token", "prometheus.token_file", "/token"),
    ("prometheus-header", "X-Tenant=a,b", "prometheus.headers", (("X-Tenant", "a,b"),)),
    ("prometheus-verb", "POST", "prometheus.verb", "POST"),
    ("config", "r.yaml", "rules.sources", (settings.RulesSource(kind="config", name="r.yaml"),)),
    ("metrics-relist-interval", "1m30s", "relist.interval", 90.0),
    ("metrics-max-age", "1h", "relist.max_age", 3600.0),
    # pkg/cmd/builder.go of custom-metrics-apiserver
    ("lister-kubeconfig", "/kube", "cluster.kubeconfig", "/kube"),
    ("discovery-interval", "5m", "cluster", 300.0),
    ("client-qps", "50", "cluster.qps", 50.0),
    ("client-burst", "100", "cluster.burst", 100),
    # pkg/server/options/serving.go of k8s.io/apiserver
    ("bind-address", "::", "serving", "::"),
    ("secure-port", "6443", "serving.port", 6443),
    ("cert-dir", "/certs", "serving", "/certs"),
    ("tls-cert-file", "/crt", "serving", "/crt"),
    ("tls-private-key-file", "/key", "serving.tls_key_file", "/key"),
    (
        "tls-cipher-suites",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "serving",
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
    ),
    ("tls-min-version", "VersionTLS13", "serving", "VersionTLS13"),
    (
        "tls-sni-cert-key",
        "/crt,/key",
        "serving.sni",
        (CertKeyPair(certificate=Path("/crt"), key=Path("/key")),),
    ),
    ("permit-port-sharing", "true", "serving", True),
    # pkg/server/options/authentication.go
    ("authentication-kubeconfig", "/kube", "authentication.kubeconfig", "/kube"),
    ("authentication-token-webhook-cache-ttl", "1m", "authentication.token_ttl", 60.0),
    ("authentication-skip-lookup", "true", "authentication.skip_lookup", True),
    (
        "authentication-tolerate-lookup-failure",
        "true",
        "authentication.tolerate_lookup_failure",
        True,
    ),
    ("client-ca-file", "/ca", "authentication", "/ca"),
    ("requestheader-client-ca-file", "/ca", "authentication", "/ca"),
    ("requestheader-allowed-names", "a,b", "authentication", ("a", "b")),
    ("requestheader-username-headers", "x-user", "authentication", ("x-user",)),
    ("requestheader-group-headers", "x-group", "authentication", ("x-group",)),
    ("requestheader-extra-headers-prefix", "x-extra-", "authentication", ("x-extra-",)),
    # pkg/server/options/authorization.go
    ("authorization-kubeconfig", "/kube", "authorization.kubeconfig", "/kube"),
    ("authorization-webhook-cache-authorized-ttl", "5s", "authorization.allowed_ttl", 5.0),
    ("authorization-webhook-cache-unauthorized-ttl", "5s", "authorization.denied_ttl", 5.0),
    (
        "authorization-always-allow-paths",
        "/livez,/x*",
        "authorization.always_allow_paths",
        ("/livez", "/x*"),
    ),
    # component-base/logs
    ("v", "6", "logs.verbosity", 6),
    # newer releases of k8s.io/apiserver
    ("requestheader-uid-headers", "x-uid", "authentication", ("x-uid",)),
)

# The other flag that a flag needs.
COMPANIONS = {
    "prometheus-auth-incluster": "--prometheus-url=https://prometheus",
    "prometheus-token-file": "--prometheus-url=https://prometheus",
    "prometheus-client-tls-cert-file": "--prometheus-client-tls-key-file=/key",
    "prometheus-client-tls-key-file": "--prometheus-client-tls-cert-file=/crt",
    "tls-cert-file": "--tls-private-key-file=/key",
    "tls-private-key-file": "--tls-cert-file=/crt",
}


def setting(parsed: settings.Settings, path: str, flag: str) -> object:
    group, _, field = path.partition(".")
    return getattr(getattr(parsed, group), field or flag.replace("-", "_"))


@pytest.mark.parametrize(("flag", "text", "path", "value"), EFFECTIVE, ids=str)
def test_a_flag_of_the_original_sets_what_it_says(flag, text, path, value):
    companion = [COMPANIONS[flag]] if flag in COMPANIONS else []
    parsed = settings.parse([f"--{flag}={text}", *companion])

    assert setting(parsed, path, flag) == value
    assert setting(settings.parse(()), path, flag) != value
    assert parsed.notices == ()


def test_each_flag_without_effect_is_accepted_and_says_why():
    for flag in IGNORED:
        assert settings.parse([f"--{flag.name}=0"]).notices == (
            f"--{flag.name}: has no effect: {flag.ignored}",
        )
        assert f"  {flag.ignored}:\n" in settings.usage()


def test_every_setting_is_read_where_the_parts_are_wired():
    sources = [
        *Path("adapter/server/app").glob("*.py"),
        *Path("adapter/cli/commands").glob("*.py"),
        # Properties and methods of a group, which others use.
        Path("adapter/settings/serving.py"),
        # What reads the options of a connection.
        Path("adapter/clients/identities.py"),
        Path("adapter/clients/sources.py"),
    ]
    read = {
        node.attr
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute)
    }
    fields = {field for group in GROUPS.values() for field, _ in group.flags()}

    assert fields - read == set()
