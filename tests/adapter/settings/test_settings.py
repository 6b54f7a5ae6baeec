from __future__ import annotations

import re
import subprocess
import sys

import pytest

from adapter import settings
from adapter.auth import trust
from adapter.settings import checks, flag
from adapter.tls import ciphers

RULES = ("--config", "rules.yaml")


def parse(*argv: str) -> settings.Settings:
    return settings.parse((*RULES, *argv))


def problems(*argv: str) -> tuple[str, ...]:
    with pytest.raises(settings.UsageError) as caught:
        settings.parse(argv)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_defaults_are_the_originals():
    got = parse()

    assert got == settings.Settings(
        sources=(settings.Source(kind="config", name="rules.yaml"),),
        metrics_relist_interval=600.0,
        metrics_max_age=600.0,
        prometheus_url="https://localhost",
        prometheus_verb="GET",
        prometheus_headers=(),
        prometheus_timeout=30.0,
        prometheus_token_file=None,
        prometheus_ca_file=None,
        prometheus_client_tls_cert_file=None,
        prometheus_client_tls_key_file=None,
        prometheus_auth_incluster=False,
        prometheus_auth_config=None,
        lister_kubeconfig=None,
        objects=(),
        discovery_interval=600.0,
        client_qps=5.0,
        client_burst=10,
        bind_address="0.0.0.0",
        secure_port=443,
        permit_port_sharing=False,
        tls_cert_file=None,
        tls_private_key_file=None,
        cert_dir="apiserver.local.config/certificates",
        tls_options=ciphers.terms(),
        tls_sni=(),
        service_name="gpu-metrics-adapter",
        service_namespace="",
        shutdown_delay=0.0,
        authentication_kubeconfig=None,
        token_ttl=10.0,
        skip_lookup=False,
        tolerate_lookup_failure=False,
        client_ca_file=None,
        requestheader_client_ca_file=None,
        requestheader=trust.Headers(
            username_headers=("x-remote-user",),
            group_headers=("x-remote-group",),
            extra_prefixes=("x-remote-extra-",),
        ),
        authorization_kubeconfig=None,
        allowed_ttl=60.0,
        denied_ttl=10.0,
        always_allow_paths=("/healthz", "/readyz", "/livez"),
        verbosity=0,
        notices=(),
    )


def test_the_arguments_of_the_originals_chart_are_understood():
    got = settings.parse(
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

    assert got.secure_port == 6443
    assert got.cert_dir == "/tmp/cert"
    assert got.prometheus_url == "http://prometheus.monitoring.svc:9090/prefix"
    assert (got.metrics_relist_interval, got.metrics_max_age) == (60.0, 60.0)
    assert got.verbosity == 4
    assert got.sources == (settings.Source(kind="config", name="/etc/adapter/config.yaml"),)


@pytest.mark.parametrize("verbosity", [["-v=6"], ["-v6"], ["-v", "6"], ["--v=6"], ["--v", "6"]])
def test_verbosity_is_spelled_in_each_of_pflags_ways(verbosity):
    assert parse(*verbosity).verbosity == 6


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], False),
        (["--prometheus-auth-incluster"], True),
        (["--prometheus-auth-incluster=T"], True),
        (["--prometheus-auth-incluster=false"], False),
        (["--prometheus-auth-incluster", "--prometheus-auth-incluster=0"], False),
        (["--prometheus-auth-incluster", "false"], True),  # pflag: a word of its own is no value
    ],
)
def test_a_switch_takes_its_value_only_after_an_equals_sign(argv, expected):
    assert parse(*argv).prometheus_auth_incluster is expected


def test_sources_keep_the_order_of_the_command_line():
    got = settings.parse(
        ["--preset=gpu-dcgm", "--config", "a.yaml", "--preset", "gpu-amd", "--config=b.yaml"]
    )

    assert [(source.kind, source.name) for source in got.sources] == [
        ("preset", "gpu-dcgm"),
        ("config", "a.yaml"),
        ("preset", "gpu-amd"),
        ("config", "b.yaml"),
    ]


