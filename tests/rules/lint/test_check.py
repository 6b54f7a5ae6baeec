from __future__ import annotations

import pytest

from rules import ruleset
from rules.kinds import Kinds
from rules.lint import check

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
CRD = "{overrides: {ns: {resource: namespace}, brand: {group: cheese.io, resource: brand}}}"


def _rule(**changes: str) -> str:
    keys = {"seriesQuery": "up", "metricsQuery": f"'{QUERY}'", "resources": PODS} | changes
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items() if value) + "}"


def _warnings(
    *rules: str, section: str = "rules", kinds: Kinds | None = None
) -> list[tuple[str, str]]:
    text = f"{section}:\n" + "".join(f"- {rule}\n" for rule in rules)
    loaded = ruleset.load([("f.yaml", text)])
    found = check.warnings(loaded, kinds)
    assert all(problem.severity == "warning" and problem.line for problem in found)
    return [(problem.path, problem.message) for problem in found]


def test_an_ordinary_rule_has_nothing_surprising():
    assert _warnings(_rule()) == []


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"metricsQuery": "'sum(<<.Series>>) by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery",
            "does not use <<.LabelMatchers>>: an object of the same name in another namespace",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (pod)'"},
            "rules[0].metricsQuery",
            "aggregates without <<.GroupBy>> and so drops the label namespace",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"},
            "rules[0].metricsQuery",
            "drops the label namespace, pod",
        ),
        (
            {
                "metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'",
                "resources": "{template: <<.Resource>>}",
            },
            "rules[0].metricsQuery",
            "drops the label pod, namespace",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>} by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery",
            'rendered it is sum(up{namespace="a"} by (namespace)',
        ),
        (
            {"metricsQuery": "'<<if .Nothing>>a<<end>>'".replace(".Nothing", "not .LabelMatchers")},
            "rules[0].metricsQuery",
            "renders nothing for every kind of request",
        ),
        (
            {"metricsQuery": "'<<index .GroupBySlice 7>> <<.LabelMatchers>>'"},
            "rules[0].metricsQuery",
            "fails to render for every kind of request",
        ),
        (
            {
                "metricsQuery": '\'<<.Series>>{pod="<<index .LabelValuesByName "pod">>",'
                "<<.LabelMatchers>>}'"
            },
            "rules[0].metricsQuery",
            "asked for several it finds nothing; use =~",
        ),
        (
            {"metricsQuery": '\'<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>"}\''},
            "rules[0].metricsQuery",
            "the metric selector of a request has no effect, and its other conditions only as far",
        ),
        ({"seriesQuery": "'{__name__!=\"\"}'"}, "rules[0].seriesQuery", "matches nearly every"),
        (
            {"seriesQuery": '\'{namespace!="",__name__!~"^container_.*"}\''},
            "rules[0].seriesQuery",
            "matches nearly every series",
        ),
        (
            {"seriesQuery": '\'{__name__=~".+",kubernetes_pod_name!=""}\''},
            "rules[0].seriesQuery",
            "matches nearly every series",
        ),
        (
            {"resources": "{overrides: {pod: {resource: pod}}}"},
            "rules[0].resources",
            (
                "has a label for pods and none for namespaces: the metric is listed and every "
                "request for it is answered with 404"
            ),
        ),
        ({"resources": ""}, "rules[0].resources", "has no label for any resource"),
        (
            {"resources": "{template: 'kube_<<.Group>>_<<.Resource>>'}"},
            "rules[0].resources.template",
            "has .Group in it, which is empty for core resources",
        ),
        (
            {"resources": PODS.replace("{overrides", "{namespaced: true, overrides")},
            "rules[0].resources.namespaced",
            "has an effect in external rules only",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: (.*)_total, as: '${1}_rate'}"},
            "rules[0].name.matches",
            "'(.*)_total' has no ^ or no $ and so matches inside longer names",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: total$, as: 'x_$0'}"},
            "rules[0].name.matches",
            "has no ^ or no $",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{as: x}"},
            "rules[0].name.as",
            "calls every series that the rule takes 'x'",
        ),
        (
            {"name": "{matches: ^down$}"},
            "rules[0].name.matches",
            "does not take up, the only series of seriesQuery",
        ),
        (
            {"seriesFilters": "[{isNot: up}]"},
            "rules[0].seriesFilters",
            "does not take up, the only series of seriesQuery",
        ),
    ],
)
def test_a_custom_rule_is_warned_about(changes, path, message):
    (found,) = _warnings(_rule(**changes))

    assert found[0] == path
    assert message in found[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"metricsQuery": "'<<.Series>>{<<.LabelMatchers>>}'"},
        {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (namespace, pod)'"},
        {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<index .GroupBySlice 0>>)'"},
        {
            "metricsQuery": '\'<<if eq .GroupBy "pod">>sum(<<.Series>>{<<.LabelMatchers>>}) by '
            "(<<.GroupBy>>)<<else>>nope(<<end>>'"
        },
        {"seriesQuery": "'{uuid!=\"\"}'"},
        {"seriesQuery": "'{__name__!=\"\"}'", "seriesFilters": "[{is: ^http_}]"},
        {"seriesQuery": "'{__name__!=\"\"}'", "name": "{matches: ^http_.*}"},
        {"seriesQuery": '\'{namespace!="",job="x"}\''},
        {"resources": "{overrides: {node: {resource: node}}}"},
        {"resources": "{template: 'kube_<<.Resource>>'}"},
        {"resources": PODS.replace("{overrides", "{template: <<.Group>>_<<.Resource>>, overrides")},
        {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: ^(.*)_total$, as: '${1}_rate'}"},
        {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: (?P<x>.*)_total$, as: '${x}_rate'}"},
        {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: ^up$, as: x}"},
        {"seriesQuery": "'{__name__=~\"^up$\"}'", "name": "{as: x}"},
        {"seriesQuery": "'{a=\"b\"}'", "seriesFilters": "[{is: ^up$}]", "name": "{as: x}"},
        {"name": "{matches: u, as: x}"},
    ],
)
def test_a_custom_rule_is_not_warned_about(changes):
    if "?" in changes.get("name", ""):
        changes = changes | {
            "name": changes["name"].replace("(?P<x>.*)_total$", "'(?P<x>.*)_total$'")
        }

    assert _warnings(_rule(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"resources": ""},
            "externalRules[0].resources",
            (
                "no label stands for the namespace: the metric is listed and every request for it "
                "is answered with 500"
            ),
        ),
        (
            {"metricsQuery": "up"},
            "externalRules[0].metricsQuery",
            "every namespace is answered with the same series",
        ),
        ({"aggregate": "max"}, "externalRules[0].aggregate", "has no effect in an external rule"),
        ({"merge": "true"}, "externalRules[0].merge", "has no effect in an external rule"),
        (
            {"metricsQuery": "'(avg(<<.Series>>{<<.LabelMatchers>>}))'"},
            "externalRules[0].metricsQuery",
            "AverageValue divides it by the number of replicas",
        ),
        (
            {"metricsQuery": "'avg(<<.Series>>{<<.LabelMatchers>>}'"},
            "externalRules[0].metricsQuery",
            "is not PromQL as far as can be told",
        ),
    ],
)
def test_an_external_rule_is_warned_about(changes, path, message):
    keys = {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"} | changes

    (found,) = _warnings(_rule(**keys), section="externalRules")

    assert found[0] == path
    assert message in found[1]


@pytest.mark.parametrize("resources", [PODS, "{namespaced: false}"])
def test_an_external_rule_is_not_warned_about(resources):
    query = "'sum(<<.Series>>{<<.LabelMatchers>>})'"

    assert _warnings(_rule(metricsQuery=query, resources=resources), section="externalRules") == []


@pytest.mark.parametrize(
    "query",
    [
        "avg by (queue) (<<.Series>>{<<.LabelMatchers>>})",
        "sum(avg(<<.Series>>{<<.LabelMatchers>>}) > 1)",
        "avg_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])",
        "quantile(0.9, <<.Series>>{<<.LabelMatchers>>})",
    ],
)
def test_only_an_average_of_everything_is_warned_about_as_one(query):
    assert _warnings(_rule(metricsQuery=f"'{query}'"), section="externalRules") == []


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (None, "'brand' of group 'cheese.io' is no resource that every cluster has"),
        (Kinds.builtin(), "the cluster knows no resource 'brand' of group 'cheese.io'"),
    ],
)
def test_an_override_for_an_unknown_kind_is_without_effect(kinds, message):
    (found,) = _warnings(_rule(resources=CRD), kinds=kinds)

    assert found[0] == "rules[0].resources.overrides.brand"
    assert message in found[1]


