"""Flags: their defaults, pflag's spellings, validation, and the reference."""

from __future__ import annotations

import dataclasses
import fnmatch
import re

import pytest

from adapter import settings
from adapter.settings import ciphers, serving
from adapter.settings.flag import Flag, FlagGroup, comma_separated, flags
from adapter.settings.settings import GROUPS, IGNORED
from rules.kinds import SCALE_TARGETS
from tools import docs

RULES = ("--config", "rules.yaml")
FLAGS = [flag for group in GROUPS.values() for _, flag in group.flags()]


def parse(*argv: str) -> settings.Settings:
    return settings.parse((*RULES, *argv))


def problems(*argv: str) -> tuple[str, ...]:
    with pytest.raises(settings.UsageError) as caught:
        settings.parse((*RULES, *argv))
    problems = tuple(each.sentence for each in caught.value.problems)
    assert str(caught.value) == "\n".join(problems)
    return problems


def test_without_another_one_the_embedded_prometheus_is_that_of_all_rules():
    embedded = "--embedded-prometheus-url=http://127.0.0.1:9090"

    assert parse(embedded).prometheus.url == "http://127.0.0.1:9090"
    other = parse("--prometheus-url=http://prometheus", embedded)
    assert (other.prometheus.url, other.embedded.url) == (
        "http://prometheus",
        "http://127.0.0.1:9090",
    )
    assert problems("--embedded-prometheus-interval=1s") == (
        "--embedded-prometheus-interval: needs --embedded-prometheus-url",
    )
    assert "http or https URL" in problems("--embedded-prometheus-url=a")[0]


def test_defaults_are_those_of_the_original():
    parsed = settings.parse(())
    given = {
        (name, field): value
        for name in GROUPS
        for field, value in dataclasses.asdict(getattr(parsed, name)).items()
        if value not in (None, "", 0, ())
    }

    assert parsed.notices == ()
    assert given == {
        ("rules", "team_label"): "namespace",
        ("relist", "interval"): 600.0,
        ("prometheus", "url"): "https://localhost",
        ("prometheus", "verb"): "GET",
        ("prometheus", "timeout"): 10.0,
        ("embedded", "interval"): 5.0,
        ("cluster", "discovery_interval"): 600.0,
        ("cluster", "scale_targets"): tuple(map(dataclasses.asdict, SCALE_TARGETS)),
        ("cluster", "qps"): 5.0,
        ("cluster", "burst"): 10,
        ("serving", "event_loop"): "uvloop",
        ("serving", "causes_in_messages"): True,
        ("serving", "errors_for_empty_lists"): True,
        ("serving", "bind_address"): "0.0.0.0",
        ("serving", "port"): 443,
        ("serving", "cert_dir"): "apiserver.local.config/certificates",
        ("serving", "service_name"): "gpu-metrics-adapter",
        ("authentication", "token_ttl"): 10.0,
        ("authentication", "requestheader_username_headers"): ("x-remote-user",),
        ("authentication", "requestheader_group_headers"): ("x-remote-group",),
        ("authentication", "requestheader_extra_headers_prefix"): ("x-remote-extra-",),
        ("authorization", "allowed_ttl"): 60.0,
        ("authorization", "denied_ttl"): 10.0,
        ("authorization", "always_allow_paths"): ("/healthz", "/readyz", "/livez"),
        ("logs", "format"): "text",
    }


def source(kind, name):
    return settings.RulesSource(kind=kind, name=name)


