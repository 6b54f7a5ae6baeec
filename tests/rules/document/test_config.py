from __future__ import annotations

import pytest

from rules.document import config
from rules.document.ahead import Ahead
from rules.document.config import (
    NameMapping,
    OnMissing,
    Override,
    ResourceMapping,
    SeriesFilter,
)
from rules.findings import State

FULL = """\
rules:
- seriesQuery: '{uuid!=""}'
  seriesFilters:
  - is: ^DCGM_
  - isNot: _total$
  resources:
    template: <<.Resource>>
    overrides:
      exported_pod: {resource: pod}
      deploy: {group: apps, resource: deployment}
  name: {matches: ^(.*)$, as: "${1}_current"}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  aggregate: max
  onMissing: {value: 0}
  onNaN: zero
  freshness: 2s
  maxSampleAge: 1m30s
  merge: true
externalRules:
- seriesQuery: up
  metricsQuery: up
  resources: {namespaced: no}
resourceRules:
  cpu: {containerQuery: a, nodeQuery: b, resources: {overrides: {pod: {resource: pod}}}}
  memory: {containerQuery: c, nodeQuery: d, containerLabel: container}
  window: 3m
"""


def _errors(text: str | bytes) -> list[str]:
    _, problems = config.parse(text, file="f.yaml")
    return [str(problem) for problem in problems if problem.state is State.FAILURE]


def _warnings(text: str) -> list[str]:
    parsed, problems = config.parse(text, file="f.yaml")
    assert parsed is not None
    assert not [problem for problem in problems if problem.state is State.FAILURE]
    return [str(problem) for problem in problems]


def _rule(text: str) -> config.Rule:
    parsed, problems = config.parse(f"rules:\n- {text}\n", file="f.yaml")
    assert not [str(problem) for problem in problems if problem.state is State.FAILURE]
    return parsed.rules[0]


def test_every_key_is_parsed():
    parsed, problems = config.parse(FULL, file="f.yaml")

    assert problems == ()
    (rule,) = parsed.rules
    assert rule.series_query == '{uuid!=""}'
    assert rule.series_filters == (SeriesFilter(is_="^DCGM_"), SeriesFilter(is_not="_total$"))
    assert rule.resources == ResourceMapping(
        template="<<.Resource>>",
        overrides=(
            Override(label="exported_pod", resource="pod"),
            Override(label="deploy", group="apps", resource="deployment"),
        ),
    )
    assert rule.name == NameMapping(matches="^(.*)$", as_="${1}_current")
    assert rule.metrics_query == "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    assert (rule.aggregate, rule.on_nan, rule.merge) == ("max", "zero", True)
    assert (rule.freshness, rule.max_sample_age) == (2.0, 90.0)
    assert rule.on_missing == OnMissing(value=0.0)
    (external,) = parsed.external_rules
    assert external.resources.namespaced is False
    assert parsed.resource_rules.window_ns == 180_000_000_000
    assert parsed.resource_rules.cpu.node_query == "b"
    assert parsed.resource_rules.memory.container_label == "container"


def test_a_rule_has_the_positions_of_its_keys():
    parsed, _ = config.parse(FULL, file="f.yaml")

    rule, cpu = parsed.rules[0].where, parsed.resource_rules.cpu.where
    assert (rule.file, rule.path, cpu.path) == ("f.yaml", "rules[0]", "resourceRules.cpu")
    for where, path, position in (
        (rule, "", (2, 3)),
        (rule, "seriesFilters[1].isNot", (5, 12)),
        (rule, "resources.overrides.deploy", (10, 15)),
        (rule, "name.as", (11, 31)),
        (cpu, "nodeQuery", (24, 39)),
    ):
        assert (where.nodes[path].line, where.nodes[path].column) == position


@pytest.mark.parametrize(
    ("path", "position"),
    [("name.as", "f.yaml:11:31"), ("name.nope.deeper", "f.yaml:11:9"), ("nope", "f.yaml:2:3")],
)
def test_a_problem_has_the_position_of_its_path_or_of_the_nearest_path_above(path, position):
    parsed, _ = config.parse(FULL, file="f.yaml")

    problem = parsed.rules[0].where.problem(State.FAILURE, path, "no")

    assert str(problem) == f"{position}: error: rules[0].{path}: no"