def test_the_last_of_several_values_counts():
    assert parse("--secure-port=1", "--secure-port=6443").secure_port == 6443


def test_headers_keep_their_commas_and_equals_signs():
    got = parse(
        "--prometheus-header=X-Scope-OrgID=a,b",
        "--prometheus-header",
        "Authorization=Basic eDp5Cg==",
        "--prometheus-header=X-Empty",
    )

    assert got.prometheus_headers == (
        ("X-Scope-OrgID", "a,b"),
        ("Authorization", "Basic eDp5Cg=="),
        ("X-Empty", ""),
    )


def test_two_dashes_end_the_flags():
    assert parse("--", "--secure-port=1").secure_port == 443


def test_a_lone_dash_and_other_words_are_ignored():
    assert parse("serve", "-", "now").secure_port == 443


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["--secure-port=x", "--help"], ["-hv=1"]])
def test_help_is_asked_for(argv):
    with pytest.raises(settings.HelpRequested):
        settings.parse(argv)


URL = "must be an http or https URL with a host"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--secure-prot=1", "unknown flag: --secure-prot (did you mean --secure-port?)"),
        ("--zzzz", "unknown flag: --zzzz"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("-config=x", "unknown shorthand flag: 'c' in -config=x (did you mean --config?)"),
        ("--=x", "bad flag syntax: --=x"),
        ("---v", "bad flag syntax: ---v"),
        ("--secure-port", "flag needs an argument: --secure-port"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("-v=", 'invalid argument "=" for -v: not a whole number'),
        ("--prometheus-url=http://u:secret@h:x", f"--prometheus-url=http://...@h:x: {URL}"),
    ],
)
def test_a_single_mistake_is_one_problem(argv, expected):
    assert problems(*RULES, argv) == (expected,)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("secure-port", "6x", "not a whole number"),
        ("secure-port", "0b3", "not a whole number"),
        ("secure-port", "0x", "not a whole number"),
        ("v", "99999999999999999999", "value out of range"),
        ("client-qps", "many", "not a number"),
        ("client-qps", " 5", "not a number"),
        ("client-qps", "nan", "not a number"),
        ("profiling", "yes", "neither true nor false"),
    ],
)
def test_text_of_another_type_is_refused(name, text, why):
    assert problems(*RULES, f"--{name}={text}") == (
        f'invalid argument "{text}" for --{name}: {why}',
    )


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ("--prometheus-verb=PUT", "must be GET or POST"),
        ("--prometheus-verb=get", "must be GET or POST"),
        ("--prometheus-url=prometheus:9090", URL),
        ("--prometheus-url=http://", URL),
        ("--prometheus-url=http://[::1", URL),
        ("--prometheus-timeout=0s", "must be more than 0"),
        ("--metrics-relist-interval=0s", "must be more than 0"),
        ("--metrics-relist-interval=-1m0s", "must be more than 0"),
        ("--metrics-max-age=-1m0s", "must be 0 or more"),
        ("--discovery-interval=-1m0s", "must be 0 or more"),
        ("--secure-port=0", "nothing would be served"),
        ("--secure-port=65536", "must be between 1 and 65535"),
        ("--bind-address=here", "must be an IP address"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(argv, why):
    assert problems(*RULES, argv) == (f"{argv}: {why}",)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("tls-cert-file", "tls-private-key-file"),
        ("tls-private-key-file", "tls-cert-file"),
        ("prometheus-client-tls-cert-file", "prometheus-client-tls-key-file"),
        ("prometheus-client-tls-key-file", "prometheus-client-tls-cert-file"),
    ],
)
def test_a_certificate_and_its_key_come_together(given, missing):
    assert problems(*RULES, f"--{given}=x.pem") == (f"--{given}=x.pem needs --{missing} as well",)


def test_a_header_cannot_smuggle_another():
    assert problems(*RULES, "--prometheus-header=X=a\r\nY: b") == (
        "--prometheus-header=X: its value holds a control character",
    )


