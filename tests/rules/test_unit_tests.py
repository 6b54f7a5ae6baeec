from __future__ import annotations

import math

import pytest

from rules import unit_tests
from rules.errors import ConfigError
from rules.kinds import PODS, GroupResource
from rules.selectors import selectors

SUITE = """
rule_files: [rules.yaml]
presets: [gpu-dcgm]
tests:
- name: two pods
  interval: 30s
  input_series:
  - {series: 'gpu_util{pod="a"}', values: 1 2}
  - {series: 'up', values: 1}
  custom_metric_test:
  - eval_time: 1m
    metric: utilization
    objects: [b]
    exp_values: {a: 37.5}
  - {eval_time: 1h30m, metric: power, resource: Deployment.apps, namespace: gpu, selector: 'x=y'}
  external_metric_test:
  - eval_time: 0s
    metric: queue
    exp_samples: [{labels: '{queue="x",a="b"}', value: 1500m}, {value: 2k}]
"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        ("1 -2.5 1e3 .5 +Inf -Inf", (1, -2.5, 1000, 0.5, math.inf, -math.inf)),
        ("1x3", (1, 1, 1, 1)),
        ("1+2x3", (1, 3, 5, 7)),
        ("10-5x2", (10, 5, 0)),
        ("-1-1x1 -1+1x1", (-1, -2, -1, 0)),
        ("_ 1 _x2 stale", (None, 1, None, None, "stale")),
        ("0.5+0.25x2", (0.5, 0.75, 1)),
    ],
)
def test_notation(text, values):
    assert unit_tests.notation(text) == values


def test_notation_of_nan():
    (value,) = unit_tests.notation("NaN")

    assert math.isnan(value)


@pytest.mark.parametrize("text", ["x", "1+", "1+2", "_x", "stalex2", "{{schema:1}}", "1x100000"])
def test_other_notation_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a value|more than 100000 values"):
        unit_tests.notation(text)


def test_a_file_is_parsed():
    suite = unit_tests.parse(SUITE.encode(), file="t.yaml")

    assert (suite.rule_files, suite.presets) == (("rules.yaml",), ("gpu-dcgm",))
    (test,) = suite.tests
    assert (test.name, test.interval) == ("two pods", 30)
    assert [(each.labels, each.values) for each in test.series] == [
        ({"__name__": "gpu_util", "pod": "a"}, (1, 2)),
        ({"__name__": "up"}, (1,)),
    ]
    first, second, external = test.cases
    assert first.place == "t.yaml:11: tests[0].custom_metric_test[0]"
    assert (first.eval_time, first.metric, first.resource) == (60, "utilization", PODS)
    assert (first.namespace, first.objects, first.expected) == ("default", ("b", "a"), {"a": 37500})
    assert (second.eval_time, second.resource) == (5400, GroupResource("apps", "deployments"))
    assert (second.namespace, second.selector) == ("gpu", selectors.parse("x=y"))
    assert (external.resource, external.expected) == (
        None,
        {'{a="b",queue="x"}': 1500, "{}": 2_000_000},
    )


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("rule_files", "rulefiles", "2:1: error: rulefiles: unknown key 'rulefiles': did you mean"),
        ("interval: 30s", "interval: 0s", "must be longer than 0s"),
        ("interval: 30s", "interval: soon", "write a duration such as 30s"),
        ("values: 1 2", "values: 1 x", "input_series[0].values: 'x' is not a value"),
        (", values: 1 2", "", "8:5: error: tests[0].input_series[0]: has no values"),
        ("series: 'up'", "series: 'rate(up[1m])'", "not a series selector"),
        ("series: 'up'", "series: '{a=\"b\"}'", "input_series[1].series: has no name"),
        ("series: 'up'", "series: 'up{a=~\"b\"}'", "a=~... is not a label: use = only"),
        ("    metric: utilization\n", "", "tests[0].custom_metric_test[0]: has no metric"),
        ("- eval_time: 1m\n", "- eval: 1m\n", "custom_metric_test[0]: has no eval_time"),
        ("series: 'up'", "series: 'gpu_util{pod=\"a\"}'", "input_series[1]: is given twice"),
        ("a: 37.5", "a: much", "custom_metric_test[0].exp_values.a: 'much' is not a quantity"),
        ("Deployment.apps", "Deploymnt", 'does not serve the resource "Deploymnt"'),
        ("'x=y'", "'x in'", "custom_metric_test[1].selector: "),
        ("value: 1500m", "value: 1500x", "exp_samples[0].value: '1500x' is not a quantity"),
        ("{value: 2k}", "{value: 2k}, {value: 1}", "exp_samples[2]: {} is given twice"),
        ("objects: [b]", "objects: [[]]", "custom_metric_test[0].objects[0]: must be text"),
        (SUITE, "", "t.yaml: error: contains no tests"),
        (SUITE, "tests: [{name: x}]", "tests[0]: has no custom_metric_test and no external_me"),
    ],
)
def test_a_mistake_is_an_error_with_its_place(before, after, problem):
    assert before in SUITE

    with pytest.raises(ConfigError) as caught:
        unit_tests.parse(SUITE.replace(before, after, 1).encode(), file="t.yaml")

    assert problem in str(caught.value)
