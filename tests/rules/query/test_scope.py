from __future__ import annotations

import pytest

from rules.query import scope
from rules.query.label_binding import LabelBinding
from rules.query.scope import Scope
from tests.rules.query.scoped import NODE, step_of

A = "A{<<.LabelMatchers>>}"
B = "B{<<.LabelMatchers>>}"
SUM_A = f"sum by (<<.GroupBy>>) ({A})"

CLUSTER = [
    A,
    "<<.Series>>{<<.LabelMatchers>>}",
    '<<.Series>>{container!="POD",<<.LabelMatchers>>}',
    "A{ <<- .LabelMatchers ->> }",
    "A{<<$.LabelMatchers>>}",
    SUM_A,
    f"sum({A}) by (<<.GroupBy>>)",
    f"sum by (namespace, pod) ({A})",
    f'sum by ("namespace", "pod") ({A})',
    f"sum by (<<.GroupBy>>, node) ({A})",
    f"sum by (<<.GroupBy>>, namespace) ({A})",
    f"sum without (node) ({A})",
    f"sum by (<<range $i, $l := .GroupBySlice>><<if $i>>,<<end>><<$l>><<end>>) ({A})",
    f"quantile by (<<.GroupBy>>) (0.9, {A})",
    f"quantile by (<<.GroupBy>>) (scalar(max(B)), {A})",
    f'count_values by (<<.GroupBy>>) ("value", {A})',
    f"-({A}) * 100 > bool 5",
    f"{A} > 1 < time()",
    "max_over_time(rate(A{<<.LabelMatchers>>}[5m] offset 1m @ end())[30m:1m])",
    "histogram_quantile(0.9, sum by (<<.GroupBy>>, le) (rate(A{<<.LabelMatchers>>}[5m])))",
    f'label_replace({A}, "x", "$1", "namespace", "(.*)")',
    f"{A} / {B}",
    f"{A} and {B}",
    f"{A} or {B}",
    f"{A} unless {B}",
    f"{SUM_A} / sum by (<<.GroupBy>>) ({B})",
    f"{SUM_A} / on (<<.GroupBy>>) {B}",
    f"{A} / ignoring (node) {B}",
    f"({SUM_A} * on (<<.GroupBy>>) group_right {A}) and on (namespace, pod) C",
    f"{A} * on (<<.GroupBy>>) group_left (node) {B}",
    f"{A} * on (namespace, pod) group_left (node) {B}",
    f"{A} * scalar(max(B))",
    f"{A} and on (node) B",
    f"{A} unless on (node) B",
    f"{A} * on (node) group_left (zone) B",
    f"B * on (node) group_right (zone) {A}",
    f"{SUM_A} * on (pod) group_left (zone) B",
    f"{A} * on (namespace, pod) group_left (zone) B",
    f"B and on (namespace, pod) {A}",
    f"B * on (namespace, pod) {A}",
    f"B * on (namespace, pod) group_left {A}",
    f"B * on (node) group_left (namespace, pod) {A}",
    f"B * on (namespace, node) group_left (pod) {A}",
    f"{A} or vector(0)",
    f"{SUM_A} or on () vector(0)",
    f"{A} or sum without (pod) (B)",
    f"vector(0) or {A}",
    f"abs(({SUM_A} or vector(0)) * 100)",
    f"-({A} or sum without (pod) (B)) > 1",
    f"-sum by (<<.GroupBy>>) ({A} or avg without (pod) (last_over_time(B[5m])))",
    f"{SUM_A} / {SUM_A} or vector(0)",
    f'label_join(sum without (node) ({A} or {B}) unless vector(0), "kind", "")',
    f"{SUM_A} or sum by (node) (B)",
    f"{A} or topk(1, sum by (node) (B))",
    f"{A} or max by (pod) (vector(0))",
    f'label_replace({SUM_A}, "kind", "gpu", "", "")',
    f'label_replace({SUM_A}, "kind", "$0", "pod", "namespace")',
    f'label_join({SUM_A}, "kind", "", "")',
    f"{A} * on () group_left () count(B)",
    f"{A} # by (pod) of sum()",
    "<</* comment */>>A{<<.LabelMatchers>>}",
]

