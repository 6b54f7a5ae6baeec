from __future__ import annotations

import pytest

from rules import presets, ruleset
from rules.document.found import HpaTarget
from rules.findings import State
from rules.lint import check

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"


def _rule(**changes: str) -> str:
    keys = {"seriesQuery": "up", "metricsQuery": f"'{QUERY}'", "resources": PODS} | changes
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items() if value) + "}"


def _warnings(*rules: str, section: str = "rules") -> list[tuple[str, str]]:
    """The path and message of each warning about these rules."""
    text = f"{section}:\n" + "".join(f"- {rule}\n" for rule in rules)
    problems = check.warnings(ruleset.load([("f.yaml", text)]))
    assert all(problem.state is State.WARNING and problem.where.line for problem in problems)
    return [(problem.where.path, problem.fact) for problem in problems]


def test_a_usual_rule_gives_no_warning():
    assert _warnings(_rule()) == []
    assert _warnings(_rule(maxSampleAge="1m")) == []
    assert (
        _warnings(_rule(maxSampleAge="1m", metricsQuery=f"'{QUERY.replace('<<.Series>>', 'up')}'"))
        == []
    )


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"metricsQuery": "'sum(<<.Series>>) by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery",
            "does not use <<.LabelMatchers>>: objects of the same name in other namespaces",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (namespace)'"},
            "rules[0].metricsQuery",
            "aggregates without <<.GroupBy>> and drops the label pod",
        ),
        (
            {"metricsQuery": "'topk(2, sum(<<.Series>>{<<.LabelMatchers>>}) by (namespace))'"},
            "rules[0].metricsQuery",
            "aggregates without <<.GroupBy>> and drops the label pod",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"},
            "rules[0].metricsQuery",
            "drops the labels namespace and pod: no value can be assigned to namespaces or pods",
        ),
        (
            {
                "metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'",
                "resources": "{template: <<.Resource>>}",
            },
            "rules[0].metricsQuery",
            "drops the labels pod and namespace: no value can be assigned to namespaces or pods",
        ),
        (
            {
                "metricsQuery": "'sum(other{<<.LabelMatchers>>}) by (<<.GroupBy>>)'",
                "maxSampleAge": "1m",
            },
            "rules[0].maxSampleAge",
            "counts the age of <<.Series>>, which metricsQuery does not read",
        ),
        (
            {
                "metricsQuery": f"'{QUERY} / sum(other{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'",
                "maxSampleAge": "1m",
            },
            "rules[0].maxSampleAge",
            "counts the age of <<.Series>> only, not of other",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>} by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery",
            '; rendered: sum(up{namespace="a"} by (namespace). If Prometheus',
        ),
        (
            {"metricsQuery": "'<<if .Nothing>>a<<end>>'".replace(".Nothing", "not .LabelMatchers")},
            "rules[0].metricsQuery",
            "renders no text: every request ends in an error",
        ),
        (
            {"metricsQuery": "'<<index .GroupBySlice 7>> <<.LabelMatchers>>'"},
            "rules[0].metricsQuery",
            "fails to render: every request ends in an error",
        ),
        (
            {
                "metricsQuery": '\'<<.Series>>{pod="<<index .LabelValuesByName "pod">>",'
                "<<.LabelMatchers>>}'"
            },
            "rules[0].metricsQuery",
            "which is a|b for several pods and then matches none. Use =~",
        ),
        (
            {
                "metricsQuery": '\'<<.Series>>{pod=`<<index .LabelValuesByName "pod">>`,'
                "<<.LabelMatchers>>}'"
            },
            "rules[0].metricsQuery",
            "which is a|b for several pods and then matches none. Use =~",
        ),
        (
            {"metricsQuery": "'sum(x{namespace=\"prod\"}) by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery",
            "does not use <<.LabelMatchers>>: objects of the same name in other namespaces",
        ),
        (
            {"metricsQuery": '\'<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>"}\''},
            "rules[0].metricsQuery",
            "does not use <<.LabelMatchers>>: objects of the same name in other namespaces",
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
            {"seriesQuery": "'{pod!=\"\"}'", "name": "{matches: ^(.*)$, as: '${1}_avg'}"},
            "rules[0].seriesQuery",
            "matches nearly every series",
        ),
        (
            {"seriesQuery": "'{pod!=\"\"}'", "seriesFilters": "[{is: ^.*$}]"},
            "rules[0].seriesQuery",
            "matches nearly every series",
        ),
        (
            {"resources": "{overrides: {pod: {resource: pod}}}"},
            "rules[0].resources",
            (
                "maps a label to pods but none to namespaces: the metric is listed, but every "
                "request fails with 404"
            ),
        ),
        ({"resources": ""}, "rules[0].resources", "maps no label to a resource"),
        (
            {"resources": "{template: 'kube_<<.Group>>_<<.Resource>>'}"},
            "rules[0].resources.template",
            "uses .Group, which is empty for core resources",
        ),
        (
            {"resources": PODS.replace("{overrides", "{namespaced: true, overrides")},
            "rules[0].resources.namespaced",
            "has an effect only in externalRules",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: (.*)_total, as: '${1}_rate'}"},
            "rules[0].name.matches",
            "'(.*)_total' has no ^ or no $ and matches parts of names",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{matches: total$, as: 'x_$0'}"},
            "rules[0].name.matches",
            "has no ^ or no $",
        ),
        (
            {
                "seriesQuery": "DCGM_FI_DEV_GPU_UTIL",
                "metricsQuery": "'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (pod)'",
            },
            "rules[0].metricsQuery",
            "computes a rate of DCGM_FI_DEV_GPU_UTIL, which is a gauge",
        ),
        (
            {
                "metricsQuery": "'sum(increase(kafka_consumergroup_lag{<<.LabelMatchers>>}[5m]))"
                " by (<<.GroupBy>>)'"
            },
            "rules[0].metricsQuery",
            "computes a rate of kafka_consumergroup_lag, which is a gauge",
        ),
        (
            {"seriesQuery": "'{a=\"b\"}'", "name": "{as: x}"},
            "rules[0].name.as",
            "names every series 'x': only the last one listed is served",
        ),
        (
            {"name": "{matches: ^down$}"},
            "rules[0].name.matches",
            "rejects up, the only series of seriesQuery",
        ),
        (
            {"seriesFilters": "[{isNot: up}]"},
            "rules[0].seriesFilters",
            "rejects up, the only series of seriesQuery",
        ),
    ],
)
def test_a_custom_rule_gives_a_warning(changes, path, message):
    (warning,) = _warnings(_rule(**changes))

    assert warning[0] == path
    assert message in warning[1]


