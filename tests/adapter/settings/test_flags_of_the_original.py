"""Every flag of the original, release 0.12.0: each sets what it says, or says why it does not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from adapter import settings
from adapter.settings.flag import fields_of
from adapter.settings.ignored import IGNORED
from adapter.settings.settings import GROUPS
from adapter.tls.files import CertKeyPair
from tests import docs

# Flag, a value that is not the default, and the setting with the value it must then have.
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
    ("config", "r.yaml", "rules.sources", (settings.Source(kind="config", name="r.yaml"),)),
    ("metrics-relist-interval", "1m30s", "relist.interval", 90.0),
    ("metrics-max-age", "1h", "relist.max_age", 3600.0),
    # pkg/cmd/builder.go of custom-metrics-apiserver
    ("lister-kubeconfig", "/kube", "cluster.kubeconfig", "/kube"),
    ("discovery-interval", "5m", "cluster.discovery_interval", 300.0),
    ("client-qps", "50", "cluster.qps", 50.0),
    ("client-burst", "100", "cluster.burst", 100),
    # pkg/server/options/serving.go of k8s.io/apiserver
    ("bind-address", "::", "serving.bind_address", "::"),
    ("secure-port", "6443", "serving.port", 6443),
    ("cert-dir", "/certs", "serving.cert_dir", "/certs"),
    ("tls-cert-file", "/crt", "serving.tls_cert_file", "/crt"),
    ("tls-private-key-file", "/key", "serving.tls_key_file", "/key"),
    (
        "tls-cipher-suites",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "serving.tls_cipher_suites",
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
    ),
    ("tls-min-version", "VersionTLS13", "serving.tls_min_version", "VersionTLS13"),
    (
        "tls-sni-cert-key",
        "/crt,/key",
        "serving.sni",
        (CertKeyPair(certificate=Path("/crt"), key=Path("/key")),),
    ),
    ("permit-port-sharing", "true", "serving.permit_port_sharing", True),
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
    ("client-ca-file", "/ca", "authentication.client_ca_file", "/ca"),
    (
        "requestheader-client-ca-file",
        "/ca",
        "authentication.requestheader_client_ca_file",
        "/ca",
    ),
    (
        "requestheader-allowed-names",
        "a,b",
        "authentication.requestheader_allowed_names",
        ("a", "b"),
    ),
    (
        "requestheader-username-headers",
        "x-user",
        "authentication.requestheader_username_headers",
        ("x-user",),
    ),
    (
        "requestheader-group-headers",
        "x-group",
        "authentication.requestheader_group_headers",
        ("x-group",),
    ),
    (
        "requestheader-extra-headers-prefix",
        "x-extra-",
        "authentication.requestheader_extra_headers_prefix",
        ("x-extra-",),
    ),
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
    (
        "requestheader-uid-headers",
        "x-uid",
        "authentication.requestheader_uid_headers",
        ("x-uid",),
    ),
)

# The defaults of the original for flags without effect here; "" for those of klog before 0.11,
# which have none that matters, and of newer releases.
WITHOUT_EFFECT = {
    "only HTTP/1.1 is served": {
        "disable-http2": "false",
        "http2-max-streams-per-connection": "0",
        "disable-http2-serving": "false",
    },
    "SO_REUSEADDR is always set": {"permit-address-sharing": "false"},
    "OpenSSL chooses the curves": {"tls-curve-preferences": ""},
    "there is no audit log": {
        "audit-policy-file": "",
        "audit-log-path": "",
        "audit-log-maxage": "0",
        "audit-log-maxbackup": "0",
        "audit-log-maxsize": "0",
        "audit-log-format": "json",
        "audit-log-version": "audit.k8s.io/v1",
        "audit-log-compress": "false",
        "audit-log-mode": "blocking",
        "audit-log-batch-buffer-size": "10000",
        "audit-log-batch-max-size": "1",
        "audit-log-batch-max-wait": "0s",
        "audit-log-batch-throttle-enable": "false",
        "audit-log-batch-throttle-qps": "0",
        "audit-log-batch-throttle-burst": "0",
        "audit-log-truncate-enabled": "false",
        "audit-log-truncate-max-batch-size": "10485760",
        "audit-log-truncate-max-event-size": "102400",
        "audit-webhook-config-file": "",
        "audit-webhook-initial-backoff": "10s",
        "audit-webhook-batch-initial-backoff": "10s",
        "audit-webhook-version": "audit.k8s.io/v1",
        "audit-webhook-mode": "batch",
        "audit-webhook-batch-buffer-size": "10000",
        "audit-webhook-batch-max-size": "400",
        "audit-webhook-batch-max-wait": "30s",
        "audit-webhook-batch-throttle-enable": "true",
        "audit-webhook-batch-throttle-qps": "10",
        "audit-webhook-batch-throttle-burst": "15",
        "audit-webhook-truncate-enabled": "false",
        "audit-webhook-truncate-max-batch-size": "10485760",
        "audit-webhook-truncate-max-event-size": "102400",
    },
    "there is no /debug/pprof": {
        "profiling": "true",
        "contention-profiling": "false",
        "debug-socket-path": "",
    },
    "there is no API priority and fairness, as in the original by default": {
        "enable-priority-and-fairness": "false"
    },
    "all modules have the same verbosity; use --v": {"vmodule": ""},
    "log lines are not buffered": {"log-flush-frequency": "5s"},
    "the log goes to standard error only": {
        "logtostderr": "true",
        "alsologtostderr": "false",
        "one_output": "false",
        "skip_log_headers": "false",
        "stderrthreshold": "2",
        "log_dir": "",
        "log_file": "",
        "log_file_max_size": "1800",
    },
    "log lines have a fixed format": {"add_dir_header": "false", "skip_headers": "false"},
    "there are no stack traces of Go code": {"log_backtrace_at": ":0"},
}

# The other flag that a flag needs.
COMPANIONS = {
    "prometheus-auth-incluster": "--prometheus-url=https://prometheus",
    "prometheus-token-file": "--prometheus-url=https://prometheus",
    "prometheus-client-tls-cert-file": "--prometheus-client-tls-key-file=/key",
    "prometheus-client-tls-key-file": "--prometheus-client-tls-cert-file=/crt",
    "tls-cert-file": "--tls-private-key-file=/key",
    "tls-private-key-file": "--tls-cert-file=/crt",
}


def setting(parsed: settings.Settings, path: str) -> object:
    group, field = path.split(".")
    return getattr(getattr(parsed, group), field)


@pytest.mark.parametrize(("flag", "text", "path", "value"), EFFECTIVE, ids=str)
def test_a_flag_of_the_original_sets_what_it_says(flag, text, path, value):
    companion = [COMPANIONS[flag]] if flag in COMPANIONS else []
    parsed = settings.parse([f"--{flag}={text}", *companion])

    assert setting(parsed, path) == value
    assert setting(settings.parse(()), path) != value
    assert parsed.notices == ()


@pytest.mark.parametrize(
    ("reason", "flag", "default"),
    [(reason, *each) for reason, flags in WITHOUT_EFFECT.items() for each in flags.items()],
)
def test_a_flag_without_effect_says_why(reason, flag, default):
    parsed = settings.parse([f"--{flag}={default}"])

    assert parsed.notices == (f"--{flag}: has no effect: {reason}",)
    assert f"| {reason} |" in docs.flags()


def test_no_flag_without_effect_is_left_out_of_the_table():
    listed = {flag: reason for reason, flags in WITHOUT_EFFECT.items() for flag in flags}

    assert {flag.name: flag.ignored for flag in IGNORED} == listed


def test_flags_that_the_original_lacks_are_few_and_all_have_an_effect():
    original = {flag for flag, *_ in EFFECTIVE}
    declared = {flag.name for group in GROUPS.values() for _, flag in fields_of(group)}

    assert original <= declared
    assert declared - original == {
        "allow-partial-responses",
        "event-loop",
        "logging-format",
        "objects",
        "preset",
        "prometheus-timeout",
        "query-freshness",
        "service-name",
        "service-namespace",
        "shutdown-delay",
    }


def test_every_setting_is_read_where_the_parts_are_wired():
    sources = [
        *Path("adapter/app").glob("*.py"),
        *Path("adapter/commands").glob("*.py"),
        # Properties and methods of a group, which others use.
        Path("adapter/settings/serving.py"),
    ]
    read = {
        node.attr
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute)
    }
    fields = {field for group in GROUPS.values() for field, _ in fields_of(group)}

    assert fields - read == set()


def test_port_0_is_refused_because_it_would_serve_nothing():
    with pytest.raises(settings.UsageError, match=re.escape("--secure-port=0: must be between")):
        settings.parse(["--secure-port=0"])