@pytest.mark.parametrize(
    ("argv", "path", "value"),
    [
        *((argv, "logs.verbosity", 6) for argv in ("-v=6", "-v6", "-v 6", "--v=6", "--v 6")),
        ("--prometheus-auth-incluster", "prometheus.auth_in_cluster", True),
        ("--prometheus-auth-incluster=T", "prometheus.auth_in_cluster", True),
        ("--prometheus-auth-incluster=false", "prometheus.auth_in_cluster", False),
        (
            "--prometheus-auth-incluster --prometheus-auth-incluster=0",
            "prometheus.auth_in_cluster",
            False,
        ),
        ("--prometheus-auth-incluster false", "prometheus.auth_in_cluster", True),  # as in pflag
        (
            "--preset=gpu-dcgm --config a --preset gpu-amd --config=b",
            "rules.sources",
            (
                source("preset", "gpu-dcgm"),
                source("config", "a"),
                source("preset", "gpu-amd"),
                source("config", "b"),
            ),
        ),
        ("--config=", "rules.sources", ()),
        ("--secure-port=1 --secure-port=6443", "serving.port", 6443),
        ("-- --secure-port=1", "serving.port", 443),
        ("serve - now", "serving.port", 443),
        (
            "--prometheus-header=A=a,b --prometheus-header B=eA== --prometheus-header=C",
            "prometheus.headers",
            (("A", "a,b"), ("B", "eA=="), ("C", "")),
        ),
        ("--objects=a.yaml --objects=b,c.yaml", "cluster.objects", ("a.yaml", "b,c.yaml")),
        ("--objects=a.yaml", "serving.bind_address", "127.0.0.1"),
        *(
            (f"--objects=a.yaml --bind-address={each}", "serving.bind_address", each)
            for each in ("127.0.0.1", "127.9.8.7", "::1", "localhost")
        ),
        ("--client-qps=50", "cluster.qps", 50.0),
        ("--client-qps=0.5", "cluster.qps", 0.5),
        ("--client-qps=0", "cluster.qps", 5.0),
        ("--client-burst=+8", "cluster.burst", 8),
        ("--client-burst=-1", "cluster.burst", 10),
        ("--query-freshness=auto", "values.query_freshness", None),
        ("--query-freshness=0", "values.query_freshness", 0.0),
        ("--query-freshness=2500ms", "values.query_freshness", 2.5),
    ],
)
def test_a_command_line_is_read_as_by_pflag(argv, path, value):
    group, field = path.split(".")

    assert getattr(getattr(settings.parse(argv.split()), group), field) == value


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["--secure-port=x", "--help"]])
def test_help_is_requested(argv):
    with pytest.raises(settings.HelpRequested):
        settings.parse(argv)


URL = "must be an http or https URL with a host"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("--secure-prot=1", "--secure-prot: unknown flag; did you mean --secure-port?"),
        ("--zzzz", "--zzzz: unknown flag"),
        ("-x", "-x: unknown flag"),
        ("-config=x", "-config: unknown flag; did you mean --config?"),
        ("--=x", "--: unknown flag"),
        ("--secure-port", "--secure-port: needs a value: --secure-port=INT"),
        ("-v", "--v: needs a value: --v=INT"),
        ("-v=", "--v=: must be an integer"),
        ("--prometheus-url=http://u:secret@h:x", f"--prometheus-url=http://...@h:x: {URL}"),
        ("--prometheus-url=http://h:x?key=secret", f"--prometheus-url=http://h:x?...: {URL}"),
    ],
)
def test_a_mistake_is_one_problem_that_names_the_flag(argv, problem):
    assert problems(argv) == (problem,)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ("--secure-port=6x", "must be an integer"),
        ("--secure-port=0", "must be between 1 and 65535"),
        ("--secure-port=65536", "must be between 1 and 65535"),
        ("--client-qps=many", "must be a number"),
        ("--client-qps=nan", "must be a number"),
        ("--permit-port-sharing=yes", "must be true or false"),
        ("--logtostderr=yes", "must be true or false"),
        ("--prometheus-verb=PUT", "must be GET or POST"),
        ("--prometheus-verb=get", "must be GET or POST"),
        ("--prometheus-url=prometheus:9090", URL),
        *(
            (
                f"--prometheus-url=http://p:9090/prefix{end}",
                f"must be the base URL of Prometheus: remove {end} from its end",
            )
            for end in ("/api/v1", "/api/v1/", "/api/v1/query", "/api/v1/remote_write", "/graph")
        ),
        ("--prometheus-url=http://", URL),
        ("--prometheus-url=http://[::1", URL),
        ("--prometheus-timeout=0s", "must be more than 0"),
        ("--metrics-relist-interval=0s", "must be more than 0"),
        ("--metrics-relist-interval=-1m0s", "must be more than 0"),
        ("--metrics-max-age=-1m0s", "must be 0 or more"),
        ("--discovery-interval=-1m0s", "must be 0 or more"),
        (
            "--scale-targets=Rollout",
            "'Rollout' is not RESOURCE.GROUP, such as rollouts.argoproj.io",
        ),
        ("--shutdown-delay=-1s", "must be 0 or more"),
        ("--bind-address=here", "must be an IP address or localhost"),
        ("--query-freshness=-1s", "must be 0 or more"),
        ("--authorization-always-allow-paths=/a*b", "/a*b: * is allowed at the end of a path only"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_expected(argv, reason):
    assert problems(argv) == (f"{argv}: {reason}",)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--metrics-relist-interval=10", ": must be a duration such as 90s or 1m30s: "),
        ("--query-freshness=often", ": must be a duration such as 90s or 1m30s: "),
        ("--query-freshness=", ": must be a duration such as 90s or 1m30s: "),
        (
            "--tls-min-version=TLS1.2",
            ": unknown TLS version 'TLS1.2': must be one of VersionTLS10, ",
        ),
        ("--tls-cipher-suites=NOPE", ": unknown cipher suites NOPE: must be among TLS_AES_128_"),
        ("--tls-sni-cert-key=a", ": expected comma separated"),
    ],
)
def test_an_invalid_value_is_refused_in_the_words_of_the_part_that_takes_it(argv, words):
    (problem,) = problems(argv)

    assert problem.startswith(argv + words)


