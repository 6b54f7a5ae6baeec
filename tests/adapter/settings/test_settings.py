"""Flags: their defaults, pflag's spellings, validation, and the reference."""

from __future__ import annotations

import dataclasses
import re

import pytest

from adapter import settings
from adapter.settings.flag import Flag, Group, fields_of, flags
from adapter.settings.flag_types import comma_separated
from adapter.settings.ignored import IGNORED
from adapter.settings.settings import GROUPS
from adapter.tls import ciphers, files
from tests import docs

RULES = ("--config", "rules.yaml")
FLAGS = [flag for group in GROUPS.values() for _, flag in fields_of(group)]


def parse(*argv: str) -> settings.Settings:
    return settings.parse((*RULES, *argv))


def problems(*argv: str) -> tuple[str, ...]:
    with pytest.raises(settings.UsageError) as caught:
        settings.parse((*RULES, *argv))
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_defaults_are_those_of_the_original():
    parsed = {group: dataclasses.asdict(getattr(settings.parse(()), group)) for group in GROUPS}

    assert settings.parse(()).notices == ()
    assert parsed == {
        "rules": {"sources": ()},
        "relist": {"interval": 600.0, "max_age": 0.0},
        "prometheus": {
            "url": "https://localhost",
            "verb": "GET",
            "headers": (),
            "timeout": 30.0,
            "query_freshness": None,
            "allow_partial_responses": False,
            "token_file": None,
            "ca_file": None,
            "client_cert_file": None,
            "client_key_file": None,
            "auth_in_cluster": False,
            "auth_config": None,
        },
        "cluster": {
            "kubeconfig": None,
            "objects": (),
            "discovery_interval": 600.0,
            "qps": 5.0,
            "burst": 10,
        },
        "serving": {
            "event_loop": "uvloop",
            "bind_address": "0.0.0.0",
            "port": 443,
            "tls_cert_file": None,
            "tls_key_file": None,
            "cert_dir": "apiserver.local.config/certificates",
            "tls_min_version": "",
            "tls_cipher_suites": (),
            "sni": (),
            "service_name": "gpu-metrics-adapter",
            "service_namespace": "",
            "permit_port_sharing": False,
            "shutdown_delay": 0.0,
        },
        "authentication": {
            "kubeconfig": None,
            "token_ttl": 10.0,
            "skip_lookup": False,
            "tolerate_lookup_failure": False,
            "client_ca_file": None,
            "requestheader_client_ca_file": None,
            "requestheader_allowed_names": (),
            "requestheader_username_headers": ("x-remote-user",),
            "requestheader_uid_headers": (),
            "requestheader_group_headers": ("x-remote-group",),
            "requestheader_extra_headers_prefix": ("x-remote-extra-",),
        },
        "authorization": {
            "kubeconfig": None,
            "allowed_ttl": 60.0,
            "denied_ttl": 10.0,
            "always_allow_paths": ("/healthz", "/readyz", "/livez"),
        },
        "logs": {"verbosity": 0, "format": "text"},
    }


def test_the_arguments_of_the_originals_chart_are_accepted():
    parsed = settings.parse(
        [
            "/adapter",
            "--secure-port=6443",
            "--cert-dir=/tmp/cert",
            "--prometheus-url=http://prometheus.monitoring.svc:9090/prefix",
            "--metrics-relist-interval=1m",
            "--v=4",
            "--config=/etc/adapter/config.yaml",
        ]
    )

    assert parsed.serving.port == 6443
    assert parsed.serving.cert_dir == "/tmp/cert"
    assert parsed.prometheus.url == "http://prometheus.monitoring.svc:9090/prefix"
    assert parsed.relist.interval == 60.0
    assert parsed.logs.verbosity == 4
    assert parsed.rules.sources == (
        settings.Source(kind="config", name="/etc/adapter/config.yaml"),
    )


@pytest.mark.parametrize("verbosity", [["-v=6"], ["-v6"], ["-v", "6"], ["--v=6"], ["--v", "6"]])
def test_verbosity_has_all_spellings_of_pflag(verbosity):
    assert parse(*verbosity).logs.verbosity == 6


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], False),
        (["--prometheus-auth-incluster"], True),
        (["--prometheus-auth-incluster=T"], True),
        (["--prometheus-auth-incluster=false"], False),
        (["--prometheus-auth-incluster", "--prometheus-auth-incluster=0"], False),
        (["--prometheus-auth-incluster", "false"], True),  # as in pflag
    ],
)
def test_a_switch_takes_a_value_only_after_an_equals_sign(argv, expected):
    assert parse(*argv).prometheus.auth_in_cluster is expected


