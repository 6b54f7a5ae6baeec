"""Rules of teams: what is refused, the limits, and what requests in a namespace see."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.server.series import generation
from rules import ruleset, teams
from rules.errors import ConfigError, PlanError
from rules.kinds import PODS, Kinds
from rules.limits import Key
from rules.query import catalog, plan, scope
from rules.query.catalog import Catalog, Listing, Series
from rules.query.confined import confine
from rules.query.plan import SelectedObjects
from rules.query.scope import Scope
from rules.ruleset import RuleSet
from rules.selectors.selectors import Requirement, Selector
from rules.teams import ConfigMap
from tests.rules.query import test_confined

KINDS = Kinds.builtin()
MAPPED = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def rule(series: str = "m", query: str = QUERY, **more: str) -> str:
    text = query if query.startswith("|") else f"'{query}'"
    lines = [f"seriesQuery: '{series}'", MAPPED, f"metricsQuery: {text}"]
    lines += [f"{key}: {value}" for key, value in more.items()]
    return "- " + "\n  ".join(lines) + "\n"


def config_map(*rules: str, namespace: str = "a", name: str = "rules", **files: str) -> ConfigMap:
    data = {"r.yaml": "rules:\n" + "".join(rules), **files}
    return ConfigMap(namespace=namespace, name=name, data=tuple(data.items()))


def load(*rules: str, **more: Any) -> RuleSet:
    return teams.load(config_map(*rules, **more), label="ns")


def loaded(*config_maps: ConfigMap) -> dict[Key, RuleSet]:
    return {(each.namespace, each.name): teams.load(each, label="ns") for each in config_maps}


def merged_with(own: RuleSet) -> RuleSet:
    return teams.merge(RuleSet(), {("a", "rules"): own})


def render(own: RuleSet, *, selector: Selector | None = None) -> str:
    merged = merged_with(own)
    pins = dict.fromkeys(range(len(merged.every)), listing("m"))
    entry = generation.build(merged, pins, {}, KINDS).of("a").catalog.entry(PODS, "m")
    (step,) = entry.steps
    objects = SelectedObjects(namespaces=("a",), names=("p",))
    return plan.render(step, objects, selector or Selector())


def listing(*names: str) -> Listing:
    labels = frozenset({"namespace", "pod"})
    return Listing(series=tuple(Series(name=each, labels=labels) for each in names))


def test_series_and_queries_are_confined():
    own = load(rule('m{x="y"}', maxSampleAge="60s"))

    (compiled,) = own.rules
    assert compiled.config.series_query == '{__name__="m",x="y",ns="a"}'
    assert render(own) == 'sum by (pod) ({__name__="m",namespace="a",pod="p",ns="a"})'
    objects = SelectedObjects(namespaces=("a",), names=("p",))
    source = generation_of(own).catalog.entry(PODS, "m").sources[0]
    recent = plan.queries(steps_of(source), objects, Selector()).recent
    assert 'ns="a"}[60000ms]' in recent


def generation_of(own: RuleSet) -> Any:
    merged = merged_with(own)
    return generation.build(merged, {}, {}, KINDS).of("a")


def steps_of(source: Any) -> Any:
    return catalog.Step(source=source, binding=source.bindings[0])


@pytest.mark.parametrize(
    "query",
    [
        '<<.Series>>{} or {__name__="secret"}',
        "<<.Series>>{<<.LabelMatchers>>} # <<",
        '<<if true>>{__name__=~".+"}<<end>>',
        '<<range .GroupBySlice>>{pod="<<.>>"}<<end>>',
        "{<<.LabelMatchers>>} or {ns!=`a`}",
    ],
)
def test_whatever_a_template_renders_is_confined(query: str):
    try:
        text = render(load(rule(query=query)))
    except (ConfigError, PlanError):
        return
    assert text.count('ns="a"') == text.count("{")


@pytest.mark.slow
def test_queries_of_a_team_are_those_that_are_proved_to_stay_in_its_namespace():
    """Real servers answer them in tests/rules/query/test_confined.py."""
    for query in test_confined.queries(300):
        assert render(load(rule(query="|-\n    " + query.replace("\n", "\n    ")))) == confine(
            query.rstrip(), "ns", "a"
        )


def test_values_of_a_request_do_not_widen_a_query():
    value = 'x"} or secret{a="'
    requirement = Requirement(key="key", operator="=", values=(value,))

    text = render(load(rule()), selector=Selector(requirements=(requirement,)))

    assert text.count("__name__") == 1
    assert text.endswith('ns="a"})')


def test_one_query_covers_the_objects_of_the_namespace():
    (step,) = generation_of(load(rule())).catalog.entry(PODS, "m").steps
    found = scope.sharing(step)

    assert (found.scope, found.obstacle) == (
        Scope.NAMESPACE,
        "the rule is confined to namespace a",
    )


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (config_map(rule(source="thanos")), "a team cannot choose the Prometheus"),
        (config_map(rule(ahead={"season": "7d"})), "a team cannot read days of the past"),
        (config_map(**{"s.yaml": "sources: {x: {url: http://x}}"}), "cannot have `sources`"),
        (
            config_map(
                **{
                    "s.yaml": "resourceRules: {cpu: {containerQuery: x, containerLabel: c, "
                    "nodeQuery: x}, memory: {containerQuery: x, containerLabel: c, nodeQuery: x}}"
                }
            ),
            "cannot have `resourceRules`",
        ),
        (config_map(rule('m{a="b" or c="d"}')), "cannot join matchers by `or`"),
        (config_map(rule("sum(m)")), "not a series selector"),
        (config_map(rule(query="info(m)")), "cannot use info()"),
        (config_map(rule(query="m{")), "unexpected end of input"),
        (config_map(rule(query="<<nope>>")), "invalid template"),
        (ConfigMap(namespace="a", name="x", data=(("notes.txt", "x"),)), "has no rules file"),
        (config_map(**{"s.yaml": "rules: ["}), "s.yaml:2:1: error: invalid YAML"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(found: ConfigMap, message: str):
    with pytest.raises(ConfigError) as refused:
        teams.load(found, label="ns")
    assert message in str(refused.value)


def test_rules_of_teams_follow_those_of_the_cluster_by_namespace_and_name():
    cluster = ruleset.load([("c.yaml", f"rules:\n{rule('m')}")])
    maps = [
        config_map(rule("n"), namespace="b"),
        config_map(rule("o"), rule("p"), name="second"),
        config_map(rule("q"), name="first"),
    ]

    merged = teams.merge(cluster, loaded(*maps))

    assert [each.index for each in merged.every] == list(range(5))
    assert [each.pinned_series for each in merged.teams["a"].all] == ["q", "o", "p"]
    again = teams.merge(cluster, loaded(*reversed(maps)))
    assert [each.content for each in merged.every] == [each.content for each in again.every]


def test_a_namespace_sees_the_rules_of_the_cluster_and_its_own():
    cluster = ruleset.load([("c.yaml", f"rules:\n{rule('m')}")])
    merged = teams.merge(
        cluster,
        loaded(config_map(rule("m"), rule("n")), config_map(rule("n"), rule("o"), namespace="b")),
    )
    built = generation.build(merged, {}, {}, KINDS)

    def source(namespace: str, metric: str) -> str:
        entry = built.of(namespace).catalog.entry(PODS, metric)
        return "" if entry is None else str(entry.sources[-1].rule.config.where)

    assert source("x", "m") == source("a", "m") == source("b", "m") == "rules[0] (c.yaml:2)"
    assert (source("x", "n"), source("x", "o")) == ("", "")
    assert source("a", "n") == "a/rules: rules[1] (r.yaml:5)"
    assert source("b", "n") == "b/rules: rules[0] (r.yaml:2)"
    assert (source("a", "o"), source("b", "o")) == ("", "b/rules: rules[1] (r.yaml:5)")
    assert [len(built.of(each).ruleset.all) for each in "xab"] == [1, 3, 3]
    found = {each.name: each.hidden for each in teams.metrics(built.of("a").catalog)}
    assert (found["pods/m"], found["pods/n"]) == (True, False)
    assert built.catalog.cluster is None
    assert len(built.rules) == 5


def test_a_team_whose_metrics_cannot_be_built_has_those_of_the_cluster(monkeypatch):
    cluster = ruleset.load([("c.yaml", f"rules:\n{rule('m')}")])
    merged = teams.merge(
        cluster, loaded(config_map(rule("n")), config_map(rule("o"), namespace="b"))
    )
    build = catalog.build

    def failing(own: RuleSet, *more: Any) -> Catalog:
        if [each.pinned_series for each in own.all] == ["n"]:
            raise RecursionError
        return build(own, *more)

    monkeypatch.setattr(catalog, "build", failing)
    built = generation.build(merged, {}, {}, KINDS)

    assert built.of("a").catalog.entry(PODS, "m")
    assert built.of("a").catalog.entry(PODS, "n") is None
    assert "RecursionError" in built.of("a").problem
    assert built.of("b").catalog.entry(PODS, "o")
    assert built.of("b").problem == ""


def test_external_metrics_exist_in_the_namespace_only():
    text = (
        "externalRules:\n"
        "- {seriesQuery: q, metricsQuery: sum(<<.Series>>), resources: {namespaced: false}}"
    )
    own = teams.load(ConfigMap(namespace="a", name="x", data=(("r.yaml", text),)), label="ns")
    merged = merged_with(own)
    built = generation.build(merged, {}, {}, KINDS)

    assert built.catalog.external_entry("q") is None
    entry = built.of("a").catalog.external_entry("Q")
    query = plan.external(entry, namespace="a", selector=Selector()).promql()
    assert query == 'sum({__name__="q",ns="a"})'


def test_a_rule_of_too_many_series_has_no_metrics():
    own = load(rule('{x="y"}'))
    merged = merged_with(own)
    few, many = ({0: listing(*(f"m{number}" for number in range(count)))} for count in (100, 101))

    def entries(listings: dict[int, Listing]) -> int:
        team = generation.build(merged, listings, {}, KINDS).of("a").catalog
        return len([each for each in team.entries if each.resource == PODS])

    assert (entries(few), entries(many)) == (100, 0)
    assert teams.too_wide(merged.every[0], few) == ""
    assert "has 101 names; the limit for series that one rule selects is 100" in teams.too_wide(
        merged.every[0], many
    )


def test_rules_of_two_namespaces_are_never_equal():
    one, other = load(rule()), load(rule(), namespace="b")
    assert one.rules[0] != other.rules[0]
    assert one.rules[0] == load(rule()).rules[0]
    assert one.rules[0] != ruleset.load([("c.yaml", f"rules:\n{rule()}")]).rules[0]
