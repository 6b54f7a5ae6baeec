from __future__ import annotations

import json
import textwrap

import promql_parser
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from rules.errors import PlanError
from rules.kinds import NODES, PODS
from rules.query import label_binding, plan
from rules.query.catalog import Entry, ExternalEntry
from rules.query.plan import SelectedObjects
from rules.quoting import quote
from rules.selectors import selectors
from tests import world

EVERYTHING = selectors.parse("")

RULE = """
seriesQuery: 'm'
resources:
  overrides:
    exported_namespace: {resource: namespace}
    namespace: {resource: namespace}
    exported_pod: {resource: pod}
    pod: {resource: pod}
    node: {resource: node}
metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


def entry_of(*rules, resource=PODS, labels="namespace pod node", live=()):
    listings = [world.listing(f"m {labels}", live=dict(live))] * len(rules)
    return world.generation(world.file_of(*rules), *listings).catalog.entry(resource, "m")


def external_of(rule: str) -> ExternalEntry:
    text = world.file_of(external=[rule])
    return world.generation(text, "m namespace").catalog.external["m"]


def query(entry: Entry, *names: str, namespace: str = "ml", selector: str = "") -> str:
    custom = plan.custom(
        entry, namespace=namespace, names=names, selector=selectors.parse(selector)
    )
    (text,) = custom.promql()
    return text


def rule_with(query_template: str) -> str:
    return "\n".join(
        (*RULE.strip().splitlines()[:-1], f"metricsQuery: {json.dumps(query_template)}")
    )


MATCHERS = entry_of(rule_with("<<.LabelMatchers>>"))


@pytest.mark.parametrize(
    ("selector", "matcher"),
    [
        ("k in (b,a,a.b)", 'k=~"a|a.b|b"'),
        ("app.kubernetes.io/name=web", '"app.kubernetes.io/name"="web"'),
    ],
)
def test_each_selector_operator_becomes_a_matcher(selector, matcher):
    text = query(MATCHERS, "web-0", selector=selector)

    assert text == f'{matcher},namespace="ml",pod="web-0"'


@pytest.mark.parametrize("selector", ["k>5", "k<5"])
def test_comparison_is_refused_with_the_reason(selector):
    with pytest.raises(PlanError, match=f"`{selector}` cannot be a matcher.* as numbers: use"):
        query(MATCHERS, "web-0", selector=selector)


@pytest.mark.parametrize(
    ("names", "matcher"),
    [
        ((), 'pod=""'),
        (("web.0",), 'pod="web.0"'),
        (("b", "a"), 'pod=~"b|a"'),
        (("web-0", "web.1"), r'pod=~"web-0|web\\.1"'),
        (("a|b", "^c$"), r'pod=~"a\\|b|\\^c\\$"'),
    ],
    ids=["none", "one", "order kept", "dot escaped", "every metacharacter"],
)
def test_several_names_are_escaped(names, matcher):
    assert query(MATCHERS, *names) == f'namespace="ml",{matcher}'


def test_values_by_name_are_not_escaped():
    text = query(
        entry_of(rule_with("<<.LabelValuesByName>>")), "a.b", "c", selector="k in (y,x),!z"
    )

    assert text == "map[k:x|y namespace:ml pod:a.b|c z:]"


@pytest.mark.parametrize("name", ['x"} or secret{pod="y', "x' or", "x`", "x\\", "x\n"])
def test_name_that_could_end_a_string_is_refused_if_the_template_quotes_values(name):
    template = '<<.Series>>{<<.LabelMatchers>>,pod=~"<<index .LabelValuesByName `pod`>>"}'

    with pytest.raises(PlanError, match="could end a PromQL string"):
        query(entry_of(rule_with(template)), name)
    assert query(MATCHERS, name) == f'namespace="ml",pod={quote(name)}'


def test_label_name_is_quoted_in_promql_unless_it_is_classic():
    rule = """
        seriesQuery: m
        resources: {overrides: {k8s.pod: {resource: pod}, namespace: {resource: namespace}}}
        metricsQuery: >-
          <<.Series>>{<<.LabelMatchers>>} by (<<.GroupBy>>) <<index .LabelValuesByName "k8s.pod">>
        """

    text = query(entry_of(textwrap.dedent(rule), labels="k8s.pod namespace"), "p")

    assert text == 'm{namespace="ml","k8s.pod"="p"} by ("k8s.pod") p'


def test_plan_for_a_root_scoped_resource_ignores_the_namespace():
    custom = plan.custom(
        entry_of(RULE, resource=NODES), namespace="ml", names=["n1"], selector=EVERYTHING
    )

    assert custom.namespace == ""
    assert custom.promql() == ('sum(m{node="n1"}) by (node)',)


def test_query_by_a_later_binding_excludes_earlier_labels():
    first, second = label_binding.Choice(["exported_pod", "pod"], ["namespace"])
    entry = entry_of(
        RULE, labels="namespace exported_pod pod", live=[(("m", PODS), (first, second))]
    )

    custom = plan.custom(entry, namespace="ml", names=["p"], selector=selectors.parse("gpu=0"))

    assert custom.promql() == (
        'sum(m{gpu="0",namespace="ml",exported_pod="p"}) by (exported_pod)',
        'sum(m{exported_pod="",gpu="0",namespace="ml",pod="p"}) by (pod)',
    )


def test_query_by_a_later_binding_excludes_earlier_namespace_labels():
    live = (*label_binding.Choice(["exported_pod", "pod"], ["exported_namespace", "namespace"]),)
    entry = entry_of(
        RULE,
        labels="exported_namespace namespace exported_pod pod",
        live=[(("m", PODS), (live[0], live[3]))],
    )

    custom = plan.custom(entry, namespace="ml", names=["p"], selector=EVERYTHING)

    assert custom.promql()[1] == (
        'sum(m{exported_pod="",exported_namespace="",namespace="ml",pod="p"}) by (pod)'
    )


def test_each_merged_rule_is_a_step():
    rules = [f"{RULE}merge: true\n", f"{RULE}merge: true\n"]

    custom = plan.custom(entry_of(*rules), namespace="ml", names=["p"], selector=EVERYTHING)

    assert [step.rule.index for step in custom.steps] == [0, 1]


AGED = f"{RULE}maxSampleAge: 1m30s\n"


def test_recent_objects_are_queried_with_the_matchers_of_the_values():
    first, second = label_binding.Choice(["exported_pod", "pod"], ["namespace"])
    entry = entry_of(
        AGED, labels="namespace exported_pod pod", live=[(("m", PODS), (first, second))]
    )

    queries = plan.custom(
        entry, namespace="ml", names=["p", "q.r"], selector=selectors.parse("gpu=0")
    ).queries()

    labels, names = 'gpu="0",namespace="ml"', 'pod=~"p|q\\\\.r"'
    first_series = f'{{__name__="m",{labels},exported_{names}}}'
    second_series = f'{{__name__="m",exported_pod="",{labels},{names}}}'
    assert [each.recent for each in queries] == [
        f"group by (exported_pod) (last_over_time({first_series}[90s]))",
        f"group by (pod) (last_over_time({second_series}[90s]))",
    ]


def test_recent_objects_of_several_namespaces_have_their_namespace():
    (step,) = entry_of(AGED).steps

    queries = plan.queries(
        step, SelectedObjects(namespaces=None, names=None), EVERYTHING, by_namespace=True
    )

    assert queries.recent == (
        'group by (pod,namespace) (last_over_time({__name__="m",namespace!="",pod!=""}[90s]))'
    )


def test_an_age_of_less_than_a_second_is_in_milliseconds():
    (step,) = entry_of(AGED.replace("1m30s", "1s500ms")).steps

    queries = plan.queries(step, SelectedObjects(namespaces=(), names=None), EVERYTHING)

    assert queries.recent == ('group by (pod) (last_over_time({__name__="m",pod!=""}[1500ms]))')


def test_without_a_maximum_age_nothing_but_values_is_queried():
    (queries,) = plan.custom(
        entry_of(RULE), namespace="ml", names=["p"], selector=EVERYTHING
    ).queries()

    assert queries.recent is None


def test_rule_without_a_namespace_label_is_refused_with_advice():
    rule = "seriesQuery: m\nresources: {overrides: {pod: {resource: pod}}}\nmetricsQuery: x\n"

    with pytest.raises(
        PlanError, match=r"^rules\[0\] \(rules\.yaml:3\): no label .* namespaces.*override"
    ):
        query(entry_of(rule), "p")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<<if false>>x<<end>>", "renders to nothing"),
        ("<<index .GroupBySlice 3>>", "cannot render"),
        ('<<slice "é" 1>>', "cannot render"),
    ],
)
def test_template_that_renders_no_query_is_an_error_of_its_rule(source, message):
    with pytest.raises(PlanError, match=rf"^rules\[0\] \(.*{message}"):
        query(entry_of(rule_with(source)), "p")


EXTERNAL = """
seriesQuery: m
resources: {overrides: {namespace: {resource: namespace}}}
metricsQuery: '<<.Series>>{<<.LabelMatchers>>}|<<.GroupBy>>|<<.GroupBySlice>>'
"""


@pytest.mark.parametrize("namespace", ["ml", "*"])
def test_external_query_matches_the_selector_then_the_namespace(namespace):
    external = plan.external(
        external_of(EXTERNAL), namespace=namespace, selector=selectors.parse("queue=a")
    )

    assert external.promql() == f'm{{queue="a",namespace="{namespace}"}}||[]'
    assert (external.metric, external.namespace) == ("m", namespace)


def test_external_query_without_namespaces_does_not_match_them():
    entry = external_of(EXTERNAL.replace("resources: {", "resources: {namespaced: false, "))

    external = plan.external(entry, namespace="ml", selector=EVERYTHING)

    assert external.promql() == "m{}||[]"


def test_external_rule_without_a_namespace_label_is_refused():
    entry = external_of("seriesQuery: m\nmetricsQuery: x\n")

    external = plan.external(entry, namespace="ml", selector=EVERYTHING)

    with pytest.raises(
        PlanError, match=r"externalRules\[0\] \(.*: no label is mapped to namespaces"
    ):
        external.promql()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ODD = TEXT | st.text('.|\\"^$*+?()[]{}\n\t\0é', min_size=1, max_size=6)


@given(namespace=ODD, name=ODD)
def test_every_value_survives_quoting(namespace, name):
    text = query(entry_of(rule_with("<<.Series>>{<<.LabelMatchers>>}")), name, namespace=namespace)

    parsed = promql_parser.parse(text)
    assert isinstance(parsed, promql_parser.VectorSelector)
    matchers = {matcher.name: matcher.value for matcher in parsed.matchers.matchers}
    assert matchers == {"namespace": namespace, "pod": name}


@given(names=st.lists(ODD, min_size=2, max_size=4, unique=True), other=ODD)
def test_escaped_names_match_only_themselves(names, other):
    pattern = "|".join(map(plan.escape, names))

    assert all(re2.fullmatch(f"(?s:{pattern})", name) for name in names)
    assert bool(re2.fullmatch(f"(?s:{pattern})", other)) == (other in names)
    assert quote(pattern) in query(MATCHERS, *names)