@pytest.mark.parametrize(
    ("query", "position"),
    [
        ("sum(<<if>>)", (2, 23)),
        ("'sum(<<if>>)'", (2, 24)),
        ("&a 'su''m(<<if>>)'", (2, 29)),
        ('"sum(\\"x\\",\\n<<if>>)"', (2, 32)),
        ('"sum(\n   \\u0022x\\x22\n  <<if>>)"', (4, 5)),
        ("sum(\n    <<if>>)", (3, 7)),
        ("|\n    sum(\n\n      <<if>>)", (5, 9)),
        ("|2-  # why\n    sum(\n    <<if>>)", (4, 7)),
        (">\n    sum(\n     # more\n    <<if>>)", (5, 7)),
    ],
    ids=["plain", "single", "anchor", "double", "escapes", "folded", "literal", "header", "text"],
)
def test_a_problem_inside_a_text_has_the_position_of_its_character(query, position):
    rule = _rule(f"metricsQuery: {query}")

    problem = rule.where.problem(
        State.FAILURE, "metricsQuery", "no", offset=rule.metrics_query.index("if")
    )

    assert (problem.where.line, problem.where.column) == position


def test_a_problem_at_the_end_of_a_text_has_the_position_of_its_end():
    rule = _rule("metricsQuery: '<<if'")

    problem = rule.where.problem(State.FAILURE, "metricsQuery", "no", offset=4)

    assert (problem.where.line, problem.where.column) == (2, 22)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Rules: []", "1:1: error: Rules: unknown key 'Rules': did you mean rules?"),
        (
            "rules:\n- metricQuery: x",
            "2:3: error: rules[0].metricQuery: unknown key 'metricQuery': did you mean metrics",
        ),
        ("rules:\n- series_query: x", "2:3: error: rules[0].series_query: unknown key"),
        ("rules:\n- as: x", "rules[0].as: unknown key 'as': move it below name"),
        ("rules:\n- xyzzy: x", "unknown key 'xyzzy': the keys here are seriesQuery,"),
        ("rules:\n- name: {match: x}", "2:10: error: rules[0].name.match: unknown key"),
        (
            "rules:\n- resources: {overrides: {pod: {kind: Pod}}}",
            "2:33: error: rules[0].resources.overrides.pod.kind: unknown key 'kind'",
        ),
        ("resourceRules: {cpu: {nodesQuery: x}}", "resourceRules.cpu.nodesQuery: unknown key"),
        ("rules: {}", "1:8: error: rules: must be a list, not a mapping"),
        ("rules: [x]", "1:9: error: rules[0]: must be a mapping, not 'x'"),
        ("rules: [[]]", "rules[0]: must be a mapping, not a list"),
        ("- a", "f.yaml:1:1: error: must be a mapping, not a list"),
        (
            'rules:\n- seriesQuery: {a=""}',
            "2:16: error: rules[0].seriesQuery: must be text, not a mapping: put it in quotes",
        ),
        ("rules:\n- seriesQuery: [a]", "rules[0].seriesQuery: must be text, not a list"),
        (
            "rules:\n- seriesQuery: !!int up",
            "rules[0].seriesQuery: the tag !!int does not fit 'up'",
        ),
        ("rules:\n- seriesQuery: !!binary é", "the tag !!binary does not fit 'é'"),
        ('rules:\n- name: "~"', "rules[0].name: must be a mapping, not '~'"),
        ('resourceRules: "null"', "resourceRules: must be a mapping, not 'null'"),
        ('rules:\n- merge: "null"', "rules[0].merge: must be true or false, not 'null'"),
        (
            'rules:\n- merge: "true"',
            "not the text 'true': remove the quotes",
        ),
        ("rules:\n- merge: 1", "must be true or false, not '1'"),
        ("rules:\n- merge: []", "rules[0].merge: must be true or false, not a list"),
        ("rules:\n- aggregate: mx", "must be one of avg, max, min, sum, error, not 'mx'"),
        ("rules:\n- onNaN: skip", "rules[0].onNaN: must be one of missing, zero, not 'skip'"),
        ("rules:\n- onMissing: never", "must be error, {value: NUMBER} or {lastKnown: DURATION}"),
        ("rules:\n- onMissing: []", "rules[0].onMissing: must be a mapping, not a list"),
        ("rules:\n- onMissing: {}", "must have exactly one of value and lastKnown"),
        ("rules:\n- onMissing: {value: 1, lastKnown: 1m}", "must have exactly one of"),
        ("rules:\n- onMissing: {value: .nan}", "onMissing.value: must be a number"),
        ("rules:\n- onMissing: {value: '1'}", "onMissing.value: must be a number"),
        ("rules:\n- onMissing: {value: [1]}", "onMissing.value: must be a number"),
        ("rules:\n- onMissing: {value: x}", "onMissing.value: must be a number"),
        ("rules:\n- onMissing: {value: 99e9999}", "onMissing.value: must be a number"),
        ("rules:\n- onMissing: {value: }", "must have exactly one of value and lastKnown"),
        ("rules:\n- maxSampleAge: 0s", "maxSampleAge: must be longer than 0s: to set no limit"),
        ("rules:\n- onMissing: {lastKnown: 0}", "onMissing.lastKnown: must be longer than 0s"),
        ("rules:\n- onMissing: {lastKnown: 5}", 'not a valid duration string: "5": write a'),
        ("resourceRules: {window: 1.5m}", "resourceRules.window: unknown unit"),
        ("resourceRules: {window: [1m]}", "resourceRules.window: must be text, not a list"),
    ],
)
def test_an_error_has_the_position_and_the_path_of_its_key(text, error):
    (message,) = _errors(text)

    assert error in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("rules:\n- metricsQuery: ", "", "2:17: error: rules[0].metricsQuery: has 800000 charac"),
        ("rules:\n- ? ", "\n  : x", "has 800000 characters, more than 65536: shorten it"),
        ("rules: ", "", "1:8: error: rules: has 800000 characters"),
        ("rules:\n- ", "", "rules[0]: must be a mapping, not '(((("),
        (
            f"rules:{f'{chr(10)}- (' * 5_001}",
            "",
            "2:1: error: rules: has 5001 items, more than",
        ),
        ("rules:\n- !!int ", "", "the tag !!int does not fit '(((("),
        ("", "", "must be a mapping, not '(((("),
    ],
)
def test_a_long_text_is_refused_and_not_repeated(before, after, error):
    messages = _errors(f"{before}{'(' * 800_000}{after}")

    assert any(error in each for each in messages), messages
    assert max(map(len, messages)) < 2000