SERVICES = (
    "{overrides: {namespace: {resource: namespace}, service: {resource: service},"
    " pod: {resource: pod}}}"
)
NAMESPACE_VALUE = '<<index .LabelValuesByName "namespace">>'


TIME, SELECTOR = "request_duration_seconds_sum", "{<<.LabelMatchers>>}"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"sum(x_total{SELECTOR}) by (<<.GroupBy>>)", "takes the value of x_total"),
        (f"max(a{SELECTOR} / x_total{SELECTOR}) by (pod)", "takes the value of x_total"),
        (f"sum(delta(x_total{SELECTOR}[1m])) by (pod)", "computes delta() of x_total"),
        (f"sum(rate({TIME}{SELECTOR}[1m]) / 1000) by (pod)", f"computes a rate of {TIME}"),
        (f"sum(up{SELECTOR}) by (<<.GroupBy>>, model)", "groups also by model"),
        (f"(sum(up{SELECTOR}) by (<<.GroupBy>>, model))", "groups also by model"),
    ],
)
def test_a_query_that_computes_something_else_gives_a_warning(query: str, message: str) -> None:
    ((path, warning),) = _warnings(_rule(metricsQuery=f"'{query}'"))

    assert path == "rules[0].metricsQuery"
    assert warning.startswith(message)


@pytest.mark.parametrize(
    "query",
    [
        f"sum(increase(x_total{SELECTOR}[1m])) by (pod)",
        f"sum(max_over_time(rate(x_total{SELECTOR}[1m])[5m:])) by (pod)",
        f"sum(x_total{SELECTOR} - x_total{SELECTOR} offset 1m) by (pod)",
        f"sum(up{SELECTOR} unless x_total{SELECTOR}) by (pod)",
        f"count(x_total{SELECTOR}) by (pod)",
        f"sum(time() - timestamp(x_total{SELECTOR})) by (pod)",
        f"sum(rate({TIME}{SELECTOR}[1m])) by (pod) / sum(rate(x_total{SELECTOR}[1m])) by (pod)",
        f"sum(rate(container_cpu_usage_seconds_total{SELECTOR}[1m])) by (pod)",
        f"topk(1, sum(up{SELECTOR}) by (<<.GroupBy>>, model)) by (pod)",
        f"max(sum(up{SELECTOR}) by (<<.GroupBy>>, model)) by (<<.GroupBy>>)",
    ],
)
def test_a_query_with_a_usual_computation_gives_no_warning(query: str) -> None:
    assert _warnings(_rule(metricsQuery=f"'{query}'")) == []