NODES = "{overrides: {node: {resource: node}}}"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {}, "gives the same metric of namespaces, pods as rules[0] (line 2 of f.yaml)"),
        ({"name": "{as: x}"}, {"seriesQuery": "down", "name": "{as: x}"}, "or say merge: true"),
        ({"merge": "true"}, {}, "this later rule wins and the other is not asked"),
        ({"resources": NODES}, {"resources": NODES}, "gives the same metric of nodes"),
        (
            {"seriesQuery": "'{a=\"b\"}'"},
            {"seriesQuery": "'{a=\"b\"}'"},
            "gives the same metric of namespaces, pods",
        ),
    ],
)
def test_two_rules_that_give_one_metric_are_warned_about(first, second, message):
    (found,) = _warnings(_rule(**first), _rule(**second))

    assert found[0].startswith("rules[1]")
    assert message in found[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"merge": "true"}, {"merge": "true"}),
        ({"resources": NODES}, {}),
        ({"name": "{as: x}"}, {"name": "{as: y}"}),
        ({}, {"seriesQuery": "down"}),
        ({"seriesQuery": "'{a=\"b\"}'"}, {"seriesQuery": "'{a=\"c\"}'"}),
    ],
)
def test_two_rules_that_do_not_get_in_each_others_way_are_not_warned_about(first, second):
    assert _warnings(_rule(**first), _rule(**second)) == []