NAMESPACE = [
    (f"sum by (pod) ({A})", "sum by (pod)", "drops the label namespace"),
    (f"sum without (namespace) ({A})", "sum without (namespace)", "drops the label namespace"),
    ("sum by (pod) (B)", "", "no selector has <<.LabelMatchers>>"),
    ("A", "", "no selector has <<.LabelMatchers>>"),
    (f"{A} / on (pod) {B}", "/ on (pod)", "does not match on the label namespace"),
    (f"{A} or B", "or", "adds series"),
    (f"{A} or sum by (pod) (B)", "or", "adds series"),
    (f"{A} or sum without (node) (B)", "or", "adds series"),
    (f'{A} or count_values by (node) ("pod", B)', "or", "adds series"),
    *(
        (f"{A} or {chosen}", "or", "adds series")
        for chosen in (
            "topk(2, B)",
            "bottomk(2, B)",
            "limitk(2, B)",
            "limit_ratio(0.5, B)",
            "topk without (pod) (2, B)",
            "topk by (node) (2, B)",
            "topk(2, topk(3, B))",
        )
    ),
    (f"topk(2, B) unless on (namespace, pod) {A}", "unless on (namespace, pod)", "adds series"),
    (f"{SUM_A} or bottomk(1, B)", "or", "adds series"),
    (f'{A} or count_values by (node) ("pod", vector(0))', "or", "adds series"),
    (f"{A} or last_over_time((vector(0) or B)[5m:1m])", "or", "adds series"),
    (f"vector(0) or {SUM_A}", "or", "matches on the label namespace, which one side"),
    (f"vector(0) or on (<<.GroupBy>>) {A}", "or on (<<.GroupBy>>)", "uses <<.GroupBy>> for"),
    (
        f"({A} / on (<<.GroupBy>>) {B}) and on (namespace, pod) C",
        "and on (namespace, pod)",
        "matches on the label namespace, which one side",
    ),
    (
        f"({A} * on (<<.GroupBy>>) group_right {SUM_A}) and on (namespace, pod) C",
        "and on (namespace, pod)",
        "matches on the label namespace, which one side",
    ),
    (f"B * on (node) group_left (pod) {A}", "* on (node)", "does not match on the label namespace"),
    (f"B or {A}", "or", "adds series"),
    (f"B unless on (namespace, pod) {A}", "unless on (namespace, pod)", "adds series"),
    (f"B * on (node) group_left (pod) {A}", "* on (node)", "does not match on the label namespace"),
    (f"B * on (pod) {A}", "* on (pod)", "does not match on the label namespace"),
    (
        f"{SUM_A} / sum by (<<.GroupBy>>) (B)",
        "sum by (<<.GroupBy>>)",
        "uses <<.GroupBy>> for series",
    ),
    (f"{A} and on (<<.GroupBy>>) B", "and on (<<.GroupBy>>)", "uses <<.GroupBy>> for series"),
    (
        f"{A} * on (node) group_left (zone) (B * on (<<.GroupBy>>) C)",
        "* on (<<.GroupBy>>)",
        "uses <<.GroupBy>> for series",
    ),
    (f"{SUM_A} and B", "and", "matches on the label namespace, which one side"),
    (
        f"{SUM_A} + on (namespace, pod) {B}",
        "+ on (namespace, pod)",
        "has the label namespace on one side only",
    ),
    (f"{SUM_A} or on (<<.GroupBy>>) {B}", "or on (<<.GroupBy>>)", "on one side only"),
    (
        f'label_replace({SUM_A}, "x", "$1", "namespace", "(.*)")',
        "label_replace()",
        "reads the label namespace",
    ),
    (
        f'label_join({SUM_A}, "x", "-", "pod", "namespace")',
        "label_join()",
        "reads the label namespace",
    ),
    (f'label_replace({A}, "namespace", "$1", "x", "(.*)")', "label_replace()", "changes the label"),
    (f"{A} * on (node) group_left (namespace) B", "* on (node)", "copies the label namespace"),
    (
        'A{namespace="<<index .LabelValuesByName "namespace">>"}',
        '<<index .LabelValuesByName "namespace">>',
        "lets the template depend",
    ),
    (
        f'A{{namespace="<<index .LabelValuesByName "namespace">>"}} and on (pod) {A}',
        '<<index .LabelValuesByName "namespace">>',
        "lets the template depend",
    ),
    ("A{x<<.LabelMatchers>>}", "A", "has only some of the matchers"),
    (f"<<if eq (len .GroupBySlice) 1>>{A}<<else>>{B}<<end>>", "<<.GroupBySlice>>", "another query"),
    (f'label_replace({A}, "x", "<<.GroupBy>>", "", "")', "<<.GroupBy>>", "not only in by"),
]