@pytest.mark.parametrize("text", ["Authorization: Bearer secret", "=secret", "X Y=secret"])
def test_a_header_that_is_none_is_refused_without_showing_its_value(text):
    (problem,) = problems(*RULES, f"--prometheus-header={text}")

    assert "must be Name=value" in problem
    assert "secret" not in problem


def test_a_bad_duration_names_the_flag_and_the_text():
    (problem,) = problems(*RULES, "--metrics-relist-interval=10")

    assert problem.startswith('invalid argument "10" for --metrics-relist-interval: not a duration')


def test_a_list_with_an_open_quote_is_refused():
    (problem,) = problems(*RULES, '--tls-cipher-suites="A,B')

    assert "not a list separated by commas" in problem


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.1", "::", "::ffff:10.0.0.1"])
def test_an_address_that_others_reach_is_refused_with_the_reason(address):
    (problem,) = problems(*RULES, "--objects=pods.yaml", f"--bind-address={address}")

    assert problem.startswith(f"--bind-address={address}: with --objects there is no cluster")
    assert parse(f"--bind-address={address}").bind_address == address


def test_without_a_cluster_the_address_is_a_loopback_address():
    assert parse("--objects=pods.yaml").bind_address == "127.0.0.1"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--tls-min-version=TLS1.2", "--tls-min-version: unknown TLS version 'TLS1.2'"),
        ("--tls-cipher-suites=NOPE", "--tls-cipher-suites: unknown cipher suites NOPE"),
        ("--tls-sni-cert-key=a", "--tls-sni-cert-key=a: expected comma separated"),
        ("--authorization-always-allow-paths=/a*b", "only trailing * allowed"),
        ("--shutdown-delay=-1s", "--shutdown-delay=-1s: must be 0 or more"),
    ],
)
def test_what_cannot_be_served_is_refused(flag, words):
    (problem,) = problems(*RULES, flag)

    assert words in problem


def test_old_tls_versions_are_taken_and_told_to_be_refused():
    (notice,) = parse("--tls-min-version=VersionTLS10").notices

    assert "TLS 1.2 is the lowest" in notice


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1", "localhost"])
def test_a_loopback_address_is_taken(address):
    assert parse(f"--bind-address={address}").bind_address == address


@pytest.mark.parametrize("argv", [[], ["--config="], ["--config", ""]])
def test_without_rules_the_choice_is_left_to_the_server(argv):
    assert settings.parse(argv).sources == ()


def test_a_window_shorter_than_the_interval_is_refused_naming_both():
    (problem,) = problems(*RULES, "--metrics-relist-interval=5m", "--metrics-max-age=90s")

    assert problem == (
        "--metrics-max-age=1m30s is shorter than --metrics-relist-interval=5m0s: "
        "series would be lost between two listings"
    )


def test_two_ways_to_authenticate_exclude_each_other():
    both = ("--prometheus-auth-incluster", "--prometheus-auth-config=/kube")

    assert problems(*RULES, *both) == (
        "--prometheus-auth-incluster and --prometheus-auth-config=/kube exclude each other",
    )


@pytest.mark.parametrize(
    ("argv", "first"),
    [
        (["--prometheus-header=authorization=Basic x"], "the Authorization of --prometheus-header"),
        (["--prometheus-url=https://jane:x@there/a"], "the user in --prometheus-url"),
    ],
)
def test_a_token_that_is_not_sent_is_said(argv, first):
    got = parse("--prometheus-token-file=/token", *argv)

    (notice,) = got.notices
    assert notice == f"--prometheus-token-file: accepted, without effect: {first} goes first"


@pytest.mark.parametrize(
    "argv", [["--prometheus-header=X-Scope=a"], ["--prometheus-url=https://there?/a@b"]]
)
def test_a_token_that_is_sent_is_none_to_tell_of(argv):
    assert parse("--prometheus-token-file=/token", *argv).notices == ()


def test_all_problems_are_told_at_once():
    got = problems("--secure-prot=1", "--secure-port=x", "--prometheus-verb=PUT")

    assert len(got) == 3
    assert got[0].startswith("unknown flag: --secure-prot")
    assert got[1].startswith('invalid argument "x" for --secure-port')
    assert got[2] == "--prometheus-verb=PUT: must be GET or POST"