def test_groups_by_more_labels_are_wanted_if_the_rule_says_how_to_aggregate() -> None:
    query = f"'sum(up{SELECTOR}) by (<<.GroupBy>>, model)'"

    assert _warnings(_rule(metricsQuery=query, aggregate="max")) == []


def test_the_older_name_of_a_series_gives_no_warning_beside_the_later_one() -> None:
    old, new = (
        _rule(seriesQuery=f"vllm:{name}_cache_usage_perc", merge="true") for name in ("gpu", "kv")
    )

    assert [path for path, _ in _warnings(old)] == ["rules[0].seriesQuery"]
    assert _warnings(old, new) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (pod)'"},
        {
            "metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (service, pod)'",
            "resources": SERVICES,
        },
        {
            "metricsQuery": f"'sum(x{{namespace=\"{NAMESPACE_VALUE}\"}}) by (<<.GroupBy>>)'",
        },
        {
            "metricsQuery": '\'<<.Series>>{service="<<index .LabelValuesByName "service">>",'
            "<<.LabelMatchers>>}'",
            "resources": SERVICES,
        },
        {
            "metricsQuery": "'avg(<<.Series>>) by (<<.GroupBy>>)'",
            "resources": "{overrides: {node: {resource: node}}}",
        },
        {
            "seriesQuery": "'{__name__=~\"^istio_.*_total\"}'",
            "name": "{matches: (.*)_total, as: '${1}_per_second'}",
            "metricsQuery": "'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'",
        },
        {"metricsQuery": "'sum(rate(http_requests_total{<<.LabelMatchers>>}[2m])) by (pod)'"},
        {"metricsQuery": "'sum(rate(gpu_lag_total{<<.LabelMatchers>>}[2m])) by (pod)'"},
        {"metricsQuery": "'max(avg_over_time(up{<<.LabelMatchers>>}[2m])) by (pod)'"},
        {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>,a=~`\\\\d+`}) by (<<.GroupBy>>)'"},
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
        *(
            {"metricsQuery": f"'{chosen}<<.Series>>{{<<.LabelMatchers>>}})'"}
            for chosen in ("topk(2, ", "bottomk by (node) (2, ", "limitk(2, ", "limit_ratio(0.5, ")
        ),
    ],
)
def test_a_custom_rule_gives_no_warning(changes):
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
            ("maps no label to namespaces: the metric is listed, but every request fails with 500"),
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>)'"},
            "externalRules[0].metricsQuery",
            "the namespace and the metric selector are ignored, and every namespace gets the same",
        ),
        (
            {"metricsQuery": "'sum(<<.Series>>)'", "resources": "{namespaced: false}"},
            "externalRules[0].metricsQuery",
            "the metric selector is ignored. Write <<.Series>>{<<.LabelMatchers>>}",
        ),
        (
            {"metricsQuery": "'sum(a{<<.LabelMatchers>>} / b{<<.LabelMatchers>>})'"},
            "externalRules[0].metricsQuery",
            "that is a mean in which each series counts the same, however small its divisor",
        ),
        ({"aggregate": "max"}, "externalRules[0].aggregate", "has no effect in externalRules"),
        ({"merge": "true"}, "externalRules[0].merge", "has no effect in externalRules"),
        ({"maxSampleAge": "1m"}, "externalRules[0].maxSampleAge", "has no effect in externalRules"),
        (
            {"metricsQuery": "'(avg(<<.Series>>{<<.LabelMatchers>>}))'"},
            "externalRules[0].metricsQuery",
            "value / target replicas, however many run. Use type Value, or sum here",
        ),
        (
            {"metricsQuery": "'avg(disk_pct{<<.LabelMatchers>>})'"},
            "externalRules[0].metricsQuery",
            "an HPA asks for value / target replicas, however many run. Use type Value",
        ),
        (
            {"metricsQuery": "'avg(<<.Series>>{<<.LabelMatchers>>}'"},
            "externalRules[0].metricsQuery",
            "does not look like PromQL",
        ),
    ],
)
def test_an_external_rule_gives_a_warning(changes, path, message):
    keys = {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"} | changes

    (warning,) = _warnings(_rule(**keys), section="externalRules")

    assert warning[0] == path
    assert message in warning[1]


@pytest.mark.parametrize("resources", [PODS, "{namespaced: false}"])
def test_an_external_rule_gives_no_warning(resources):
    query = "'sum(<<.Series>>{<<.LabelMatchers>>})'"

    assert _warnings(_rule(metricsQuery=query, resources=resources), section="externalRules") == []


@pytest.mark.parametrize(
    "query",
    [
        "sum(avg(<<.Series>>{<<.LabelMatchers>>}) > 1)",
        "avg_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])",
    ],
)
def test_an_average_inside_another_function_gives_no_warning(query):
    assert _warnings(_rule(metricsQuery=f"'{query}'"), section="externalRules") == []


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("avg by (queue) (<<.Series>>{<<.LabelMatchers>>})", "mean"),
        ("(avg(<<.Series>>{<<.LabelMatchers>>})) or vector(0)", "mean"),
        ("avg_over_time(avg(<<.Series>>{<<.LabelMatchers>>})[5m:15s])", "mean"),
        ("quantile(0.9, <<.Series>>{<<.LabelMatchers>>})", "percentile"),
        ("sum(<<.Series>>{<<.LabelMatchers>>}) / sum(limit{<<.LabelMatchers>>})", "ratio"),
        (
            "sum(rate(t_seconds_sum{<<.LabelMatchers>>}[5m])) / sum(rate(t_seconds_count[5m]))",
            "mean",
        ),
    ],
)
def test_a_value_that_does_not_grow_with_the_replicas_gives_a_warning(query, kind):
    ((_, message),) = _warnings(_rule(metricsQuery=f"'{query}'"), section="externalRules")

    assert message.startswith(f"is a {kind}. With target type AverageValue, an HPA asks for")
    assert ("rarely for more than two" in message) == (kind == "ratio")
    assert message.endswith("Use type Value")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("avg by (pod) (a{X} / b{X})", "averages the quotients of series"),
        ("sum by (pod) (a{X} / clamp_min(b{X}, 1))", "adds up the quotients of series"),
        ("sum by (pod) (a{X}) / (1 + sum by (pod) (b{X}))", "adds 1 to the divisor"),
        (
            "avg by (pod) (histogram_quantile(0.9, sum by (pod,le) (rate(a_bucket{X}[5m]))))",
            "averages percentiles",
        ),
    ],
)
def test_a_mean_of_ratios_or_percentiles_gives_a_warning(query, message):
    text = query.replace("X", "<<.LabelMatchers>>")

    ((_, found),) = _warnings(_rule(metricsQuery=f"'{text}'"))

    assert found.startswith(message)


