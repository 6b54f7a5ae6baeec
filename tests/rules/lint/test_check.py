"""Warnings of `check`, beside those that the configurations of test_configurations.py have."""

from __future__ import annotations

import json

import pytest

from rules import presets, ruleset
from rules.document.found import HpaTarget
from rules.findings import State
from rules.lint import check

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
NODES = "{overrides: {node: {resource: node}}}"
SERVICES = PODS.replace("pod:", "service: {resource: service}, pod:")


def _rule(**changes: str) -> str:
    """A rule in YAML; in its queries, X stands for the matchers of a request."""
    keys = {"seriesQuery": "up", "metricsQuery": QUERY, "resources": PODS} | changes
    for key in ("seriesQuery", "metricsQuery"):
        keys[key] = keys[key] and json.dumps(keys[key].replace("X", "<<.LabelMatchers>>"))
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
    assert _warnings(_rule(maxSampleAge="1m", metricsQuery="sum(up{X}) by (<<.GroupBy>>)")) == []


UNMATCHED = "does not use <<.LabelMatchers>>: objects of the same name in other namespaces"
A_OR_B = "which is a|b for several pods and then matches none. Use =~"
TIME = "request_duration_seconds_sum"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('sum(x{namespace="prod"}) by (<<.GroupBy>>)', UNMATCHED),
        ('<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>"}', UNMATCHED),
        (
            "topk(2, sum(<<.Series>>{X}) by (namespace))",
            "aggregates without <<.GroupBy>> and drops the label pod",
        ),
        (
            "sum without (pod) (<<.Series>>{X})",
            "drops the label pod: no value can be assigned to pods",
        ),
        ("<<if not .LabelMatchers>>a<<end>>", "renders no text: every request ends in an error"),
        ("<<index .GroupBySlice 7>> X", "fails to render: every request ends in an error"),
        ('<<.Series>>{pod="<<index .LabelValuesByName "pod">>",X}', A_OR_B),
        ('<<.Series>>{pod=`<<index .LabelValuesByName "pod">>`,X}', A_OR_B),
        ("max(a{X} / x_total{X}) by (pod)", "takes the value of x_total"),
        (f"sum(rate({TIME}{{X}}[1m]) / 1000) by (pod)", f"computes a rate of {TIME}"),
        (
            "sum by (pod) (rate(nv_inference_queue_duration_us{X}[2m]))",
            "that is 1,000,000 times the mean number of requests at once",
        ),
        (
            "sum by (pod) (rate(queue_time_ms_total{X}[2m]))",
            "that is 1,000 times the mean number of requests at once",
        ),
        (
            "sum by (pod) (rate(queue_time_seconds_sum{X}[2m]))",
            "that is the mean number of requests at once",
        ),
        ("(sum(up{X}) by (<<.GroupBy>>, model))", "groups also by model"),
        ("sum by (pod) (a{X} / clamp_min(b{X}, 1))", "adds up the quotients of series"),
        (
            "avg by (pod) (histogram_quantile(0.9, sum by (pod,le) (rate(a_bucket{X}[5m]))))",
            "averages percentiles",
        ),
    ],
)
def test_a_query_gives_a_warning(query: str, message: str) -> None:
    ((path, warning),) = _warnings(_rule(metricsQuery=query))

    assert path == "rules[0].metricsQuery"
    assert message in warning