def test_sources_keep_the_order_of_the_command_line():
    parsed = settings.parse(
        ["--preset=gpu-dcgm", "--config", "a.yaml", "--preset", "gpu-amd", "--config=b.yaml"]
    )

    assert [(source.kind, source.name) for source in parsed.rules.sources] == [
        ("preset", "gpu-dcgm"),
        ("config", "a.yaml"),
        ("preset", "gpu-amd"),
        ("config", "b.yaml"),
    ]


def test_the_last_of_several_values_counts():
    assert parse("--secure-port=1", "--secure-port=6443").serving.port == 6443


def test_headers_may_contain_commas_and_equals_signs():
    parsed = parse(
        "--prometheus-header=X-Scope-OrgID=a,b",
        "--prometheus-header",
        "Authorization=Basic eDp5Cg==",
        "--prometheus-header=X-Empty",
    )

    assert parsed.prometheus.headers == (
        ("X-Scope-OrgID", "a,b"),
        ("Authorization", "Basic eDp5Cg=="),
        ("X-Empty", ""),
    )


def test_two_dashes_end_the_flags():
    assert parse("--", "--secure-port=1").serving.port == 443


def test_arguments_that_are_not_flags_are_ignored():
    assert parse("serve", "-", "now").serving.port == 443


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
        ("--shutdown-delay=-1s", "must be 0 or more"),
        ("--bind-address=here", "must be an IP address or localhost"),
        ("--authorization-always-allow-paths=/a*b", "/a*b: * is allowed at the end of a path only"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_expected(argv, reason):
    assert problems(argv) == (f"{argv}: {reason}",)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--metrics-relist-interval=10", ": must be a duration such as 90s or 1m30s: "),
        ("--tls-min-version=TLS1.2", ": unknown TLS version 'TLS1.2'"),
        ("--tls-cipher-suites=NOPE", ": unknown cipher suites NOPE"),
        ("--tls-sni-cert-key=a", ": expected comma separated"),
    ],
)
def test_an_invalid_value_is_refused_in_the_words_of_the_part_that_takes_it(argv, words):
    (problem,) = problems(argv)

    assert problem.startswith(argv + words)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("tls-cert-file", "tls-private-key-file"),
        ("prometheus-client-tls-cert-file", "prometheus-client-tls-key-file"),
    ],
)
def test_a_certificate_and_its_key_must_be_given_together(given, missing):
    problem = f"--{given} and --{missing} must be given together"

    assert problems(f"--{given}=x.pem") == problems(f"--{missing}=x.pem") == (problem,)


def test_a_header_cannot_contain_another():
    assert problems("--prometheus-header=X=a\r\nY: b") == (
        "--prometheus-header=X...: the value contains a control character",
    )


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


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1", "localhost"])
def test_a_loopback_address_is_allowed_without_a_cluster(address):
    parsed = parse("--objects=pods.yaml", f"--bind-address={address}")

    assert parsed.serving.bind_address == address


def test_without_a_cluster_the_default_is_a_loopback_address():
    assert parse("--objects=pods.yaml").serving.bind_address == "127.0.0.1"


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
        files.parse_sni_pair("a.crt,a.key:x,y"),
        files.parse_sni_pair("b.crt,b.key"),
    )


@pytest.mark.parametrize("argv", [[], ["--config="], ["--config", ""]])
def test_an_empty_rules_file_is_no_rules_file(argv):
    assert settings.parse(argv).rules.sources == ()


def test_a_maximum_age_below_the_relist_interval_is_refused():
    assert problems("--metrics-relist-interval=5m", "--metrics-max-age=90s") == (
        (
            "--metrics-max-age=90s: is shorter than --metrics-relist-interval=300s; "
            "series would be lost between two relists"
        ),
    )


def test_an_invalid_value_causes_no_conflict_with_a_valid_one():
    (problem,) = problems("--metrics-relist-interval=10", "--metrics-max-age=90s")

    assert problem.startswith("--metrics-relist-interval=10: must be a duration")


def test_two_ways_to_authenticate_to_prometheus_are_refused():
    assert problems("--prometheus-auth-incluster", "--prometheus-auth-config=/kube") == (
        (
            "--prometheus-auth-config=/kube: conflicts with --prometheus-auth-incluster; "
            "remove one of them"
        ),
    )


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (
            "--prometheus-header=authorization=Basic x",
            "the Authorization header in --prometheus-header takes precedence",
        ),
        (
            "--prometheus-url=https://jane:x@prometheus/a",
            "the user in --prometheus-url takes precedence",
        ),
    ],
)
def test_a_token_that_is_never_sent_gives_a_notice(argv, reason):
    (notice,) = parse("--prometheus-token-file=/token", argv).notices

    assert notice == f"--prometheus-token-file: has no effect: {reason}"