def test_two_external_rules_that_give_one_metric_are_warned_about():
    rule = _rule(metricsQuery="'<<.Series>>{<<.LabelMatchers>>}'")

    (found,) = _warnings(rule, rule, section="externalRules")

    assert "gives the same metric as externalRules[0]" in found[1]
    assert "merge" not in found[1]


RESOURCE_RULE = {
    "containerQuery": f"'{QUERY}'",
    "nodeQuery": f"'{QUERY}'",
    "resources": PODS.replace("{overrides: {", "{overrides: {node: {resource: node}, "),
}


def _resource_warnings(**changes: str) -> list[tuple[str, str]]:
    cpu = ", ".join(f"{key}: {value}" for key, value in (RESOURCE_RULE | changes).items())
    memory = ", ".join(f"{key}: {value}" for key, value in RESOURCE_RULE.items())
    text = f"resourceRules: {{window: 1m, cpu: {{{cpu}}}, memory: {{{memory}}}}}"
    found = check.warnings(ruleset.load([("f.yaml", text)]))
    return [(problem.path, problem.message) for problem in found]


def test_ordinary_resource_rules_have_nothing_surprising():
    assert _resource_warnings() == []


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"containerQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"},
            "resourceRules.cpu.containerQuery",
            "does not use <<.GroupBy>>, so its samples belong to no object",
        ),
        (
            {"nodeQuery": "'sum(x) by (<<.GroupBy>>)'"},
            "resourceRules.cpu.nodeQuery",
            "does not use <<.LabelMatchers>>, so every request reads the samples of the whole",
        ),
        (
            {"nodeQuery": "'sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>'"},
            "resourceRules.cpu.nodeQuery",
            "is not PromQL as far as can be told",
        ),
        (
            {"resources": PODS},
            "resourceRules.cpu.resources",
            "no label stands for nodes, which nodeQuery needs",
        ),
        (
            {
                "resources": "{overrides: {node: {resource: node}, pod: {resource: pod},"
                " namespace: {resource: namespace}, x: {resource: nope}}}"
            },
            "resourceRules.cpu.resources.overrides.x",
            "'nope' is no resource that every cluster has",
        ),
    ],
)
def test_resource_rules_are_warned_about(changes, path, message):
    (found,) = _resource_warnings(**changes)

    assert found[0] == path
    assert message in found[1]


def test_an_absent_resource_query_is_told_when_the_file_is_read_and_not_again():
    assert _resource_warnings(nodeQuery="") == []


def test_a_rule_without_a_query_is_told_when_the_file_is_read_and_not_again():
    assert _warnings(_rule(metricsQuery="")) == []


@pytest.mark.parametrize("name", ["", "{matches: ^up$, as: x}"])
def test_a_selector_that_cannot_be_read_is_told_when_it_is_compiled_and_not_again(name):
    assert _warnings(_rule(seriesQuery="'rate(up[5m])'", name=name)) == []


def test_a_warning_inside_a_query_stands_where_it_is():
    text = (
        "rules:\n"
        "- seriesQuery: up\n"
        f"  resources: {PODS}\n"
        "  metricsQuery: |\n"
        "    <<.Series>>{\n"
        "      <<.LabelMatchers>>,\n"
        '      x="<<index .LabelValuesByName "pod">>"}\n'
    )

    (found,) = check.warnings(ruleset.load([("f.yaml", text)]))

    assert (found.line, found.column) == (7, 8)