def test_all_errors_of_a_file_are_reported_at_once():
    text = "rules:\n- seriesQuery: [a]\n  name: 5\n  nme: x\n- 7\nfoo: 1\n"

    errors = _errors(text)

    assert sorted(each.split(": error: ")[0] for each in errors) == [
        "f.yaml:2:16",
        "f.yaml:3:9",
        "f.yaml:4:3",
        "f.yaml:5:3",
        "f.yaml:6:1",
    ]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("rules: [null]", "1:9: warning: rules[0]: is an empty rule"),
        ("rules:\n- metricsQuery: x", "2:3: warning: rules[0]: has no seriesQuery"),
        ("rules:\n- seriesQuery: x", "2:3: warning: rules[0]: has no metricsQuery"),
        (
            "rules:\n- {seriesQuery: a, metricsQuery: b, name: {as: 5}}",
            "2:48: warning: rules[0].name.as: 5 is a number in YAML and used as text: quote it",
        ),
        ("rules:\n- {seriesQuery: yes, metricsQuery: b}", "yes is a boolean in YAML"),
        ("rules:\n- {seriesQuery: 2020-01-01, metricsQuery: b}", "2020-01-01 is a date in YAML"),
        (
            "rules:\n- {seriesQuery: a, metricsQuery: b, resources: {overrides: {1: {}}}}",
            "rules[0].resources.overrides.1: 1 is a number in YAML",
        ),
        (
            "rules:\n- seriesQuery: a\n  metricsQuery: !up\n",
            "the tag !up is ignored, which leaves an empty text",
        ),
        (
            "rules:\n- {seriesQuery: a, metricsQuery: b, seriesFilters: [{is: a, isNot: ''}]}",
            "rules[0].seriesFilters[0]: isNot is empty and has no effect: remove it",
        ),
        (
            "rules:\n- {seriesQuery: a, metricsQuery: b, resources: {overrides: {'': {}}}}",
            "2:61: warning: rules[0].resources.overrides: the label of an override is empty",
        ),
        ("rules: []\n---\nrules: 5\n", "2:1: warning: only the first YAML document is read"),
        (
            "resourceRules: {cpu: &a {containerQuery: a, nodeQuery: b}, memory: *a}",
            "resourceRules.window: is not set",
        ),
        (
            (
                "resourceRules: {window: 1m, cpu: &a {nodeQuery: b}, "
                "memory: {<<: *a, containerQuery: c}}"
            ),
            "resourceRules.cpu: has no containerQuery",
        ),
    ],
)
def test_what_the_original_accepts_is_accepted_with_a_warning(text, warning):
    (message,) = _warnings(text)

    assert warning in message


