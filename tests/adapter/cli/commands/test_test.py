"""`test`: unit tests of rules on a real Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import docs

RULES = """
rules:
- seriesQuery: gpu_util
  name: {as: utilization}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: requests_total
  name: {as: rps}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_depth
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)
"""
SERIES = """
rule_files: [rules.yaml]
tests:
- name: everything
  input_series:
  - {series: 'gpu_util{namespace="default",pod="a",gpu="0"}', values: 10+10x20}
  - {series: 'gpu_util{namespace="default",pod="a",gpu="1"}', values: 25x20}
  - {series: 'gpu_util{namespace="default",pod="gone",gpu="1"}', values: 1 1 stale}
  - {series: 'requests_total{namespace="default",pod="a"}', values: 0+60x300}
  - {series: 'queue_depth{queue="x"}', values: 7x10}
  - {series: 'queue_depth{queue="y"}', values: _x3 8}
"""


@pytest.fixture
def run(real_servers, cli):
    """Run one file of tests; return the exit code and the output."""
    Path("rules.yaml").write_text(RULES)

    def run_tests(text):
        Path("tests.yaml").write_text(text)
        code, output, error = cli("test", "tests.yaml")
        return code, output + error

    return run_tests


def test_expected_values_pass_at_any_time(run):
    code, output = run(
        SERIES
        + """
  custom_metric_test:
  - {eval_time: 2m, metric: utilization, objects: [b, gone], exp_values: {a: 27500m}}
  - {eval_time: 1m, metric: utilization, exp_values: {a: 22.5, gone: 1}}
  - {eval_time: 5h, metric: rps, exp_values: {a: 1}}
  - {eval_time: 1m, metric: utilization, namespace: other, objects: [a]}
  external_metric_test:
  - eval_time: 3m
    metric: queue_depth
    exp_samples: [{labels: '{queue="x"}', value: 7}, {labels: '{queue="y"}', value: 8}]
  - eval_time: 3m
    metric: Queue_Depth
    selector: queue in (y)
    exp_samples: [{labels: '{queue="y"}', value: 8}]
"""
    )

    assert (code, output) == (0, "ok: tests.yaml: everything\n1 test, 0 failed\n")


def test_a_failure_shows_what_was_expected_the_query_and_the_cause(run):
    code, output = run(
        SERIES
        + """
  custom_metric_test:
  - {eval_time: 2m, metric: utilization, exp_values: {a: 28, b: 1}}
  - {eval_time: 2m, metric: utilisation, exp_values: {a: 28}}
  - {eval_time: 2h, metric: utilization, exp_values: {a: 28}}
  - {eval_time: 2m, metric: utilization, exp_values: {b: 28}}
  external_metric_test:
  - {eval_time: 3m, metric: queue_depth}
  - {eval_time: 3m, metric: queue_depth, selector: queue > 1}
"""
    )

    assert code == 1
    first, second, third, fourth, fifth, last = output.split("  tests.yaml:")[1:]
    assert first.splitlines() == [
        "14: tests[0].custom_metric_test[0]: utilization of pods in namespace default at 120s",
        "    expected  a: 28, b: 1",
        "    got       a: 27500m",
        '    query     avg(gpu_util{namespace="default",pod=~"a|b"}) by (pod)',
    ]
    assert "    got       no value\n    cause     WrongName: no rule produces a metric" in second
    assert "did you mean utilization (of namespaces, pods)?" in second
    assert "cause     NoSeries: rules[0] (rules.yaml:3) produces it, but Prometheus has" in third
    assert "cause     NotScraped: rules[0] (rules.yaml:3): 2 series of gpu_util have the" in fourth
    assert '    got       {queue="x"}: 7, {queue="y"}: 8\n' in fifth
    assert "cause     labelSelector: queue>1 is not supported, because" in last
    assert output.endswith("1 test, 1 failed\n")


def test_a_query_that_prometheus_refuses_fails(run):
    Path("rules.yaml").write_text(RULES.replace("avg(", "nope("))

    code, output = run(
        SERIES + "  custom_metric_test: [{eval_time: 2m, metric: utilization, objects: [a]}]\n"
    )

    assert code == 1
    assert re.search(r"cause     GET http://.*unknown function", output)


def test_every_pod_is_old_enough_for_min_pod_age(run):
    Path("rules.yaml").write_text(
        RULES.replace("  metricsQuery: avg", "  minPodAge: 1h\n  metricsQuery: avg")
    )

    code, output = run(
        SERIES
        + "  custom_metric_test: [{eval_time: 2m, metric: utilization, exp_values: {a: 27.5}}]\n"
    )

    assert code == 0, output


@pytest.mark.parametrize(
    ("resource", "values"),
    [
        ("nodes", "{n1: 10, n2: 30}"),
        ("namespaces", "{x: 10, y: 30}"),
        ("deployments.apps", "{d: 10}"),
    ],
)
def test_metrics_of_each_kind_are_tested(run, resource, values):
    overrides = "node: {resource: node}, dep: {group: apps, resource: deployment}, namespace:"
    Path("rules.yaml").write_text(RULES.replace("namespace:", overrides))

    code, output = run(
        f"""