@pytest.mark.parametrize(
    "query",
    [
        "sum by (pod) (a{X}) / sum by (pod) (b{X})",
        "sum by (pod) (a{X} / 1024)",
        "sum by (pod) (a{X}) / (sum by (pod) (b{X}) + 0.001)",
        "max by (pod) (a{X} / b{X})",
    ],
)
def test_a_ratio_of_sums_or_of_one_series_gives_no_warning(query):
    assert _warnings(_rule(metricsQuery=f"'{query.replace('X', '<<.LabelMatchers>>')}'")) == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("{resource: brand}", "'brand' is not a built-in resource: the label has no effect unless"),
        ("{resource: po}", "has it; write pod"),
        ("{resource: deploymnet}", "has it; write deployment"),
        ("{resource: brand}", "has it; if it is that of a CRD, add its group"),
        ("{group: apps, resource: pod}", "'pod' of group 'apps' is not a built-in resource"),
        (
            "{group: v1, resource: pod}",
            "no built-in group 'v1': the label has no effect; pod is in",
        ),
        ("{group: extensions, resource: ingress}", "ingress is in group networking.k8s.io"),
        ("{group: application, resource: thing}", "there is no built-in group 'application'"),
    ],
)
def test_an_override_of_an_unknown_resource_gives_a_warning(override, message):
    ((path, text),) = _warnings(_rule(resources=PODS.replace("pod:", f"x: {override}, pod:")))

    assert path == "rules[0].resources.overrides.x"
    assert message in text


@pytest.mark.parametrize(
    "override",
    [
        "{group: cheese.io, resource: brand}",
        "{group: serving.knative.dev, resource: service}",
        "{group: app, resource: deployment}",
    ],
)
def test_an_override_of_a_custom_resource_gives_no_warning(override):
    assert _warnings(_rule(resources=PODS.replace("pod:", f"x: {override}, pod:"))) == []


