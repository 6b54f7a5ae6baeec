"""`sources` of a rules file: every key, and what is refused at which place."""

from __future__ import annotations

import pytest

from rules import ruleset
from rules.document import config
from rules.errors import ConfigError
from rules.findings import State
from rules.lint import check

RULE = "{seriesQuery: up, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'"
FULL = """
sources:
  team-b:
    url: https://prometheus.team-b.svc:9090/base
    identity: aws
    awsRegion: eu-west-1
    awsProfile: team-b
    verb: POST
    timeout: 1m30s
    headers: {X-Scope-OrgID: team-b, X-Empty: ""}
    headerFiles: {X-Key: /secrets/key}
    caFile: /secrets/ca.crt
    clientCertFile: /secrets/tls.crt
    clientKeyFile: /secrets/tls.key
    authConfig: /secrets/kubeconfig
  plain: {url: "http://plain", authInCluster: true, usernameFile: /user, passwordFile: /word}
"""


def problems_of(*texts: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        ruleset.load([(f"{number}.yaml", text) for number, text in enumerate(texts)])
    return [str(problem) for problem in caught.value.problems if problem.state is State.FAILURE]


def test_every_key_is_parsed():
    parsed, problems = config.parse(FULL, file="f.yaml")

    assert problems == ()
    team, plain = parsed.sources
    assert (team.name, team.url, team.verb, team.timeout) == (
        "team-b",
        "https://prometheus.team-b.svc:9090/base",
        "POST",
        90.0,
    )
    assert team.headers == (("X-Scope-OrgID", "team-b"), ("X-Empty", ""))
    assert team.header_files == (("X-Key", "/secrets/key"),)
    assert (team.identity, team.aws_region, team.aws_profile) == ("aws", "eu-west-1", "team-b")
    assert team.ca_file == "/secrets/ca.crt"
    assert (team.client_cert_file, team.client_key_file) == ("/secrets/tls.crt", "/secrets/tls.key")
    assert (team.auth_in_cluster, team.auth_config) == (False, "/secrets/kubeconfig")
    assert str(team.where) == "sources.team-b (f.yaml:4)"
    assert (plain.verb, plain.headers, plain.timeout, plain.auth_in_cluster) == (
        "GET",
        (),
        10,
        True,
    )
    assert (plain.username_file, plain.password_file) == ("/user", "/word")
    assert (plain.token_file, plain.ca_file, plain.client_cert_file, plain.auth_config) == (
        (None,) * 4
    )


def test_a_rule_names_a_source_of_any_file():
    loaded = ruleset.load(
        [
            ("a.yaml", f"rules: [{RULE}, source: team-b}}, {RULE}}}, {RULE}, source: default}}]"),
            ("b.yaml", FULL),
            ("c.yaml", f"externalRules: [{RULE}, source: plain}}]"),
        ]
    )

    assert [rule.config.source for rule in loaded.rules] == ["team-b", "default", "default"]
    assert [rule.config.source for rule in loaded.external] == ["plain"]
    assert [source.name for source in loaded.sources] == ["team-b", "plain"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("default: {url: http://p}", "2:3: error: sources.default: the default source is that of"),
        ("embedded: {url: http://p}", "2:3: error: sources.embedded: the embedded source is that"),
        ("Team_B: {url: http://p}", "2:3: error: sources.Team_B: the name must have lower-case"),
        ("a: {}", "2:6: error: sources.a: has no url"),
        ("a:", "2:5: error: sources.a: has no url"),
        ("a: 5", "2:6: error: sources.a: must be a mapping"),
        ("a: {url: ftp://p}", "2:12: error: sources.a.url: must be an http or https URL"),
        ("a: {url: 'http://p:x'}", "2:12: error: sources.a.url: must be an http or https URL"),
        (
            "a: {url: 'http://p/api/v1'}",
            "2:12: error: sources.a.url: must be the base URL of Prometheus: remove /api/v1",
        ),
        ("a: {url: 'http://u:secret@p'}", "2:12: error: sources.a.url: contains a user: set"),
        (
            "a: {url: http://p, urls: x}",
            "2:22: error: sources.a.urls: unknown key 'urls': did you mean url?",
        ),
        ("a: {url: http://p, verb: PUT}", "error: sources.a.verb: must be one of GET, POST"),
        ("a: {url: http://p, timeout: 0s}", "error: sources.a.timeout: must be longer than 0s"),
        (
            "a: {url: http://p, headers: {authorization: Bearer secret}}",
            "2:32: error: sources.a.headers.authorization: would be a secret in the rules file",
        ),
        ("a: {url: http://p, headers: {Cookie: }}", "error: sources.a.headers.Cookie: would be"),
        ("a: {url: http://p, headers: {'a b': x}}", "is not a valid name of a header"),
        ('a: {url: http://p, headers: {a: "x\\ny"}}', "the value contains a control character"),
        ("a: {url: http://p, headers: {a: [x]}}", "error: sources.a.headers.a: must be text"),
        ("a: {url: http://p, clientKeyFile: x}", "a.clientKeyFile: needs clientCertFile"),
        ("a: {url: http://p, clientCertFile: x}", "a.clientCertFile: needs clientKeyFile"),
        (
            "a: {url: http://p, authInCluster: yes, authConfig: x}",
            "sources.a.authConfig: conflicts with authInCluster: remove one of them",
        ),
        ("a: {url: http://p, passwordFile: x}", "a.passwordFile: needs usernameFile"),
        (
            "a: {url: http://p, tokenFile: x, usernameFile: x, passwordFile: x}",
            "sources.a.usernameFile: conflicts with tokenFile: remove one of them",
        ),
        ("a: {url: http://p, awsRegion: x}", "sources.a.awsRegion: needs identity"),
        ("a: {url: http://p, identity: ibm}", "identity: must be one of aws, azure, google, not"),
        (
            "a: {url: http://p, oauth2TokenUrl: x, oauth2ClientId: a, oauth2ClientSecretFile: b}",
            "error: sources.a.oauth2TokenUrl: must be an http or https URL",
        ),
        (
            "a: {url: http://p, tokenFile: x, headerFiles: {authorization: x}}",
            "sources.a.headerFiles: conflicts with tokenFile: remove one of them",
        ),
        (
            "a: {url: http://p, headers: {X-Scope-OrgID: x}, headerFiles: {x-scope-orgid: x}}",
            "sources.a.headerFiles: conflicts with headers: remove one of them",
        ),
    ],
)
def test_a_mistake_is_one_error_at_its_place(text, problem):
    (error,) = problems_of(f"sources:\n  {text}\n")

    assert problem in error
    assert "secret" not in error.replace("be a secret", "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("team-a", "there is no source 'team-a': did you mean team-b?"),
        ("x", "there is no source 'x': known: default, team-b, plain"),
    ],
)
def test_an_unknown_source_is_an_error_of_the_rule(name, hint):
    (error,) = problems_of(FULL + f"rules:\n- {RULE}, source: {name}}}\n")

    assert error.startswith("0.yaml:18:")
    assert f"error: rules[0].source: {hint}" in error