rule_files: [rules.yaml]
tests:
- input_series:
  - {{series: 'gpu_util{{namespace="x",node="n1",dep="d"}}', values: 10x5}}
  - {{series: 'gpu_util{{namespace="y",node="n2",dep="e"}}', values: 30x5}}
  custom_metric_test:
  - {{eval_time: 2m, metric: utilization, namespace: x, resource: {resource}, exp_values: {values}}}
"""
    )

    assert code == 0, output


def test_an_object_whose_samples_are_too_old_has_no_value(run):
    Path("rules.yaml").write_text(
        RULES.replace("  name: {as: rps}", "  name: {as: rps}\n  maxSampleAge: 30s")
    )

    code, output = run(
        """
rule_files: [rules.yaml]
tests:
- input_series:
  - {series: 'requests_total{namespace="default",pod="a"}', values: 0+60x5}
  custom_metric_test:
  - {eval_time: 5m, metric: rps, exp_values: {a: 1}}
  - {eval_time: 5m29s, metric: rps, exp_values: {a: 1}}
  - {eval_time: 5m31s, metric: rps, exp_values: {a: 1}}
"""
    )

    assert code == 1
    assert output.count("custom_metric_test[") == 1
    assert "rps of pods in namespace default at 331s" in output
    assert 'query     group by (pod) (last_over_time({__name__="requests_total"' in output


def test_rules_of_every_source_are_evaluated_on_the_prometheus_of_the_test(run):
    sources = "sources: {other: {url: 'http://127.0.0.1:9', tokenFile: /none}}\n"
    rules = RULES.replace("- seriesQuery: gpu_util", "- source: other\n  seriesQuery: gpu_util")
    Path("rules.yaml").write_text(sources + rules)

    code, output = run(
        SERIES
        + """
  custom_metric_test:
  - {eval_time: 1m, metric: utilization, exp_values: {a: 22.5, gone: 1}}
"""
    )

    assert (code, output) == (0, "ok: tests.yaml: everything\n1 test, 0 failed\n")


def test_tests_do_not_see_the_series_of_others(run):
    case = "custom_metric_test: [{eval_time: 1m, metric: utilization, objects: [a]}]"

    code, output = run(
        f"{SERIES}  custom_metric_test: [{{eval_time: 5m, metric: rps, exp_values: {{a: 1}}}}]\n"
        f"- {{name: nothing, {case}}}\n"
    )

    assert (code, output.splitlines()[-1]) == (0, "2 tests, 0 failed")


def test_a_preset_is_tested(run):
    code, output = run(
        """
presets: [gpu-dcgm]
tests:
- input_series:
  - series: 'DCGM_FI_DEV_GPU_UTIL{UUID="1",exported_namespace="default",exported_pod="bert-0"}'
    values: '40'
  custom_metric_test:
  - {eval_time: 1m, metric: duty_cycle_current, exp_values: {bert-0: 40}}
"""
    )

    assert (code, output) == (0, "ok: tests.yaml: tests[0]\n1 test, 0 failed\n")


def test_the_documented_example_passes(run):
    page = (docs.ROOT / "docs/rules.md").read_text()
    example = page.split("## How do I test rules?")[1].split("```yaml\n")[1].split("```")[0]

    code, output = run(example)

    assert code == 0, output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tests: []", "tests.yaml: error: contains no tests"),
        ("rule_files: [none.yaml]\n" + SERIES.replace("rule_files", "#"), "none.yaml: error: "),
        (SERIES.replace("tests:", "test:"), "unknown key 'test': did you mean tests?"),
    ],
)
def test_a_file_with_errors_does_not_run(run, text, message):
    code, output = run(
        text + "  custom_metric_test: [{eval_time: 2m, metric: x, objects: [a]}]\n"
        if "input_series" in text
        else text
    )

    assert code == 1
    assert message in output
    assert "Traceback" not in output