NODES = "{overrides: {node: {resource: node}}}"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {}, "produces the same metric of namespaces, pods as rules[0] (f.yaml:2)"),
        (
            {"name": "{as: x}"},
            {"seriesQuery": "down", "name": "{as: x}"},
            "or set merge: true in both",
        ),
        ({"merge": "true"}, {}, "only this later rule is queried"),
        ({"resources": NODES}, {"resources": NODES}, "produces the same metric of nodes"),
        (
            {"seriesQuery": "'{a=\"b\"}'"},
            {"seriesQuery": "'{a=\"b\"}'"},
            "produces the same metric of namespaces, pods",
        ),
    ],
)
def test_the_second_of_two_rules_that_produce_one_metric_gives_a_warning(first, second, message):
    ((path, text),) = _warnings(_rule(**first), _rule(**second))

    assert path.startswith("rules[1]")
    assert message in text


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
def test_two_rules_that_produce_different_metrics_or_merge_give_no_warning(first, second):
    assert _warnings(_rule(**first), _rule(**second)) == []


def test_the_second_of_two_external_rules_that_produce_one_metric_gives_a_warning():
    rule = _rule(metricsQuery="'<<.Series>>{<<.LabelMatchers>>}'")

    ((_, message),) = _warnings(rule, rule, section="externalRules")

    assert "produces the same metric as externalRules[0]" in message
    assert "merge" not in message


RESOURCE_RULE = {
    "containerQuery": f"'{QUERY}'",
    "nodeQuery": f"'{QUERY}'",
    "resources": PODS.replace("{overrides: {", "{overrides: {node: {resource: node}, "),
}


def _resource_warnings(**changes: str) -> list[tuple[str, str]]:
    cpu = ", ".join(f"{key}: {value}" for key, value in (RESOURCE_RULE | changes).items())
    memory = ", ".join(f"{key}: {value}" for key, value in RESOURCE_RULE.items())
    text = f"resourceRules: {{window: 1m, cpu: {{{cpu}}}, memory: {{{memory}}}}}"
    problems = check.warnings(ruleset.load([("f.yaml", text)]))
    return [(problem.where.path, problem.fact) for problem in problems]


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        'sum(m{pod=~"<<index .LabelValuesByName "pod">>"}) by (<<.GroupBy>>)',
        "sum(m{<<.LabelMatchers>>}) by (<<range $i, $l := .GroupBySlice>><<$l>>,<<end>>container)",
    ],
)
def test_usual_resource_rules_give_no_warning(query):
    assert _resource_warnings(containerQuery=f"'{query}'") == []


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"containerQuery": "'sum(<<.Series>>{<<.LabelMatchers>>})'"},
            "resourceRules.cpu.containerQuery",
            "does not use <<.GroupBy>>: no sample matches an object",
        ),
        (
            {"nodeQuery": "'sum(x) by (<<.GroupBy>>)'"},
            "resourceRules.cpu.nodeQuery",
            "does not use <<.LabelMatchers>>: every request reads the samples of the whole",
        ),
        (
            {"nodeQuery": "'sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>'"},
            "resourceRules.cpu.nodeQuery",
            "does not look like PromQL",
        ),
        (
            {"resources": PODS},
            "resourceRules.cpu.resources",
            "maps no label to nodes, which nodeQuery needs",
        ),
        (
            {
                "resources": "{overrides: {node: {resource: node}, pod: {resource: pod},"
                " namespace: {resource: namespace}, x: {resource: nope}}}"
            },
            "resourceRules.cpu.resources.overrides.x",
            "'nope' is not a built-in resource",
        ),
    ],
)
def test_resource_rules_give_a_warning(changes, path, message):
    (warning,) = _resource_warnings(**changes)

    assert warning[0] == path
    assert message in warning[1]


def test_a_resource_rule_without_a_query_is_left_to_the_parser():
    assert _resource_warnings(nodeQuery="") == []


def test_a_rule_without_a_query_is_left_to_the_parser():
    assert _warnings(_rule(metricsQuery="")) == []


@pytest.mark.parametrize("name", ["", "{matches: ^up$, as: x}"])
def test_an_invalid_series_query_is_left_to_the_compiler(name):
    assert _warnings(_rule(seriesQuery="'rate(up[5m])'", name=name)) == []