@pytest.mark.parametrize(
    "query",
    [
        "sum(<<.Series>>{X}) by (pod)",
        "sum(<<.Series>>{X}) by (namespace, pod)",
        "sum(<<.Series>>{X}) by (<<index .GroupBySlice 0>>)",
        "sum without (model) (<<.Series>>{X})",
        "avg without (model, gpu) (rate(a_total{X}[2m]))",
        'sum(x{namespace="<<index .LabelValuesByName "namespace">>"}) by (<<.GroupBy>>)',
        "sum(rate(http_requests_total{X}[2m])) by (pod)",
        "sum(rate(gpu_lag_total{X}[2m])) by (pod)",
        "max(avg_over_time(up{X}[2m])) by (pod)",
        r"sum(<<.Series>>{X,a=~`\\d+`}) by (<<.GroupBy>>)",
        "<<.Series>>{X}",
        '<<if eq .GroupBy "pod">>sum(<<.Series>>{X}) by (<<.GroupBy>>)<<else>>nope(<<end>>',
        "topk(2, <<.Series>>{X})",
        "bottomk by (node) (2, <<.Series>>{X})",
        "limitk(2, <<.Series>>{X})",
        "limit_ratio(0.5, <<.Series>>{X})",
        "sum(increase(x_total{X}[1m])) by (pod)",
        "sum(max_over_time(rate(x_total{X}[1m])[5m:])) by (pod)",
        "sum(x_total{X} - x_total{X} offset 1m) by (pod)",
        "sum(up{X} unless x_total{X}) by (pod)",
        "count(x_total{X}) by (pod)",
        "sum(time() - timestamp(x_total{X})) by (pod)",
        f"sum(rate({TIME}{{X}}[1m])) by (pod) / sum(rate(x_total{{X}}[1m])) by (pod)",
        "sum(rate(container_cpu_usage_seconds_total{X}[1m])) by (pod)",
        "topk(1, sum(up{X}) by (<<.GroupBy>>, model)) by (pod)",
        "max(sum(up{X}) by (<<.GroupBy>>, model)) by (<<.GroupBy>>)",
        "sum by (pod) (a{X}) / sum by (pod) (b{X})",
        "sum by (pod) (a{X} / 1024)",
        "sum by (pod) (a{X}) / (sum by (pod) (b{X}) + 0.001)",
        "max by (pod) (a{X} / b{X})",
    ],
)
def test_a_usual_query_gives_no_warning(query: str) -> None:
    assert _warnings(_rule(metricsQuery=query)) == []


BROAD = "matches nearly every series"


@pytest.mark.parametrize(
    ("key", "message", "changes"),
    [
        (
            "metricsQuery",
            "drops the labels pod and namespace: no value can be assigned to namespaces or pods",
            {"metricsQuery": "sum(<<.Series>>{X})", "resources": "{template: <<.Resource>>}"},
        ),
        (
            "maxSampleAge",
            "counts the age of <<.Series>>, which metricsQuery does not read",
            {"metricsQuery": "sum(other{X}) by (<<.GroupBy>>)", "maxSampleAge": "1m"},
        ),
        (
            "maxSampleAge",
            "counts the age of <<.Series>> only, not of other",
            {"metricsQuery": f"{QUERY} / sum(other{{X}}) by (<<.GroupBy>>)", "maxSampleAge": "1m"},
        ),
        ("seriesQuery", BROAD, {"seriesQuery": '{namespace!="",__name__!~"^container_.*"}'}),
        ("seriesQuery", BROAD, {"seriesQuery": '{__name__=~".+",kubernetes_pod_name!=""}'}),
        (
            "seriesQuery",
            BROAD,
            {"seriesQuery": '{pod!=""}', "name": "{matches: ^(.*)$, as: '${1}_avg'}"},
        ),
        ("seriesQuery", BROAD, {"seriesQuery": '{pod!=""}', "seriesFilters": "[{is: ^.*$}]"}),
        (
            "resources.template",
            "uses .Group, which is empty for core resources",
            {"resources": "{template: 'kube_<<.Group>>_<<.Resource>>'}"},
        ),
        (
            "resources.namespaced",
            "has an effect only in externalRules",
            {"resources": PODS.replace("{overrides", "{namespaced: true, overrides")},
        ),
        (
            "name.matches",
            "'(.*)_total' has no ^ or no $ and matches parts of names",
            {"seriesQuery": '{a="b"}', "name": "{matches: (.*)_total, as: '${1}_rate'}"},
        ),
        (
            "name.matches",
            "has no ^ or no $",
            {"seriesQuery": '{a="b"}', "name": "{matches: total$, as: 'x_$0'}"},
        ),
        (
            "name.matches",
            "rejects up, the only series of seriesQuery",
            {"name": "{matches: ^down$}"},
        ),
        (
            "seriesFilters",
            "rejects up, the only series of seriesQuery",
            {"seriesFilters": "[{isNot: up}]"},
        ),
    ],
)
def test_a_custom_rule_gives_a_warning(key, message, changes):
    ((path, warning),) = _warnings(_rule(**changes))

    assert path == f"rules[0].{key}"
    assert message in warning


