from __future__ import annotations

import pytest

from rules import ruleset
from rules.document import config
from rules.errors import ConfigError

GOOD = "{seriesQuery: up, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'}"


def _problems(*texts: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        ruleset.load([(f"{place}.yaml", text) for place, text in enumerate(texts)])
    return [str(problem) for problem in caught.value.problems]


def test_rules_of_several_files_are_one_set_and_every_rule_has_its_own_index():
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
    assert loaded.resource_rules is not None
    assert loaded.resource_rules.window_ns == 60_000_000_000


def test_a_rule_is_compiled_whole():
    text = """\
rules:
- seriesQuery: '{pod!=""}'
  seriesFilters: [{is: ^http_}, {isNot: _bucket$}]
  resources: {template: kube_<<.Resource>>}
  name: {matches: ^(.*)_total$, as: "${1}_per_second"}
  metricsQuery: rate(<<.Series>>[1m])
"""

    (rule,) = ruleset.load([("f.yaml", text)]).rules

    assert rule.filters.accept("http_requests_total")
    assert not rule.filters.accept("http_requests_bucket")
    assert rule.namer.metric("http_requests_total") == "http_requests_per_second"
    assert rule.mapping.template is not None
    assert rule.query.render({"Series": "up"}) == "rate(up[1m])"


def test_resource_rules_are_compiled():
    text = "resourceRules: {cpu: {containerQuery: a<<.GroupBy>>, nodeQuery: b}, window: 1m}"

    resource_rules = ruleset.load([("f.yaml", text)]).resource_rules

    assert resource_rules is not None
    assert resource_rules.cpu.container_query.render({"GroupBy": "pod"}) == "apod"
    assert resource_rules.cpu.node_query.source == "b"
    assert resource_rules.memory.container_query.source == ""


def test_warnings_are_kept_beside_the_rules():
    loaded = ruleset.load([("f.yaml", "rules: [{seriesQuery: 'rate(up[5m])', metricsQuery: up}]")])

    (problem,) = loaded.problems
    assert problem.severity == "warning"
    assert problem.path == "rules[0].seriesQuery"
    assert "is another expression, not a series selector" in problem.message
    assert len(loaded.rules) == 1


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "metricsQuery: sum(<<if>>)",
            "0.yaml:2:25: error: rules[0].metricsQuery: the template does",
        ),
        (
            "metricsQuery: <<.Nope>>",
            "0.yaml:2:19: error: rules[0].metricsQuery: the template has no",
        ),
        (
            "metricsQuery: |\n    a\n    b <<nope>>",
            "0.yaml:4:9: error: rules[0].metricsQuery: the ",
        ),
        ("seriesFilters: [{is: a}, {}]", "0.yaml:2:28: error: rules[0].seriesFilters[1]: "),
        ("seriesFilters: [{isNot: (}]", "0.yaml:2:19: error: rules[0].seriesFilters[0]: "),
        ("name: {matches: (}", "0.yaml:2:19: error: rules[0].name.matches: "),
        ("name: {matches: (a)(b)}", "0.yaml:2:19: error: rules[0].name.matches: "),
        ("resources: {template: pod}", "0.yaml:2:25: error: rules[0].resources.template: "),
        (
            "resources: {template: <<}",
            "0.yaml:2:27: error: rules[0].resources.template: the template",
        ),
    ],
)
def test_what_does_not_compile_is_told_with_its_place(rule, problem):
    (found,) = [each for each in _problems(f"rules:\n- {rule}\n") if ": error: " in each]

    assert found.startswith(problem)


def test_a_template_that_does_not_parse_is_shown_with_a_caret():
    (found, _) = _problems("rules: [{metricsQuery: 'sum(<<if>>)'}]")[::-1][:2]

    lines = found.splitlines()
    assert lines[1:] == ["  sum(<<if>>)", "          ^"]


def test_resource_rules_that_do_not_compile_are_told_with_their_place():
    found = _problems(
        "resourceRules:\n"
        "  cpu: {containerQuery: <<x>>, nodeQuery: b}\n"
        "  memory: {containerQuery: a, nodeQuery: b, resources: {template: pod}}\n"
        "  window: 1m\n"
    )

    assert [each.split(": error: ")[1].split(": ")[0] for each in found] == [
        "resourceRules.cpu.containerQuery",
        "resourceRules.memory.resources.template",
    ]


def test_everything_that_is_wrong_in_any_file_is_told_at_once_in_the_order_of_the_files():
    found = _problems(
        "rules:\n- seriesQuery: up\n  metricsQuery: <<\n  nme: x\n  name: {matches: (}\n",
        f"rules:\n- {GOOD}\n- seriesFilters: [{{}}]\n  seriesQuery: a\n  metricsQuery: b\n",
        "a: b: c",
    )

    assert [each.split(": error: ")[0] for each in found] == [
        "0.yaml:3:19",
        "0.yaml:4:3",
        "0.yaml:5:19",
        "1.yaml:3:19",
        "2.yaml:1:5",
    ]


def test_what_could_not_be_read_is_not_compiled_as_well():
    found = _problems(
        "rules:\n- {seriesQuery: up, metricsQuery: up, seriesFilters: [{iss: a}], name: [x]}\n"
    )

    assert [each.split(": error: ")[1].split(":")[0] for each in found] == [
        "rules[0].seriesFilters[0].iss",
        "rules[0].name",
    ]


def test_a_configuration_made_elsewhere_is_compiled_alike():
    rule = config.Rule(series_query="up", metrics_query="<<", where=config.Where(path="rules[0]"))

    with pytest.raises(ConfigError) as caught:
        ruleset.compile(config.Config(rules=(rule,), resource_rules=config.ResourceRules()))

    (problem,) = caught.value.problems
    assert problem.path == "rules[0].metricsQuery"


def test_two_files_cannot_both_have_resource_rules():
    rules = "resourceRules: {window: 1m}"

    found = [each for each in _problems(rules, rules) if ": error: " in each]

    (error,) = found
    assert error.startswith("1.yaml:1:16: error: resourceRules: ")
    assert "are already given in 0.yaml" in error
