from __future__ import annotations

import json

import pytest

from rules.document import manifests

RULES = """\
rules:
- seriesQuery: up
  metricQuery: up
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: adapter, namespace: monitoring}
data:
  note: text
  config.yaml: |
    rules:
    - seriesQuery: up
      metricQuery: up
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: adapter}
spec:
  template:
    spec:
      containers:
      - name: other
        image: nginx
        args: [--nope]
      - name: adapter
        image: registry/prometheus-adapter:v0.12.0
        command: [/adapter]
        args:
        - --prometheus-url=$(URL)
        - --config=/etc/adapter/config.yaml
        env:
        - {name: URL, value: "http://prometheus:9090"}
        volumeMounts:
        - {name: rules, mountPath: /etc/adapter/}
        - {name: tmp, mountPath: /tmp}
      volumes:
      - name: rules
        configMap: {name: adapter, items: [{key: rules, path: config.yaml}]}
      - name: tmp
        emptyDir: {}
"""


def find(text):
    return manifests.find(text.encode(), file="f.yaml")


def problems(found):
    every = [problem for part in found.rules for problem in part.parsed[1]]
    return [
        str(each) for each in sorted(every, key=lambda each: (each.where.line, each.where.column))
    ]


@pytest.mark.parametrize("text", ["", "rules: []", RULES, "rules: {a: b}", "- x", "{", "a: [b"])
def test_other_files_are_rules_files(text):
    assert find(text) is None


def test_rules_in_a_configmap_have_the_positions_of_its_file():
    found = find(CONFIG_MAP)

    assert [part.title for part in found.rules] == ["ConfigMap monitoring/adapter, key config.yaml"]
    assert found.config_maps == (("adapter", frozenset({"note", "config.yaml"})),)
    missing, unknown = problems(found)
    assert missing.startswith("f.yaml:8:7: warning: rules[0]: has no metricsQuery")
    assert unknown.startswith("f.yaml:9:7: error: rules[0].metricQuery: unknown key")


@pytest.mark.parametrize(
    "text", ["rules: [{alert: x, expr: y}]", "groups: [{rules: []}]", "- rules", "rules", "a: {"]
)
def test_other_text_in_a_configmap_is_ignored(text):
    other = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": text}})

    assert find(other).rules == ()


@pytest.mark.parametrize("header", ["|-", "|2", "| # comment"])
def test_a_block_scalar_may_have_indicators(header):
    text = CONFIG_MAP.replace("config.yaml: |", f"config.yaml: {header}")

    assert problems(find(text))[1].startswith("f.yaml:9:7: error: ")


def test_rules_in_quotes_have_positions_in_their_text():
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "adapter"},
        "data": {"config.yaml": RULES},
    }

    found = find(json.dumps(document))

    assert problems(found)[1].startswith("f.yaml (config.yaml):3:3: error: rules[0].metricQuery")


def test_several_documents_and_lists_are_read():
    indented = "".join(f"  {line}\n" for line in CONFIG_MAP.splitlines()).replace("  ", "- ", 1)
    text = f"# first\n---\n{CONFIG_MAP}---\n---\napiVersion: v1\nkind: List\nitems:\n{indented}"

    found = find(text)

    assert len(found.rules) == 2
    assert problems(found)[3].startswith("f.yaml:25:9: error: rules[0].metricQuery")


def test_invalid_yaml_in_a_configmap_is_an_error_with_its_position():
    found = find(CONFIG_MAP.replace("metricQuery: up", "metricQuery: {"))

    assert "f.yaml:10:" in problems(found)[0]
    assert "error: invalid YAML" in problems(found)[0]


def test_invalid_yaml_of_a_manifest_is_an_error_of_a_rules_file():
    assert find("kind: ConfigMap\napiVersion: {") is None


def test_other_manifests_contain_nothing():
    found = find("apiVersion: v1\nkind: Service\nmetadata: {name: x}\n")

    assert (found.rules, found.arguments, found.problems) == ((), (), ())