def test_groups_by_more_labels_are_wanted_if_the_rule_says_how_to_aggregate() -> None:
    query = "sum(up{X}) by (<<.GroupBy>>, model)"

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
        {"metricsQuery": "sum(<<.Series>>{X}) by (service, pod)", "resources": SERVICES},
        {
            "metricsQuery": '<<.Series>>{service="<<index .LabelValuesByName "service">>",X}',
            "resources": SERVICES,
        },
        {"metricsQuery": "avg(<<.Series>>) by (<<.GroupBy>>)", "resources": NODES},
        {
            "seriesQuery": '{__name__=~"^istio_.*_total"}',
            "name": "{matches: (.*)_total, as: '${1}_per_second'}",
            "metricsQuery": "sum(rate(<<.Series>>{X}[2m])) by (<<.GroupBy>>)",
        },
        {"seriesQuery": '{uuid!=""}'},
        {"seriesQuery": '{__name__!=""}', "seriesFilters": "[{is: ^http_}]"},
        {"seriesQuery": '{__name__!=""}', "name": "{matches: ^http_.*}"},
        {"seriesQuery": '{namespace!="",job="x"}'},
        {"resources": NODES},
        {"resources": "{template: 'kube_<<.Resource>>'}"},
        {"resources": PODS.replace("{overrides", "{template: <<.Group>>_<<.Resource>>, overrides")},
        {"seriesQuery": '{a="b"}', "name": "{matches: ^(.*)_total$, as: '${1}_rate'}"},
        {"seriesQuery": '{a="b"}', "name": "{matches: '(?P<x>.*)_total$', as: '${x}_rate'}"},
        {"seriesQuery": '{a="b"}', "name": "{matches: ^up$, as: x}"},
        {"seriesQuery": '{__name__=~"^up$"}', "name": "{as: x}"},
        {"seriesQuery": '{a="b"}', "seriesFilters": "[{is: ^up$}]", "name": "{as: x}"},
        {"name": "{matches: u, as: x}"},
    ],
)
def test_a_custom_rule_gives_no_warning(changes):
    assert _warnings(_rule(**changes)) == []


@pytest.mark.parametrize(
    ("key", "message", "changes"),
    [
        (
            "metricsQuery",
            "the namespace and the metric selector are ignored, and every namespace gets the same",
            {"metricsQuery": "sum(<<.Series>>)"},
        ),
        (
            "metricsQuery",
            "that is a mean in which each series counts the same, however small its divisor",
            {"metricsQuery": "sum(a{X} / b{X})"},
        ),
        ("aggregate", "has no effect in externalRules", {"aggregate": "max"}),
        ("merge", "has no effect in externalRules", {"merge": "true"}),
        ("maxSampleAge", "has no effect in externalRules", {"maxSampleAge": "1m"}),
        (
            "metricsQuery",
            "value / target replicas, however many run. Use type Value, or sum here",
            {"metricsQuery": "(avg(<<.Series>>{X}))"},
        ),
        (
            "metricsQuery",
            "an HPA asks for value / target replicas, however many run. Use type Value",
            {"metricsQuery": "avg(disk_pct{X})"},
        ),
        ("metricsQuery", "does not look like PromQL", {"metricsQuery": "avg(<<.Series>>{X}"}),
    ],
)
def test_an_external_rule_gives_a_warning(key, message, changes):
    keys = {"metricsQuery": "sum(<<.Series>>{X})"} | changes

    ((path, warning),) = _warnings(_rule(**keys), section="externalRules")

    assert path == f"externalRules[0].{key}"
    assert message in warning


@pytest.mark.parametrize(
    ("query", "resources"),
    [
        ("sum(<<.Series>>{X})", PODS),
        ("sum(<<.Series>>{X})", "{namespaced: false}"),
        ("vector(1)", "{namespaced: false}"),
        ("vector(scalar(sum(a)))", "{namespaced: false}"),
        ("sum(avg(<<.Series>>{X}) > 1)", PODS),
        ("avg_over_time(<<.Series>>{X}[1m])", PODS),
    ],
)
def test_an_external_rule_gives_no_warning(query, resources):
    assert _warnings(_rule(metricsQuery=query, resources=resources), section="externalRules") == []


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("avg by (queue) (<<.Series>>{X})", "mean"),
        ("(avg(<<.Series>>{X})) or vector(0)", "mean"),
        ("avg_over_time(avg(<<.Series>>{X})[5m:15s])", "mean"),
        ("quantile(0.9, <<.Series>>{X})", "percentile"),
        ("sum(<<.Series>>{X}) / sum(limit{X})", "ratio"),
        ("sum(rate(t_seconds_sum{X}[5m])) / sum(rate(t_seconds_count[5m]))", "mean"),
    ],
)
def test_a_value_that_does_not_grow_with_the_replicas_gives_a_warning(query, kind):
    ((_, message),) = _warnings(_rule(metricsQuery=query), section="externalRules")

    assert message.startswith(f"is a {kind}. With target type AverageValue, an HPA asks for")
    assert ("rarely for more than two" in message) == (kind == "ratio")
    assert message.endswith("Use type Value")


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
            {"seriesQuery": '{a="b"}'},
            {"seriesQuery": '{a="b"}'},
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
        ({"seriesQuery": '{a="b"}'}, {"seriesQuery": '{a="c"}'}),
    ],
)
def test_two_rules_that_produce_different_metrics_or_merge_give_no_warning(first, second):
    assert _warnings(_rule(**first), _rule(**second)) == []