def test_a_warning_about_a_part_of_a_query_has_its_line_and_column():
    text = (
        "rules:\n"
        "- seriesQuery: up\n"
        f"  resources: {PODS}\n"
        "  metricsQuery: |\n"
        "    <<.Series>>{\n"
        "      <<.LabelMatchers>>,\n"
        '      x="<<index .LabelValuesByName "pod">>"}\n'
    )

    (warning,) = check.warnings(ruleset.load([("f.yaml", text)]))

    assert (warning.where.line, warning.where.column) == (7, 8)


_RATIO = _rule(
    seriesQuery="a",
    name="{as: share}",
    metricsQuery="'sum(<<.Series>>{<<.LabelMatchers>>}) / sum(b{<<.LabelMatchers>>})'",
)


def _of_hpas(*targets: HpaTarget, rule: str = _RATIO) -> list[str]:
    """Each warning about an external rule that these targets request."""
    loaded = ruleset.load([("f.yaml", f"externalRules: [{rule}]")])
    return [each.fact for each in check.warnings(loaded, targets)]


def _target(type_: str, metric: str = "share") -> HpaTarget:
    return HpaTarget(
        title="HorizontalPodAutoscaler llm/x",
        metric=metric,
        external=True,
        type=type_,
        averaged=type_ == "AverageValue",
        value="1",
        selects=False,
        file="h.yaml",
        line=9,
    )


def test_a_ratio_gives_no_warning_if_all_autoscalers_have_type_value():
    assert _of_hpas(_target("Value"), _target("Value")) == []
    assert len(_of_hpas(_target("Value", "other"))) == 1


def test_a_warning_of_a_ratio_names_an_autoscaler_with_type_average_value():
    (message,) = _of_hpas(_target("Value"), _target("AverageValue"), _target("AverageValue"))

    assert message.startswith(
        "is a ratio, and the target of HorizontalPodAutoscaler llm/x (h.yaml:9) and 1 more has "
        "type AverageValue. So the HPA asks for value / target replicas"
    )


def test_a_rule_of_the_cluster_without_matchers_gives_no_warning_if_its_autoscalers_are_known():
    rule = _rule(
        name="{as: share}", resources="{namespaced: false}", metricsQuery="'sum(<<.Series>>)'"
    )

    assert len(_of_hpas(rule=rule)) == 1
    assert _of_hpas(_target("Value"), rule=rule) == []


@pytest.mark.parametrize("query", ["vector(1)", "vector(scalar(sum(a)))"])
def test_a_query_of_the_cluster_for_one_number_needs_no_matchers(query):
    rule = _rule(resources="{namespaced: false}", metricsQuery=f"'{query}'")

    assert _warnings(rule, section="externalRules") == []


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_that_is_loaded_as_one_gives_no_warning(name):
    loaded = ruleset.load([(f"{presets.FILE}{name}", presets.text(name))])

    assert check.warnings(loaded) == ()


def test_a_rule_of_a_preset_that_replaces_an_own_one_gives_a_warning():
    own = f"rules: [{_rule()}]"

    loaded = ruleset.load([("f.yaml", own), (f"{presets.FILE}any", own)])

    (warning,) = check.warnings(loaded)
    assert "produces the same metric of namespaces, pods as rules[0] (f.yaml:1)" in str(warning)


@pytest.mark.parametrize(
    ("series", "times"),
    [
        ("nv_inference_queue_duration_us", "1,000,000 times the mean"),
        ("queue_time_ms_total", "1,000 times the mean"),
        ("queue_time_seconds_sum", "the mean"),
    ],
)
def test_a_rate_of_a_time_is_so_many_times_the_requests_at_once(series, times):
    query = f"sum by (pod) (rate({series}{{<<.LabelMatchers>>}}[2m]))"

    ((_, message),) = _warnings(_rule(metricsQuery=f"'{query}'"))

    assert f"that is {times} number of requests at once" in message


@pytest.mark.parametrize(
    "query",
    [
        "sum without (model) (<<.Series>>{<<.LabelMatchers>>})",
        "avg without (model, gpu) (rate(a_total{<<.LabelMatchers>>}[2m]))",
    ],
)
def test_an_aggregation_without_other_labels_keeps_that_of_the_object(query):
    assert _warnings(_rule(metricsQuery=f"'{query}'")) == []


def test_an_aggregation_without_the_label_of_the_object_gives_a_warning():
    query = "sum without (pod) (<<.Series>>{<<.LabelMatchers>>})"

    ((_, message),) = _warnings(_rule(metricsQuery=f"'{query}'"))

    assert "drops the label pod: no value can be assigned to pods" in message