ALONE = [
    (f"sum({A})", "sum", "drops the label pod"),
    (f"sum by (node) ({A})", "sum by (node)", "drops the label pod"),
    (f"sum without (pod) ({A})", "sum without (pod)", "drops the label pod"),
    (f"topk(1, {A})", "topk", "may depend on"),
    (f"bottomk by (<<.GroupBy>>) (1, {A})", "bottomk by (pod)", "may depend on"),
    (f"sort({A})", "sort()", "may depend on"),
    (f"limitk(1, {A})", "limitk", "may depend on"),
    (f'count_values by (<<.GroupBy>>) ("pod", {A})', "count_values by (pod)", "changes"),
    (f"absent({A})", "absent()", "may depend on"),
    ("absent_over_time(A{<<.LabelMatchers>>}[5m])", "absent_over_time()", "may depend on"),
    (f"{A} / scalar({B})", "scalar()", "may depend on"),
    (f"vector(scalar({A}))", "scalar()", "may depend on"),
    (f"info({A})", "info()", "may depend on"),
    (f"{A} / on (node) {B}", "/ on (node)", "does not match on the label pod"),
    (f"{A} / ignoring (pod) {B}", "/ ignoring (pod)", "does not match on the label pod"),
    (f"{A} / on () {B}", "/ on ()", "does not match on the label pod"),
    (f"{A} * on (node) B", "* on (node)", "does not match on the label pod"),
    (f"{A} * on (node) group_right (zone) B", "* on (node)", "does not match on the label pod"),
    (f"{A} == on (node) group_right B", "== on (node)", "does not match on the label pod"),
    (f"B * on (node) group_left (namespace) {A}", "* on (node)", "does not match on the label pod"),
    (f"B * on (node) group_left {A}", "* on (node)", "does not match on the label pod"),
    (f"B unless on (node) {A}", "unless on (node)", "does not match on the label pod"),
    (f"B and on (node) {A}", "and on (node)", "does not match on the label pod"),
    (f'label_join({A} or B, "zone", "-", "x")', "label_join()", "fails for duplicate series"),
    (f'label_replace({A} or vector(0), "x", "", "", "")', "label_replace()", "fails for duplicate"),
    (f"{SUM_A} / ({SUM_A} or vector(1))", "/", "fails for duplicate series"),
    (f"({A} or B) * 100", "*", "fails for duplicate series"),
    (f"-(B unless on (pod) {A})", "-", "fails for duplicate series"),
    (f"rate(({A} or B)[5m:1m])", "rate()", "fails for duplicate series"),
    (f"{A} or on (node) B", "or on (node)", "does not match on the label pod"),
    (f"{A} or on () topk(1, B)", "or on ()", "does not match on the label pod"),
    (f'label_replace({A}, "pod", "$1", "x", "(.*)")', "label_replace()", "changes the label pod"),
    (f'label_replace({A}, ("pod"), "$1", "x", "(.*)")', "label_replace()", "changes the label pod"),
    (f'count_values by (<<.GroupBy>>) (("pod"), {A})', "count_values by (pod)", "changes"),
    (f'label_join({A}, "pod", "-", "x", "y")', "label_join()", "changes the label pod"),
    (f"{A} * on (node) group_left (pod) B", "* on (node)", "copies the label pod"),
    (f"{A} * on (pod) fill (0) {B}", "* on (pod)", "fills in samples"),
    (
        'A{pod=~"<<index .LabelValuesByName "pod">>"}',
        '<<index .LabelValuesByName "pod">>',
        "lets the template depend",
    ),
    (
        f'<<if eq (index .LabelValuesByName "namespace") "n1">>{A}<<else>>{B}<<end>>',
        "<<.LabelValuesByName>>",
        "lets the template depend",
    ),
    (
        f'label_replace({A}, "<<index .LabelValuesByName "namespace">>", "p1", "", "")',
        "<<index .LabelValuesByName ...>>",
        "is not only in matchers",
    ),
    (f"<<if .LabelMatchers>>{A}<<end>>", "<<.LabelMatchers>>", "lets the template depend"),
    (f'{A}<<print . | printf "#%.0s">>', "<<.>>", "lets the template depend"),
    ("label_replace(A, 'x', '<<.LabelMatchers>>', '', '')", "<<.LabelMatchers>>", "is not only in"),
    ('A{<<.LabelMatchers>> or x="y"}', "<<.LabelMatchers>>", "is not only in"),
    (f"{A} keep_metric_names", "", "cannot be analysed"),
    ("holt_winters(A{<<.LabelMatchers>>}[5m], 0.1, 0.2)", "", "cannot be analysed"),
    ("<<.LabelValuesByName.pod.x>>", "<<.LabelValuesByName.pod.x>>", "lets the template depend"),
    ("<<index .GroupBySlice 5>>", "", "cannot be analysed"),
    ("", "", "cannot be analysed"),
]