@pytest.mark.parametrize("text", ["", "{}", "# c\n", "rules:\n", "~\n", "resourceRules: null\n"])
def test_a_file_may_be_empty_which_gives_a_warning(text):
    parsed, (problem,) = config.parse(text, file="f.yaml")

    assert parsed == config.Config(rules=(), external_rules=(), resource_rules=None)
    assert str(problem) == (
        "f.yaml: warning: contains no rules: the keys for rules are rules, externalRules, "
        "resourceRules"
    )


def test_an_empty_list_of_rules_says_that_there_are_none():
    parsed, problems = config.parse("rules: []", file="f.yaml")

    assert (parsed.rules, problems) == ((), ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("error", OnMissing()),
        ("", OnMissing()),
        ("{value: .5}", OnMissing(value=0.5)),
        ("{value: -.5}", OnMissing(value=-0.5)),
        ("{value: 1_000}", OnMissing(value=1000.0)),
        ("{lastKnown: 1m30s}", OnMissing(last_known=90.0)),
        ("{lastKnown: 500ms}", OnMissing(last_known=0.5)),
    ],
)
def test_on_missing_is_a_constant_or_a_duration(text, value):
    assert value == _rule(f"onMissing: {text}").on_missing


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("{season: 7d}", Ahead(season=604_800.0)),
        ("{season: 1h, horizon: 4m}", Ahead(season=3600.0, horizon=240.0)),
    ],
)
def test_ahead_has_a_season_and_a_horizon(text, value):
    assert value == _rule(f"ahead: {text}").ahead


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("7d", "ahead: must be a mapping, not '7d'"),
        ("{}", "ahead: has no season: write after which time the load repeats, such as 7d"),
        ("{season: 1 week}", "ahead.season: "),
        ("{season: 59m}", "ahead.season: must be from 1h to 35d, such as 1d or 7d"),
        ("{season: 36d}", "ahead.season: must be from 1h to 35d, such as 1d or 7d"),
        ("{season: 7d, horizon: 0s}", "ahead.horizon: must be longer than 0s"),
        ("{season: 7d, horizon: 61m}", "ahead.horizon: must be at most 1h, and half of the season"),
        ("{season: 1h, horizon: 31m}", "ahead.horizon: must be at most 1h, and half of the season"),
        ("{season: 7d, horzon: 4m}", "ahead.horzon: unknown key 'horzon': did you mean horizon?"),
    ],
)
def test_a_wrong_ahead_is_an_error_that_says_what_to_write(text, problem):
    _, problems = config.parse(
        f"rules:\n- {{seriesQuery: a, metricsQuery: a, ahead: {text}}}\n", file="f.yaml"
    )

    assert problem in str(problems[0]), problems
    assert problems[0].state is State.FAILURE


@pytest.mark.parametrize(
    ("text", "flag"), [("y", True), ("off", False), ("~", None), ("", None), ("NULL", None)]
)
def test_booleans_are_spelled_as_in_yaml_1_1(text, flag):
    assert _rule(f"resources: {{namespaced: {text}}}").resources.namespaced is flag


def test_a_merge_combines_mappings():
    text = (
        "rules:\n"
        "- &a {seriesQuery: a, metricsQuery: a, name: {as: a}}\n"
        "- <<: *a\n"
        "  metricsQuery: b\n"
        "  name: {matches: b}\n"
    )
    parsed, _ = config.parse(text, file="f.yaml")

    rule = parsed.rules[1]
    assert (rule.series_query, rule.metrics_query) == ("a", "b")
    assert rule.name == NameMapping(matches="b", as_="a")


def test_null_removes_a_merged_value():
    text = "rules:\n- &a {name: {as: a}, merge: true}\n- <<: *a\n  name: ~\n  merge:\n"
    parsed, _ = config.parse(text, file="f.yaml")

    assert parsed.rules[1].name == NameMapping()
    assert parsed.rules[1].merge is False


def test_an_override_without_a_label_is_dropped():
    rule = _rule("resources: {overrides: {~: {resource: pod}, ns: {resource: namespace}}}")

    assert rule.resources.overrides == (Override(label="ns", resource="namespace"),)


@pytest.mark.parametrize("text", ['"null"', "'~'"])
def test_a_quoted_null_is_text(text):
    assert _rule(f"{{seriesQuery: {text}, metricsQuery: a}}").series_query == text[1:-1]
    assert _warnings(f"rules:\n- {{seriesQuery: {text}, metricsQuery: {text}}}") == []


def test_a_number_of_any_length_is_text():
    assert _rule(f"metricsQuery: {'9' * 5000}").metrics_query == "9" * 5000