@pytest.mark.parametrize(
    "argv", ["--prometheus-header=X-Scope=a", "--prometheus-url=https://prometheus?/a@b"]
)
def test_a_token_that_is_sent_gives_no_notice(argv):
    https = "--prometheus-url=https://prometheus"
    assert parse("--prometheus-token-file=/token", https, argv).notices == ()


@pytest.mark.parametrize("flag", ["--prometheus-token-file=/token", "--prometheus-auth-incluster"])
def test_a_token_that_is_sent_in_plain_text_gives_a_notice(flag):
    (notice,) = parse(flag, "--prometheus-url=http://p:9090").notices

    name = flag.partition("=")[0]
    assert notice == (
        "--prometheus-url=http://p:9090: is not https, so everybody on the path can read the "
        f"token of {name}; use https"
    )


def test_a_token_of_the_service_account_that_is_never_sent_gives_no_notice():
    user = "--prometheus-url=http://jane:x@p"
    assert parse("--prometheus-auth-incluster", user).notices == ()


def test_all_problems_are_reported_at_once():
    assert problems("--secure-prot=1", "--client-qps=x", "--tls-cert-file=a") == (
        "--secure-prot: unknown flag; did you mean --secure-port?",
        "--client-qps=x: must be a number",
        "--tls-cert-file and --tls-private-key-file must be given together",
    )


@pytest.mark.parametrize(
    ("argv", "qps", "burst"),
    [
        (["--client-qps=50", "--client-burst=32"], 50.0, 32),
        (["--client-qps=0.5", "--client-burst=+8"], 0.5, 8),
        (["--client-qps=0", "--client-burst=-1"], 5.0, 10),
    ],
)
def test_rate_limits_of_zero_and_below_are_the_defaults(argv, qps, burst):
    parsed = parse(*argv)

    assert (parsed.cluster.qps, parsed.cluster.burst) == (qps, burst)


def test_ignored_flags_give_one_notice_for_each_reason():
    parsed = parse(
        "--logtostderr=true",
        "--log-dir=/tmp",
        "--logtostderr",
        "--disable-http2",
        "--http2-max-streams-per-connection=3",
        "--disable-http2",
        "--audit-log-path",
        "-",
    )

    assert parsed.notices == (
        "--logtostderr, --log_dir: have no effect: the log goes to standard error only",
        (
            "--disable-http2, --http2-max-streams-per-connection: have no effect: "
            "only HTTP/1.1 is served"
        ),
        "--audit-log-path: has no effect: there is no audit log",
    )


def test_a_kubeconfig_has_no_effect_without_a_cluster():
    parsed = parse("--objects=a.yaml", "--objects=b,c.yaml", "--lister-kubeconfig=/kube")

    assert parsed.cluster.objects == ("a.yaml", "b,c.yaml")
    assert parsed.notices == ("--lister-kubeconfig: has no effect: --objects replaces the cluster",)


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
    class Lists(Group):
        TITLE = "Lists"
        field: tuple[str, ...] = flags(Flag(name="x", type=comma_separated(), default="a,b"))

    command = settings.Command(name="x", help="", groups=(Lists,))
    assert command.parse(()).groups == (Lists(field=("a", "b")),)
    assert command.parse(("--x=c", "--x=d,,e")).groups == (Lists(field=("c", "d", "e")),)


def test_flags_of_other_groups_are_unknown_to_a_command_with_few_groups():
    with pytest.raises(settings.UsageError, match="--secure-port: unknown flag"):
        settings.Command(name="x", help="", groups=(settings.Prometheus,)).parse(
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
    assert re.findall(r"`--([^`]+)`", ignored) == [flag.name for flag in IGNORED]


def test_an_argument_that_is_no_flag_is_ignored_with_a_notice():
    assert settings.parse(["/adapter", "--v=4", "rules.yaml"]).notices == (
        "rules.yaml: ignored, because it is not a flag",
    )


@pytest.mark.parametrize(("text", "seconds"), [("auto", None), ("0", 0.0), ("2500ms", 2.5)])
def test_query_freshness_is_a_duration_or_automatic(text, seconds):
    assert settings.parse([f"--query-freshness={text}"]).prometheus.query_freshness == seconds


@pytest.mark.parametrize("text", ["often", "-1s", ""])
def test_other_query_freshness_is_refused(text):
    with pytest.raises(settings.UsageError, match="query-freshness"):
        settings.parse([f"--query-freshness={text}"])