@pytest.mark.parametrize("query", CLUSTER)
def test_cluster(query):
    assert scope.sharing(step_of(query)) == scope.Sharing(scope=Scope.CLUSTER)


@pytest.mark.parametrize(("query", "construct", "reason"), NAMESPACE)
def test_namespace(query, construct, reason):
    _assert_refused(query, Scope.NAMESPACE, construct, reason)


@pytest.mark.parametrize(("query", "construct", "reason"), ALONE)
def test_alone(query, construct, reason):
    _assert_refused(query, Scope.ALONE, construct, reason)


def _assert_refused(query, expected, construct, reason):
    sharing = scope.sharing(step_of(query))
    assert sharing.scope == expected, sharing.obstacle
    assert reason in sharing.obstacle
    assert sharing.obstacle.startswith(f"`{construct}`" if construct else "")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum by (node) (A{<<.LabelMatchers>>})", Scope.CLUSTER),
        ("sum by (node) (A)", Scope.CLUSTER),
        ('A{node=~".+",x="<<index .LabelValuesByName "x">>",<<.LabelMatchers>>}', Scope.ALONE),
        ("A{<<.LabelMatchers>>} and on (node) B", Scope.CLUSTER),
        ("B unless on (node) A{<<.LabelMatchers>>}", Scope.CLUSTER),
        ("sum by (pod) (A{<<.LabelMatchers>>})", Scope.ALONE),
        ("A{<<.LabelMatchers>>} or on () topk(1, B)", Scope.ALONE),
        (f'label_replace({SUM_A}, "kind", "gpu", "", "")', Scope.CLUSTER),
    ],
)
def test_objects_without_namespace(query, expected):
    assert scope.sharing(step_of(query, NODE)).scope == expected


def test_earlier_labels_are_matchers_of_every_request():
    later = LabelBinding(resource="pod", namespace="namespace", absent=("exported_pod",))
    assert scope.sharing(step_of(SUM_A, later)).scope == Scope.CLUSTER


def test_a_label_with_an_unusual_name():
    binding = LabelBinding(resource="k8s.pod", namespace="k8s.namespace")
    assert scope.sharing(step_of(SUM_A, binding)).scope == Scope.CLUSTER
    by_hand = step_of(f'sum by ("k8s.pod") ({A})', binding)
    assert scope.sharing(by_hand).scope == Scope.NAMESPACE


def test_external_metrics_are_alone():
    external = LabelBinding(resource="", namespace="namespace")
    assert scope.sharing(step_of(SUM_A, external, section="externalRules")).scope == "alone"


def test_deep_nesting_is_alone():
    sharing = scope.sharing(step_of(f"{A}{'+ 1' * 900}"))
    assert (sharing.scope, sharing.obstacle) == (
        Scope.ALONE,
        "it cannot be analysed: it nests 901 operators, functions and parentheses, more than 128",
    )


@pytest.mark.parametrize(
    ("query", "construct"),
    [
        (f"-({A}) > bool 5 + sum(A) + max by (x) ({B})", "max by"),
        (f"rate(B{{x='sum(', y=\"max\"}}[5m:]) # max(\n / max({A})", "max("),
        (f"(B offset -5m) and on (sum) ({A})", "and"),
        ("sum(rate(B[5m] @ end())) by (node)\n  /\nmax(<<.Series>>{<<.LabelMatchers>>})", "max("),
        (f"absent(B) or MAX({A})", "MAX("),
    ],
)
def test_position(query, construct):
    sharing = scope.sharing(step_of(query))
    assert sharing.position == query.rindex(construct)


def test_no_position_where_the_text_depends_on_the_template():
    query = f"<<range 2>>sum by (x) (B) + <<end>> max({A})"
    assert scope.sharing(step_of(query)).position is None


def test_advice():
    sharing = scope.sharing(step_of(f"sum({A})"))
    assert sharing.advice == "aggregate by (<<.GroupBy>>)"


def test_without_a_label_of_the_namespace_any_names_are_shared():
    assert scope.sharing(step_of(SUM_A, LabelBinding(resource="pod"))).scope == Scope.CLUSTER