PAIRS = (("tls-cert-file", "tls-private-key-file"),)
NEEDS = (
    ("client-tls-cert-file=a", "client-tls-key-file"),
    ("client-tls-key-file=a", "client-tls-cert-file"),
    ("username-file=a", "password-file"),
    ("oauth2-token-url=https://a", "oauth2-client-id"),
    ("oauth2-client-id=a", "oauth2-client-secret-file"),
    ("oauth2-client-secret-file=a", "oauth2-token-url"),
    ("oauth2-parameter=a=b", "oauth2-token-url"),
    ("aws-profile=a", "identity"),
)
TOGETHER = "--{} and --{} must be given together"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        *(((f"--{each}=x.pem",), (TOGETHER.format(*pair),)) for pair in PAIRS for each in pair),
        *(
            (
                (f"--prometheus-{given}",),
                (f"--prometheus-{given.partition('=')[0]}: needs --prometheus-{needed}",),
            )
            for given, needed in NEEDS
        ),
        (
            ("--prometheus-header=X=a\r\nY: b",),
            ("--prometheus-header=X...: the value contains a control character",),
        ),
        (
            ("--metrics-relist-interval=5m", "--metrics-max-age=90s"),
            (
                (
                    "--metrics-max-age=90s: is shorter than --metrics-relist-interval=300s; "
                    "series would be lost between two relists"
                ),
            ),
        ),
        (
            ("--prometheus-auth-incluster", "--prometheus-auth-config=/kube"),
            (
                (
                    "--prometheus-auth-config=/kube: conflicts with --prometheus-auth-incluster; "
                    "remove one of them"
                ),
            ),
        ),
        (
            ("--prometheus-identity=aws", "--prometheus-token-file=a"),
            ("--prometheus-identity: conflicts with --prometheus-token-file; remove one of them",),
        ),
        (
            ("--prometheus-identity=ibm", "--prometheus-oauth2-token-url=idp"),
            (
                "--prometheus-identity=ibm: must be aws or azure or google",
                f"--prometheus-oauth2-token-url=idp: {URL}",
            ),
        ),
        (
            ("--prometheus-token-file=a", "--prometheus-header-file=authorization=b"),
            (
                (
                    "--prometheus-header-file: conflicts with --prometheus-token-file; "
                    "remove one of them"
                ),
            ),
        ),
        (
            ("--secure-prot=1", "--client-qps=x", "--tls-cert-file=a"),
            (
                "--secure-prot: unknown flag; did you mean --secure-port?",
                "--client-qps=x: must be a number",
                TOGETHER.format(*PAIRS[0]),
            ),
        ),
    ],
)
def test_all_conflicts_and_mistakes_are_reported(argv, expected):
    assert problems(*argv) == expected