def test_a_source_that_two_files_have_is_an_error():
    (error,) = problems_of(FULL, "sources:\n  plain: {url: http://other}\n")

    assert (
        error == "1.yaml:2:10: error: sources.plain: already set in 0.yaml: remove one of the two"
    )


def warnings_of(text: str) -> list[str]:
    loaded = ruleset.load([("a.yaml", text)])
    return [str(each) for each in check.warnings(loaded) if each.where.path.startswith("sources")]


def test_a_source_that_no_rule_uses_is_a_warning():
    warning, _ = warnings_of(FULL + f"rules:\n- {RULE}, source: plain}}\n")

    assert warning.startswith("a.yaml:4:5: warning: sources.team-b: no rule uses this source: set")


@pytest.mark.parametrize(
    "key", ["tokenFile: /token", "authInCluster: true", "usernameFile: /u, passwordFile: /p"]
)
def test_a_token_that_is_sent_in_plain_text_is_a_warning(key):
    (warning,) = warnings_of(
        f"sources: {{a: {{url: 'http://p', {key}}}}}\nrules:\n- {RULE}, source: a}}\n"
    )

    assert "warning: sources.a.url: is not https, so everybody on the path can read" in warning


def test_a_client_secret_that_is_sent_in_plain_text_is_a_warning():
    (warning,) = warnings_of(
        "sources: {a: {url: 'https://p', oauth2TokenUrl: 'http://idp', oauth2ClientId: a, "
        f"oauth2ClientSecretFile: /s}}}}\nrules:\n- {RULE}, source: a}}\n"
    )

    assert "warning: sources.a.oauth2TokenUrl: is not https, so everybody on the path" in warning


@pytest.mark.parametrize("source", ["url: 'https://p', tokenFile: /token", "url: 'http://p'"])
def test_a_source_without_a_token_in_plain_text_gives_no_warning(source):
    assert warnings_of(f"sources: {{a: {{{source}}}}}\nrules:\n- {RULE}, source: a}}\n") == []