def test_the_arguments_of_an_adapter_are_found():
    (arguments,) = find(DEPLOYMENT).arguments

    assert arguments.title == "Deployment adapter, container adapter"
    assert [each.text for each in arguments.arguments] == [
        "/adapter",
        "--prometheus-url=http://prometheus:9090",
        "--config=/etc/adapter/config.yaml",
    ]
    assert arguments.key_of("/etc/adapter/config.yaml") == ("adapter", "rules")
    assert arguments.key_of("/etc/adapter/more.yaml") == ("adapter", "more.yaml")
    assert arguments.key_of("/tmp/config.yaml") is None
    assert str(arguments.problem("--config=/x", "no")) == "f.yaml:16:11: error: --config=/x: no"
    assert str(arguments.problem("--other", "no")) == "f.yaml:11: error: --other: no"


def test_a_file_mounted_by_sub_path_is_found():
    mount = "{name: rules, mountPath: /etc/adapter/config.yaml, subPath: config.yaml}"

    (arguments,) = find(
        DEPLOYMENT.replace("{name: rules, mountPath: /etc/adapter/}", mount)
    ).arguments

    assert arguments.key_of("/etc/adapter/config.yaml") == ("adapter", "rules")


VALUES = """\
prometheus: {url: http://prometheus}
rules:
  default: false
  custom:
  - seriesQuery: up
    metricQuery: up
  external: []
extraArguments:
- --prometheus-token=x
"""


def test_helm_values_have_rules_and_flags():
    found = find(VALUES)

    (part,) = found.rules
    assert len(part.parsed[0].rules) == 1
    assert "f.yaml:6:5: error: rules.custom[0].metricQuery: unknown key" in problems(found)[1]
    assert [each.text for each in found.arguments[0].arguments] == ["--prometheus-token=x"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("  default: false\n", ""),
            "f.yaml:3:3: warning: rules.default: is true unless it is set",
        ),
        (("default: false", "default: true"), "f.yaml:3:12: warning: rules.default: is true"),
        (("external:", "externals:"), "f.yaml:7:3: error: rules.externals: unknown key"),
        (("default: false", "existing: mine"), "f.yaml:3:13: warning: rules.existing: replaces"),
    ],
)
def test_helm_values_that_do_not_do_what_they_seem_to(change, message):
    found = find(VALUES.replace(*change))

    assert any(problem.startswith(message) for problem in problems(found)), problems(found)


def test_values_of_a_chart_that_depends_on_the_adapter_are_found():
    nested = "".join(f"  {line}\n" for line in VALUES.splitlines())

    found = find(f"replicas: 1\nprometheus-adapter:\n{nested}")

    assert "f.yaml:8:7: error: prometheus-adapter.rules.custom[0].metricQuery" in problems(found)[1]


def test_an_empty_value_of_the_chart_is_no_value():
    (part,) = find(VALUES.replace("default: false", "resource: {}")).rules

    assert part.parsed[0].resource_rules is None


def test_sources_in_helm_values_are_parsed():
    sources = "sources: {team-b: {url: http://b}, Team: {}}"
    found = find(VALUES.replace("default: false", sources))

    (part,) = found.rules
    assert [each.name for each in part.parsed[0].sources] == ["team-b", "Team"]
    assert any("rules.sources.Team: has no url" in each for each in problems(found))


def test_values_without_rules_mean_the_rules_of_the_chart():
    default, unused = problems(find("prometheus: {url: http://p, rules: {default: false}}\n"))

    assert unused.startswith("f.yaml:1:29: warning: prometheus.rules: is not a value of the chart")
    assert default.startswith("f.yaml:1:1: warning: rules.default: is true unless it is set")


def test_a_rules_file_with_an_address_is_not_taken_for_helm_values():
    assert find(f"prometheus: {{url: http://p}}\n{RULES}") is None


APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: adapter}
spec:
  source:
    helm:
      values: |
        rules:
          default: false
          custom:
          - metricQuery: up
"""
RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: adapter}
spec:
  values:
    rules:
      default: false
      custom:
      - metricQuery: up
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (APPLICATION, "f.yaml:11:13"),
        (APPLICATION.replace("values: |\n", "valuesObject:\n"), "f.yaml:11:13"),
        (
            APPLICATION.replace("  source:", "  sources:\n  - ref: x\n  -", 1),
            "f.yaml:13:13",
        ),
        (RELEASE, "f.yaml:9:9"),
    ],
)
def test_helm_values_in_what_argo_and_flux_deploy_are_found(text, place):
    found = find(text)

    assert any(each.startswith(f"{place}: error: rules.custom[0]") for each in problems(found))