@pytest.mark.parametrize("text", ["Authorization: Bearer secret", "=secret", "X Y=secret"])
def test_an_invalid_header_is_refused_without_printing_its_value(text):
    (problem,) = problems(f"--prometheus-header={text}")

    assert "must be Name=value" in problem
    assert "secret" not in problem


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.1", "::", "::ffff:10.0.0.1"])
def test_without_a_cluster_only_loopback_addresses_are_allowed(address):
    (problem,) = problems("--objects=pods.yaml", f"--bind-address={address}")

    assert problem.startswith(f"--bind-address={address}: must be a loopback address")
    assert parse(f"--bind-address={address}").serving.bind_address == address


OF_FALLBACK = ("--external-fallback-ca-file=ca.crt", "--external-fallback-service-account=reader")


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("keda/metrics", "https://metrics.keda.svc:443"),
        ("keda/metrics:6443", "https://metrics.keda.svc:6443"),
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
    ],
)
def test_a_fallback_is_a_service_or_a_url(server, url):
    parsed = parse(f"--external-fallback={server}", *OF_FALLBACK)

    assert (parsed.fallback.server, parsed.fallback.url) == (server, url)


@pytest.mark.parametrize("server", ["metrics", "keda/", "/metrics", "http://a", "https://a/b"])
def test_another_fallback_is_refused(server):
    (problem,) = problems(f"--external-fallback={server}", *OF_FALLBACK)

    assert "must be NAMESPACE/SERVICE" in problem


@pytest.mark.parametrize(
    ("text", "account"), [("", None), ("reader", ("", "reader")), ("keda/a.b-c", ("keda", "a.b-c"))]
)
def test_the_account_of_the_fallback_is_a_name_or_has_a_namespace(text, account):
    assert parse(f"--external-fallback-service-account={text}").fallback.account == account


@pytest.mark.parametrize("text", ["/a", "a/", "a/b/c", "A", "a b", "..", "a/..", "%2e", "b" * 254])
def test_another_account_is_refused(text):
    (problem,) = problems(f"--external-fallback-service-account={text}")

    assert "must be NAME or NAMESPACE/NAME of a ServiceAccount" in problem


def test_a_fallback_needs_a_ca_and_an_account_and_a_cluster():
    server = "--external-fallback=keda/metrics"
    ca, account = problems(server)
    assert "requires --external-fallback-ca-file" in ca
    assert "requires --external-fallback-service-account" in account
    assert "no longer gets the adapter's own token" in account

    (problem,) = problems(server, *OF_FALLBACK, "--objects=pods.yaml")
    assert "not together with --objects" in problem


def test_an_invalid_address_without_a_cluster_is_one_problem():
    assert len(problems("--objects=pods.yaml", "--bind-address=here")) == 1


def test_tls_settings_become_the_options_of_the_server():
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    parsed = parse("--tls-min-version=VersionTLS12", f"--tls-cipher-suites={suites}")

    assert parsed.serving.tls_options == ciphers.parse_tls_options(
        "VersionTLS12", suites.split(",")
    )


def test_old_tls_versions_are_accepted_with_a_notice():
    (notice,) = parse("--tls-min-version=VersionTLS10").notices

    assert "TLS 1.2 is the lowest" in notice


def test_additional_certificates_are_parsed():
    parsed = parse("--tls-sni-cert-key=a.crt,a.key:x,y", "--tls-sni-cert-key=b.crt,b.key")

    assert parsed.serving.sni == (
        serving.parse_sni_pair("a.crt,a.key:x,y"),
        serving.parse_sni_pair("b.crt,b.key"),
    )


def test_an_invalid_value_causes_no_conflict_with_a_valid_one():
    (problem,) = problems("--metrics-relist-interval=10", "--metrics-max-age=90s")

    assert problem.startswith("--metrics-relist-interval=10: must be a duration")


TOKEN = "--prometheus-token-file=/token"
IN_CLUSTER = "--prometheus-auth-incluster"
HTTPS = "--prometheus-url=https://prometheus"
UNUSED = "--prometheus-token-file: has no effect: the {} takes precedence"
PLAIN = (
    "--prometheus-url=http://p:9090: is not https, so everybody on the path can read the "
    "credentials of {}; use https"
)


