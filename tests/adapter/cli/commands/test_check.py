"""`check` on manifests and Helm values."""

from __future__ import annotations

import pytest

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: adapter}
data:
  config.yaml: |
    rules:
    - seriesQuery: DCGM_FI_DEV_GPU_UTIL
      name: {as: duty_cycle_current}
      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
      metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: adapter}
spec:
  template:
    spec:
      containers:
      - name: adapter
        image: gpu-metrics-adapter:1
        args: [--prometheus-url=$(URL), --config=/etc/adapter/config.yaml, --preset=gpu-dcgm]
        volumeMounts: [{name: rules, mountPath: /etc/adapter}]
      volumes: [{name: rules, configMap: {name: adapter}}]
"""


@pytest.fixture
def check(tmp_path, cli):
    """Check a file; return the exit code and the lines."""

    def run(text, *arguments):
        (tmp_path / "f.yaml").write_text(text)
        ended = cli("check", "f.yaml", *arguments)
        return ended.code, ended.lines

    return run


def test_a_configmap_is_checked(check):
    title = "f.yaml:5: ConfigMap adapter, key config.yaml"

    assert check(CONFIG_MAP) == (0, [title, "0 errors, 0 warnings"])


def test_a_deployment_is_checked_with_its_configmap_and_presets(check):
    code, lines = check(CONFIG_MAP + DEPLOYMENT)

    assert code == 0
    assert lines[1] == "f.yaml:19: Deployment adapter, container adapter"
    assert "produces the same metric of namespaces, pods as rules[0] (f.yaml:7)" in lines[2]
    assert "preset gpu-dcgm" in lines[2]


@pytest.mark.parametrize(
    ("before", "after", "unread"),
    [
        ("configMap: {name: adapter}", "configMap: {name: other}", "ConfigMap other"),
        ("mountPath: /etc/adapter", "mountPath: /etc/other", "/etc/adapter/config.yaml"),
    ],
)
def test_rules_of_a_deployment_that_are_not_checked_are_named(check, before, after, unread):
    _, lines = check(CONFIG_MAP + DEPLOYMENT.replace(before, after))

    expected = f"f.yaml:19: Deployment adapter, container adapter; not among the files: {unread}"
    assert expected in lines


def test_presets_before_the_file_stay_before_it(check):
    args = ("--preset=gpu-dcgm", "--config=/etc/adapter/config.yaml")

    _, lines = check(CONFIG_MAP + DEPLOYMENT.replace(", ".join(args[::-1]), ", ".join(args)))

    assert lines[2].startswith("f.yaml:8:13: warning: rules[0].name: produces the same metric")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "--config=/etc/adapter/config.yaml",
            "--config=/etc/adapter/rules.yaml",
            (
                "f.yaml:21:41: error: --config=/etc/adapter/rules.yaml: ConfigMap adapter has no "
                "key rules.yaml, so the file does not exist; its keys: config.yaml"
            ),
        ),
        (
            "--preset=gpu-dcgm",
            "--presets=gpu-dcgm",
            "f.yaml:21:76: error: --presets: unknown flag; did you mean --preset?",
        ),
        (
            "--prometheus-url=$(URL)",
            "--prometheus-url=prometheus",
            (
                "f.yaml:21:16: error: --prometheus-url=prometheus: must be an http or https URL "
                "with a host"
            ),
        ),
    ],
)
def test_a_fault_in_a_deployment_is_an_error(check, before, after, message):
    code, lines = check(CONFIG_MAP + DEPLOYMENT.replace(before, after))

    assert code == 1
    assert message in lines


def test_a_deployment_that_does_not_read_its_configmap_gives_a_warning(check):
    _, lines = check(CONFIG_MAP + DEPLOYMENT.replace("--config=/etc/adapter/config.yaml, ", ""))

    (warning,) = (each for each in lines if "has no --config" in each)
    assert "the rules in ConfigMap adapter, which is mounted at /etc/adapter, are not" in warning


def test_flags_in_helm_values_are_checked(check):
    code, lines = check("rules: {default: false}\nextraArguments: [--prometheus-tokn-file=x]\n")

    assert code == 1
    assert lines[-2].endswith(
        "--prometheus-tokn-file: unknown flag; did you mean --prometheus-token-file?"
    )


def test_an_unknown_preset_of_a_deployment_is_an_error(check):
    code, lines = check(DEPLOYMENT.replace("gpu-dcgm", "gpu-dcmg", 3))

    assert code == 1
    assert "did you mean gpu-dcgm?" in lines[0]


SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"


def test_manifests_without_any_rules_give_a_warning(check):
    warning = "contains no rules: no ConfigMap with rules, and no workload of an adapter"

    assert check(SERVICE) == (0, [f"f.yaml: warning: {warning}", "0 errors, 1 warning"])


@pytest.mark.parametrize(
    "text",
    [
        'rules: [{"A": 1}]',
        'rules: [{name: {"A": 1}}]',
        '"A": 1',
        'sources: {"A": {url: "A"}}',
        'rules: [{metricsQuery: "A", seriesQuery: "A", source: "A", aggregate: "A"}]',
        'rules: [{metricsQuery: "<<A", seriesQuery: "x{A", name: {matches: "(A", as: "A"}}]',
        'rules: [{metricsQuery: "<<A", resources: {overrides: {"A": {resource: "A"}}}}]',
        'rules: [{seriesQuery: a, metricsQuery: "A(", resources: {template: "A"}}]',
        '{kind: ConfigMap, metadata: {name: "A"}, data: {"A": "rules: [x]"}}',
        '{rules: {custom: [{"A": 1}]}, prometheus: {url: "A"}}',
        "rules: [A",
    ],
)
def test_text_of_a_file_forges_no_line_and_controls_no_terminal(check, text):
    hostile = r"\e[2J\nFORGED\u202e"

    _, lines = check(text.replace("A", hostile))

    assert all(line.isprintable() for line in lines), lines
    assert not any(line.startswith("FORGED") for line in lines), lines


def test_other_manifests_beside_rules_give_no_warning(check, tmp_path):
    (tmp_path / "other.yaml").write_text(SERVICE)

    assert check(CONFIG_MAP, "other.yaml")[1][-1] == "0 errors, 0 warnings"


def test_the_files_of_a_folder_are_checked_as_the_server_reads_them(tmp_path, cli):
    folder = tmp_path / "rules"
    folder.mkdir()
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "README.md"):
        (folder / name).write_text("nothing: x\n")

    ended = cli("check", "--config=rules")

    errors = [each for each in ended.lines if ": error: " in each]
    assert ended.code == 1
    assert [each.partition(":")[0] for each in errors] == ["rules/a.yml", "rules/b.yaml"]


def test_presets_that_are_detected_are_named_and_not_read_as_a_file(check):
    note = "preset auto: `presets detect --prometheus-url=URL` prints which it means"

    assert check(SERVICE.replace("x", "y"), "--preset=auto")[1][0] == note


def test_targets_of_hpas_are_checked(check):
    text = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: bert}
spec:
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: AverageValue, averageValue: 200m}}
  - type: Pods
    pods:
      metric: {name: duty_cycle_current}
      target: {type: AverageValue, averageValue: 200m}
  - type: External
    external: {metric: {name: model_gpu_percent}, target: {type: Value, value: "400"}}
  - type: Object
    object: {metric: {name: x}, target: {type: Value, value: much}}
"""
    code, lines = check(text)

    assert code == 1
    assert lines == [
        (
            "f.yaml:11: warning: HorizontalPodAutoscaler bert: the target 0.2 of "
            "duty_cycle_current is less than 1 %. Write the percentage: 20 for 20 %, not 0.2"
        ),
        (
            "f.yaml:15: error: HorizontalPodAutoscaler bert: 'much' is not a quantity: write a "
            "number such as 37.5 or 37500m"
        ),
        "1 error, 1 warning",
    ]


def test_strict_makes_warnings_fail(check):
    text = """\
externalRules:
- seriesQuery: "jobs_total"
  name: {as: a/b}
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""
    code, lines = check(text)
    strict, same = check(text, "--strict")

    assert (code, strict, same) == (0, 1, lines)
    assert ": warning: externalRules[0].name: 'a/b' cannot be in the path of a URL" in lines[0]
    assert ": warning: externalRules[0].metricsQuery: takes the value of jobs_total" in lines[1]
    assert check(text.replace("sum(", "count("), "--strict")[0] == 1
    text = text.replace("a/b", "a.b").replace("sum(<<.Series>>{<<.LabelMatchers>>})", "vector(1)")
    assert check(text, "--strict")[0] == 0