@pytest.mark.parametrize(
    ("argv", "qps", "burst"),
    [
        (["--client-qps=50", "--client-burst=0x20"], 50.0, 32),
        (["--client-qps=0.5", "--client-burst=010"], 0.5, 8),
        (["--client-qps=0", "--client-burst=-1"], 5.0, 10),
    ],
)
def test_client_limits(argv, qps, burst):
    got = parse(*argv)

    assert (got.client_qps, got.client_burst) == (qps, burst)


def test_what_changes_nothing_is_said_once_for_each_reason():
    got = parse(
        "--logtostderr=true",
        "--log-dir=/tmp",
        "--logtostderr",
        "--disable-http2",
        "--http2-max-streams-per-connection=3",
        "--disable-http2",
        "--audit-log-path=-",
    )

    assert len(got.notices) == 3
    assert got.notices[0] == (
        "--logtostderr, --log_dir: accepted, without effect: "
        "the log goes to standard error, and nowhere else"
    )
    assert got.notices[1].startswith(
        "--disable-http2, --http2-max-streams-per-connection: accepted, "
        "without effect: only HTTP/1.1 is served"
    )
    assert got.notices[2].startswith(
        "--audit-log-path: accepted, without effect: there is no audit"
    )


def test_manifests_make_the_kubeconfig_idle_and_that_is_said():
    got = parse("--objects=a.yaml", "--objects=b,c.yaml", "--lister-kubeconfig=/kube")

    assert got.objects == ("a.yaml", "b,c.yaml")
    (notice,) = got.notices
    assert notice == (
        "--lister-kubeconfig: accepted, without effect: "
        "the manifests of --objects stand for the cluster"
    )


def test_every_flag_is_accepted_with_its_own_default():
    argv = [f"--{each.name}={each.default}" for each in settings.FLAGS if each.default]

    got = settings.parse(["--config=rules.yaml", *argv])

    assert got.secure_port == 443
    idle = [each.name for each in settings.FLAGS if each.default and not each.works]
    assert [name for name in idle if f"--{name}" not in "\n".join(got.notices)] == []


def test_names_are_unique_and_groups_are_in_one_piece():
    names = [each.name for each in settings.FLAGS]
    headings = re.findall(r"^### (.+)$", settings.markdown(), re.MULTILINE)

    assert len(set(names)) == len(names)
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a,b", ("a", "b")), ('"a,b",c', ("a,b", "c")), ("", ())],
)
def test_a_list_is_read_as_csv(text, expected):
    one = flag.Flag(name="x", type="strings", default="", group="", help="")

    assert one.read(text) == expected


def test_a_list_that_is_given_replaces_the_default_and_then_grows():
    names = flag.Flag(name="x", type="strings", default="a,b", group="", help="")
    values = checks.command_line.values

    given = checks.command_line.read(["--x=c", "--x=d,e"], [names]).given

    assert values((), [names]) == {"x": ("a", "b")}
    assert values(given, [names]) == {"x": ("c", "d", "e")}


def test_the_help_text_names_every_flag_its_default_and_why_it_is_idle():
    text = settings.usage()

    for each in settings.FLAGS:
        assert f"--{each.name}" in text
    assert "-v, --v int" in text
    assert "(default 0.0.0.0)" in text
    assert "No effect: only HTTP/1.1 is served." in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_readme_has_every_flag_once_and_says_which_have_no_effect():
    works, idle = settings.markdown().split("### Accepted, and without effect")
    names = re.compile(r"`(?:-v, )?--([^`]+)`")
    rows = re.findall(r"^\| `(?:-v, )?--([^`]+)` \|", works, re.MULTILINE)

    assert rows == [each.name for each in settings.FLAGS if each.works]
    expected = [each.name for each in settings.FLAGS if not each.works]
    assert sorted(names.findall(idle)) == sorted(expected)


def test_the_module_prints_the_readmes_table():
    done = subprocess.run(
        [sys.executable, "-m", "adapter.settings"], capture_output=True, text=True, check=True
    )

    assert done.stdout == settings.markdown()
