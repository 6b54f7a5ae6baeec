from __future__ import annotations

import pytest

from rules import ruleset
from rules.errors import MAX_PROBLEMS, ConfigError
from rules.findings import State

GOOD = "{seriesQuery: up, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'}"


def _problems(*texts: str) -> list[str]:
    """Load texts as 0.yaml, 1.yaml and so on, and return the problems of the refusal."""
    with pytest.raises(ConfigError) as caught:
        ruleset.load([(f"{number}.yaml", text) for number, text in enumerate(texts)])
    return [str(problem) for problem in caught.value.problems]


def test_the_rules_of_several_files_are_numbered_throughout():
    loaded = ruleset.load(
        [
            ("a.yaml", f"rules: [{GOOD}, {GOOD}]\nexternalRules: [{GOOD}]"),
            ("b.yaml", f"rules: [{GOOD}]\nresourceRules: {{window: 1m}}"),
        ]
    )

    assert [(rule.index, rule.section) for rule in loaded.rules] == [
        (0, "rules"),
        (1, "rules"),
        (2, "rules"),
    ]
    assert [(rule.index, rule.section) for rule in loaded.external] == [(3, "externalRules")]
    assert [rule.config.where.path for rule in loaded.rules] == ["rules[0]", "rules[1]", "rules[0]"]
    assert loaded.rules[2].config.where.file == "b.yaml"
    assert loaded.resource_rules.window_ns == 60_000_000_000


def test_a_rule_set_has_the_warnings_of_its_files():
    loaded = ruleset.load([("f.yaml", "rules: [{seriesQuery: 'rate(up[5m])', metricsQuery: up}]")])

    (problem,) = loaded.problems
    assert problem.state is State.WARNING
    assert problem.where.path == "rules[0].seriesQuery"
    assert "is another expression, not a series selector" in problem.fact
    assert len(loaded.rules) == 1


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "metricsQuery: sum(<<if>>)",
            "0.yaml:2:25: error: rules[0].metricsQuery: invalid template: 1:",
        ),
        (
            "metricsQuery: <<.Nope>>",
            "0.yaml:2:19: error: rules[0].metricsQuery: unknown template field .Nope: ",
        ),
        (
            "metricsQuery: |\n    a\n    b <<nope>>",
            "0.yaml:4:9: error: rules[0].metricsQuery: invalid template: 2:",
        ),
        ("seriesFilters: [{is: a}, {}]", "0.yaml:2:28: error: rules[0].seriesFilters[1]: "),
        ("seriesFilters: [{isNot: (}]", "0.yaml:2:19: error: rules[0].seriesFilters[0]: "),
        (
            "resources: {overrides: {node: {resource: node}}}\n  minPodAge: 1m",
            "0.yaml:3:14: error: rules[0].minPodAge: the rule maps no label to pods: add an",
        ),
        (
            "resources: {overrides: {node: {resource: node}}}\n  ahead: {season: 7d}",
            "0.yaml:3:10: error: rules[0].ahead: the rule maps no label to pods: add an",
        ),
        ("name: {matches: (}", "0.yaml:2:19: error: rules[0].name.matches: "),
        ("name: {matches: (a)(b)}", "0.yaml:2:19: error: rules[0].name.matches: "),
        ("resources: {template: pod}", "0.yaml:2:25: error: rules[0].resources.template: "),
        (
            "resources: {template: <<}",
            "0.yaml:2:27: error: rules[0].resources.template: invalid template: 1:",
        ),
    ],
)
def test_an_error_of_a_rule_has_its_position_and_path(rule, problem):
    (error,) = [each for each in _problems(f"rules:\n- {rule}\n") if ": error: " in each]

    assert error.startswith(problem)


def test_an_invalid_template_is_shown_with_a_caret():
    *_, error = _problems("rules: [{metricsQuery: 'sum(<<if>>)'}]")

    lines = error.splitlines()
    assert lines[1:] == ["  sum(<<if>>)", "          ^"]