def test_the_second_of_two_external_rules_that_produce_one_metric_gives_a_warning():
    rule = _rule(metricsQuery="<<.Series>>{X}")

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
    ("key", "message", "value"),
    [
        (
            "containerQuery",
            "does not use <<.GroupBy>>: no sample matches an object",
            "'sum(<<.Series>>{<<.LabelMatchers>>})'",
        ),
        (
            "nodeQuery",
            "does not use <<.LabelMatchers>>: every request reads the samples of the whole",
            "'sum(x) by (<<.GroupBy>>)'",
        ),
        (
            "nodeQuery",
            "does not look like PromQL",
            "'sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>'",
        ),
        ("resources", "maps no label to nodes, which nodeQuery needs", PODS),
        (
            "resources.overrides.x",
            "'nope' is not a built-in resource",
            RESOURCE_RULE["resources"].replace("pod:", "x: {resource: nope}, pod:"),
        ),
    ],
)
def test_resource_rules_give_a_warning(key, message, value):
    ((path, warning),) = _resource_warnings(**{key.partition(".")[0]: value})

    assert path == f"resourceRules.cpu.{key}"
    assert message in warning


def test_a_resource_rule_without_a_query_is_left_to_the_parser():
    assert _resource_warnings(nodeQuery="") == []


def test_a_rule_without_a_query_is_left_to_the_parser():
    assert _warnings(_rule(metricsQuery="")) == []


@pytest.mark.parametrize("name", ["", "{matches: ^up$, as: x}"])
def test_an_invalid_series_query_is_left_to_the_compiler(name):
    assert _warnings(_rule(seriesQuery="rate(up[5m])", name=name)) == []


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


_RATIO = _rule(seriesQuery="a", name="{as: share}", metricsQuery="sum(<<.Series>>{X}) / sum(b{X})")


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
        name="{as: share}", resources="{namespaced: false}", metricsQuery="sum(<<.Series>>)"
    )

    assert len(_of_hpas(rule=rule)) == 1
    assert _of_hpas(_target("Value"), rule=rule) == []


_REST = "and all of it after 300 s. Use a range of four scrape intervals"
_DELAYS = "delays HorizontalPodAutoscaler llm/x (h.yaml:9)"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sum(rate(<<.Series>>{X}[2m]))", ""),
        (
            "sum(rate(<<.Series>>{X}[5m]))",
            f"{_DELAYS}: rate shows half of a change after 150 s, {_REST}",
        ),
        ("sum(<<.Series>>{X} offset 5m)", f"{_DELAYS} by 300 s, its offset. Leave it out"),
    ],
)
def test_a_query_that_delays_an_autoscaler_gives_a_warning(query, message):
    rule = _rule(seriesQuery="a_total", name="{as: share}", metricsQuery=query)

    without = _of_hpas(rule=rule)

    assert [each for each in _of_hpas(_target("Value"), rule=rule) if each not in without] == (
        [message] if message else []
    )


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_that_is_loaded_as_one_gives_no_warning(name):
    loaded = ruleset.load([(f"{presets.FILE}{name}", presets.text(name))])

    assert check.warnings(loaded) == ()


def test_a_rule_of_a_preset_that_replaces_an_own_one_gives_a_warning():
    own = f"rules: [{_rule()}]"

    loaded = ruleset.load([("f.yaml", own), (f"{presets.FILE}any", own)])

    (warning,) = check.warnings(loaded)
    assert "produces the same metric of namespaces, pods as rules[0] (f.yaml:1)" in str(warning)