@pytest.mark.parametrize(
    ("argv", "notices"),
    [
        (
            (TOKEN, "--prometheus-header=authorization=Basic x"),
            (UNUSED.format("Authorization header in --prometheus-header"),),
        ),
        (
            (TOKEN, "--prometheus-url=https://jane:x@prometheus/a"),
            (UNUSED.format("user in --prometheus-url"),),
        ),
        ((TOKEN, HTTPS, "--prometheus-header=X-Scope=a"), ()),
        ((TOKEN, f"{HTTPS}?/a@b"), ()),
        ((TOKEN, "--prometheus-url=http://p:9090"), (PLAIN.format("--prometheus-token-file"),)),
        ((IN_CLUSTER, "--prometheus-url=http://p:9090"), (PLAIN.format(IN_CLUSTER),)),
        ((IN_CLUSTER, "--prometheus-url=http://jane:x@p"), ()),
        (
            (
                "--prometheus-url=http://p:9090",
                "--prometheus-identity=google",
            ),
            (PLAIN.format("--prometheus-identity"),),
        ),
        (
            (
                HTTPS,
                "--prometheus-oauth2-token-url=http://idp",
                "--prometheus-oauth2-client-id=a",
                "--prometheus-oauth2-client-secret-file=/secret",
            ),
            (
                (
                    "--prometheus-oauth2-token-url: is not https, so everybody on the path can "
                    "read the client secret; use https"
                ),
            ),
        ),
        (
            ("--objects=a.yaml", "--lister-kubeconfig=/kube"),
            ("--lister-kubeconfig: has no effect: --objects replaces the cluster",),
        ),
        (("/adapter", "--v=4", "rules.yaml"), ("rules.yaml: ignored, because it is not a flag",)),
        (
            ("--logtostderr=true", "--log-dir=/tmp", "--logtostderr", "--audit-log-path", "-"),
            (
                "--logtostderr, --log_dir: have no effect: the log goes to standard error only",
                "--audit-log-path: has no effect: there is no audit log",
            ),
        ),
    ],
)
def test_flags_without_effect_and_unsafe_ones_give_a_notice(argv, notices):
    assert settings.parse(argv).notices == notices


def test_every_flag_accepts_its_own_default():
    argv = [f"--{flag.name}={flag.default}" for flag in FLAGS if flag.default]

    assert settings.parse(argv) == settings.parse(())


def test_every_flag_has_a_unique_name_and_a_help_text():
    names = [flag.name for flag in (*FLAGS, *IGNORED)]

    assert len(set(names)) == len(names)
    assert [flag.name for flag in FLAGS if not flag.help.endswith(".")] == []
    assert [flag.name for flag in IGNORED if not flag.ignored] == []


def test_a_list_replaces_its_default_and_then_grows():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Lists(FlagGroup):
        TITLE = "Lists"
        field: tuple[str, ...] = flags(Flag(name="x", type=comma_separated(), default="a,b"))

    command = settings.CommandSpec(name="x", help="", groups=(Lists,))
    assert command.parse(()).groups == (Lists(field=("a", "b")),)
    assert command.parse(("--x=c", "--x=d,,e")).groups == (Lists(field=("c", "d", "e")),)


def test_flags_of_other_groups_are_unknown_to_a_command_with_few_groups():
    with pytest.raises(settings.UsageError, match="--secure-port: unknown flag"):
        settings.CommandSpec(name="x", help="", groups=(settings.PrometheusSettings,)).parse(
            ["--secure-port=1"]
        )


def test_the_help_text_has_every_flag_with_its_default():
    text = settings.usage()

    assert [flag.name for flag in (*FLAGS, *IGNORED) if f"--{flag.name}" not in text] == []
    assert "  -v, --v int\n" in text
    assert "(default 0.0.0.0)" in text
    assert "  only HTTP/1.1 is served:\n        --disable-http2, " in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_reference_has_every_flag_once():
    works, ignored = docs.flags().split("### Accepted, without effect")
    rows = re.findall(r"^\| `(?:-v, )?--([^`]+)` \|", works, re.MULTILINE)

    assert rows == [flag.name for flag in FLAGS]
    names, patterns = [flag.name for flag in IGNORED], re.findall(r"`--([^`]+)`", ignored)
    assert [sum(fnmatch.fnmatch(name, each) for each in patterns) for name in names] == [1] * len(
        names
    )
    assert all(fnmatch.filter(names, each) for each in patterns)