@pytest.mark.parametrize("key", ["minPodAge: 1m", "ahead: {season: 7d}"])
def test_external_rules_have_no_keys_about_pods(key):
    (error,) = _problems(f"externalRules:\n- {GOOD[:-1]}, {key}}}\n")

    name = key.partition(":")[0]
    assert f"error: externalRules[0].{name}: external metrics do not describe pods" in error


@pytest.mark.parametrize(
    "resources", ["{template: <<.Resource>>}", "{overrides: {p: {resource: Pods}}}"]
)
def test_a_rule_that_maps_pods_has_a_minimum_age(resources):
    loaded = ruleset.load(
        [("a.yaml", f"rules:\n- {GOOD[:-1]}, resources: {resources}, minPodAge: 1m}}\n")]
    )

    assert loaded.rules[0].config.min_pod_age == 60.0


def test_an_error_of_a_resource_rule_has_its_path():
    problems = _problems(
        "resourceRules:\n"
        "  cpu: {containerQuery: <<x>>, nodeQuery: b}\n"
        "  memory: {containerQuery: a, nodeQuery: b, resources: {template: pod}}\n"
        "  window: 1m\n"
    )

    assert [each.split(": error: ")[1].split(": ")[0] for each in problems] == [
        "resourceRules.cpu.containerQuery",
        "resourceRules.memory.resources.template",
    ]


def test_all_errors_of_all_files_are_reported_in_the_order_of_the_files():
    problems = _problems(
        "rules:\n- seriesQuery: up\n  metricsQuery: <<\n  nme: x\n  name: {matches: (}\n",
        f"rules:\n- {GOOD}\n- seriesFilters: [{{}}]\n  seriesQuery: a\n  metricsQuery: b\n",
        "a: b: c",
    )

    assert [each.split(": error: ")[0] for each in problems] == [
        "0.yaml:3:19",
        "0.yaml:4:3",
        "0.yaml:5:19",
        "1.yaml:3:19",
        "2.yaml:1:5",
    ]


def test_an_invalid_value_is_reported_once():
    problems = _problems(
        "rules:\n- {seriesQuery: up, metricsQuery: up, seriesFilters: [{iss: a}], name: [x]}\n"
    )

    assert [each.split(": error: ")[1].split(":")[0] for each in problems] == [
        "rules[0].seriesFilters[0].iss",
        "rules[0].name",
    ]


def test_an_error_lists_twenty_problems_of_a_file_and_counts_the_others():
    problems = _problems("rules:\n" + "- {metricsQuery: <<}\n" * 30)

    assert len(problems) == MAX_PROBLEMS + 1
    assert "and 40 more problems" in problems[-1]


def test_two_files_cannot_both_have_resource_rules():
    rules = "resourceRules: {window: 1m}"

    (error,) = [each for each in _problems(rules, rules) if ": error: " in each]

    assert error.startswith("1.yaml:1:16: error: resourceRules: ")
    assert "already set in 0.yaml" in error


@pytest.mark.parametrize("order", [("preset x", "own.yaml"), ("own.yaml", "preset x")])
def test_resource_rules_of_a_file_replace_those_of_a_preset(order):
    windows = {"preset x": "1m", "own.yaml": "2m"}

    loaded = ruleset.load([(name, f"resourceRules: {{window: {windows[name]}}}") for name in order])

    assert loaded.resource_rules.window_ns == 120 * 10**9


@pytest.mark.slow
def test_each_pattern_of_the_cluster_has_memory_of_its_own():
    """Two that take 34 of 64 MiB each; those of a team share its limit."""
    rule = "{seriesQuery: up, metricsQuery: m, name: {matches: '\\pL{900}%d'}}"

    rules = ruleset.load([("rules.yaml", f"rules: [{rule % 1}, {rule % 2}]")]).rules

    assert all(each.pattern_memory > 32 << 20 for each in rules)
