from __future__ import annotations

import textwrap

import pytest

from rules import ruleset
from rules.diagnosis import candidates, missing
from rules.diagnosis.inventory import Inventory, ListingStatus
from rules.diagnosis.missing import Reason
from rules.errors import PlanError
from rules.kinds import NAMESPACES, NODES, PODS, ApiGroup, ApiResource, GroupResource, Kinds
from rules.query import catalog, plan
from rules.query.catalog import Listing, Series
from rules.selectors import selectors

KINDS = Kinds.of(
    [
        ApiGroup(
            name="",
            versions=("v1",),
            preferred="v1",
            resources={
                "v1": tuple(
                    ApiResource(name=f"{name}s", kind=name.title(), namespaced=name == "pod")
                    for name in ("namespace", "node", "pod")
                )
            },
        )
    ]
)
REGIONS = Kinds.of(
    [
        *KINDS.groups,
        *(
            ApiGroup(
                name=group,
                versions=("v1",),
                preferred="v1",
                resources={"v1": (ApiResource(name="regions", kind="Region", namespaced=False),)},
            )
            for group in ("example.com", "another.com")
        ),
    ]
)
"""A cluster with two cluster-scoped custom resources named `regions`."""
BOTH = """
  overrides:
    ns: {resource: namespace}
    exported_pod: {resource: pod}
    pod: {resource: pod}
    node: {resource: node}
""".rstrip()
UTIL = f"""
seriesQuery: 'gpu_util{{gpu!=""}}'
resources: {BOTH}
name: {{as: utilisation}}
metricsQuery: m
"""
CONTAINERS = """
seriesQuery: '{__name__=~"container_.*"}'
resources: {template: '<<.Resource>>'}
metricsQuery: m
"""
RATES = f"""
seriesQuery: '{{__name__=~".*_total"}}'
resources: {BOTH}
name: {{matches: '^(.*)_total$', as: '${{1}}_per_second'}}
metricsQuery: m
"""
NODES_ALONE = """
seriesQuery: 'power'
resources: {overrides: {node: {resource: node}}}
metricsQuery: m
"""
FILTERED = """
seriesQuery: '{job="gpu"}'
seriesFilters: [{isNot: '^gpu_'}]
resources: {template: '<<.Resource>>'}
name: {as: filtered}
metricsQuery: m
"""
UPPER = """
seriesQuery: '{__name__=~"DCGM_.*"}'
resources: {namespaced: false}
metricsQuery: m
"""
GOOD = ListingStatus(listed=40.0, failed=False)
STALE = ListingStatus(listed=40.0, failed=True)
NEVER = ListingStatus(listed=None, failed=True)
STARTED = ListingStatus(listed=None, failed=False)


def seen(*rules, found=(), heard=(), external=(), kinds=KINDS):
    """`found`: for each rule the series, `name label …`; None where none was ever listed."""
    text = "".join(
        f"{section}:\n"
        + "".join("-\n" + textwrap.indent(each.strip("\n"), "  ") + "\n" for each in of)
        for section, of in (("rules", rules), ("externalRules", external))
        if of
    )
    compiled = ruleset.load([("rules.yaml", text)])
    every = (*compiled.rules, *compiled.external)
    listings = {
        rule.index: Listing(
            series=tuple(
                Series(name=name, labels=frozenset(labels))
                for name, *labels in (one.split() for one in series)
            )
        )
        for rule, series in zip(every, found, strict=False)
        if series is not None
    }
    return Inventory(
        ruleset=compiled,
        catalog=catalog.build(compiled, listings, kinds),
        kinds=kinds,
        listings=listings,
        made=candidates.made(compiled, listings),
        heard={
            rule.index: heard[place] if place < len(heard) else GOOD
            for place, rule in enumerate(every)
        },
        now=105.9,
    )


CASES = {
    "there are no rules": (
        seen(),
        "utilisation",
        [("NoRule", "the adapter has no rules: --config names")],
    ),
    "no rule gives the name": (
        seen(UTIL, found=[["gpu_util pod"]]),
        "queue_depth",
        [("NoRule", "no rule of 1 gives a metric called queue_depth: add one, or ask")],
    ),
    "no rule gives it, nor do series": (
        seen(UTIL, CONTAINERS, found=[["gpu_util pod"], ["container_cpu pod"]]),
        "queue_depth",
        [("NoRule", "nor do the series after which 1 of them name metrics: add")],
    ),
    "a rule that names metrics after series has others": (
        seen(CONTAINERS, found=[["container_cpu pod"]]),
        "container_queue_depth",
        [("NoRule", "no rule of 1 gives a metric called container_queue_depth, nor do")],
    ),
    "the name resembles one that is listed": (
        seen(UTIL, CONTAINERS, found=[["gpu_util pod ns"], []]),
        "utilization",
        [("WrongName", "utilization: did you mean utilisation (of namespaces, pods)?")],
    ),
    "the name resembles one that would be listed": (
        seen(UTIL, found=[[]]),
        "utilization",
        [("WrongName", "utilization: did you mean utilisation (no series now)?")],
    ),
    "the name is that of a series": (
        seen(UTIL, RATES, found=[["gpu_util pod"], ["jobs_total pod"]]),
        "jobs_total",
        [
            (
                "WrongName",
                "is the name of a series, of which rules[1] (rules.yaml:13) makes jobs_per_second",
            )
        ],
    ),
    "the name is that of a pinned series": (
        seen(UTIL, found=[[]]),
        "gpu_util",
        [("WrongName", "of which rules[0] (rules.yaml:3) makes utilisation")],
    ),
    "the metric is an external one": (
        seen(UTIL, external=[UTIL.replace("as: util", "as: queue_util")], found=[[], ["gpu_util"]]),
        "queue_utilisation",
        [("WrongName", "queue_utilisation: it is an external metric (`type: External`")],
    ),
    "no series": (
        seen(UTIL, found=[[]]),
        "utilisation",
        [
            (
                "NoSeries",
                '(rules.yaml:3) gives it, but Prometheus had no series of `gpu_util{gpu!=""}` 1m5s',
            )
        ],
    ),
    "perhaps no series, perhaps no such name": (
        seen(CONTAINERS, RATES, found=[[], []]),
        "container_cpu",
        [("NoSeries", "rules[0] (rules.yaml:3) could give it, but Prometheus had no series of `{")],
    ),
    "series that no rule of the name takes": (
        seen(FILTERED, found=[["gpu_a pod", "gpu_b pod"]]),
        "filtered",
        [("NoSeries", '`{job="gpu"}` found 1m5s ago (gpu_a and 1 more name) nothing passes')],
    ),
    "labels missing": (
        seen(UTIL, found=[["gpu_util ns node UUID"]]),
        "utilisation",
        [
            (
                "LabelsMissing",
                """rules[0] (rules.yaml:3) has series (gpu_util), but none carries a label that \
names pods: looked for exported_pod, pod; they carry UUID, node, ns; so the metric is there of \
namespaces, nodes alone. Name""",
            )
        ],
    ),
    "no label at all": (
        seen(UTIL, found=[["gpu_util"]]),
        "utilisation",
        [("LabelsMissing", "they carry none that any rule knows. Name")],
    ),
    "no label at all for a rule that maps none": (
        seen(NODES_ALONE, found=[["power"]]),
        "power",
        [("LabelsMissing", "looked for nothing, for it maps none to pods; they carry none")],
    ),
    "labels missing of what a template maps": (
        seen(CONTAINERS, found=[["container_a id", "container_a2 id"]]),
        "container_a",
        [("LabelsMissing", "looked for pod; they carry id. Name")],
    ),
    "the rule maps other resources": (
        seen(NODES_ALONE, found=[["power node"]]),
        "power",
        [("OtherResource", "gives the metric of nodes and maps no label to pods: ask for one of")],
    ),
    "the relist failed": (
        seen(UTIL, found=[[]], heard=[STALE]),
        "utilisation",
        [("RelistFailed", "is not known (listed last: 1m5s ago): Prometheus could not be asked")],
    ),
    "the relist never worked": (
        seen(UTIL, found=[None], heard=[NEVER]),
        "utilisation",
        [("RelistFailed", "is not known (listed last: never yet): Prometheus could not")],
    ),
    "not listed yet": (
        seen(UTIL, found=[None], heard=[STARTED]),
        "utilisation",
        [("NotListedYet", "its series are not listed yet: the adapter has just started")],
    ),
    "a failed relist does not hide a wrong name": (
        seen(UTIL, CONTAINERS, found=[["gpu_util pod"], None], heard=[GOOD, NEVER]),
        "gpu_utl",
        [("NoRule", "called gpu_utl, nor")],
    ),
    "the stage that got furthest comes first": (
        seen(
            UTIL,
            NODES_ALONE.replace("metricsQuery", "name: {as: utilisation}\nmetricsQuery"),
            UTIL,
            UTIL,
            found=[[], ["power node"], None, ["gpu_util ns"]],
            heard=[GOOD, GOOD, NEVER, GOOD],
        ),
        "utilisation",
        [
            ("LabelsMissing", "rules[3]"),
            ("OtherResource", "rules[1]"),
            ("RelistFailed", "rules[2]"),
            ("NoSeries", "rules[0]"),
        ],
    ),
    "the metric is there by now": (seen(UTIL, found=[["gpu_util pod"]]), "utilisation", []),
    "one of several rules has it by now": (
        seen(UTIL, UTIL, found=[["gpu_util node"], ["gpu_util pod"]]),
        "utilisation",
        [],
    ),
}


@pytest.mark.parametrize(("known", "metric", "told"), CASES.values(), ids=CASES)
def test_the_stage_at_which_a_metric_is_missing(known, metric, told):
    causes = missing.of_metric(known, metric, PODS, {})

    assert [cause.reason.value for cause in causes] == [reason for reason, _ in told]
    for cause, (_, part) in zip(causes, told, strict=True):
        assert part in cause.sentence


EXTERNAL = {
    "there are no external rules": (
        seen(UTIL, found=[["gpu_util pod"]]),
        "queue",
        [("NoRule", "no external rules: --config")],
    ),
    "no series": (
        seen(external=[UTIL], found=[[]]),
        "utilisation",
        [("NoSeries", "externalRules[0] (rules.yaml:3) gives it, but Prometheus had no series")],
    ),
    "wrong name": (
        seen(external=[UTIL], found=[["gpu_util"]]),
        "utilization",
        [("WrongName", "no external rule of 1 gives a metric called utilization: did you mean")],
    ),
    "a custom metric": (
        seen(UTIL, external=[RATES], found=[["gpu_util pod node"], []]),
        "utilisation",
        [("WrongName", "it is a custom metric, of nodes, pods")],
    ),
    "it is there by now": (seen(external=[UTIL], found=[["gpu_util"]]), "utilisation", []),
    "no series, asked in lower case": (
        seen(external=[UPPER], found=[[]]),
        "dcgm_fi_dev_gpu_util",
        [("NoSeries", "externalRules[0] (rules.yaml:3) could give it, but Prometheus had no ser")],
    ),
    "no series of a name in upper case": (
        seen(external=[UTIL.replace("utilisation", "GPU_Busy")], found=[[]]),
        "gpu_busy",
        [("NoSeries", "externalRules[0] (rules.yaml:3) gives it, but Prometheus had no series")],
    ),
    "the name of a series in upper case": (
        seen(external=[UPPER + "name: {as: busy}"], found=[["DCGM_FI_DEV_GPU_UTIL"]]),
        "dcgm_fi_dev_gpu_util",
        [("WrongName", "it is the name of a series, of which externalRules[0] (rules.yaml:3) mak")],
    ),
    "a wrong name of one in upper case": (
        seen(external=[UPPER], found=[["DCGM_FI_DEV_GPU_UTIL"]]),
        "dcgm_fi_gpu_util",
        [("WrongName", "called dcgm_fi_gpu_util: did you mean DCGM_FI_DEV_GPU_UTIL?")],
    ),
    "a custom metric in upper case": (
        seen(CONTAINERS.replace("container_", "C_"), external=[RATES], found=[["C_a pod"], []]),
        "c_a",
        [("WrongName", "called c_a: it is a custom metric, C_a, of pods")],
    ),
}


@pytest.mark.parametrize(("known", "metric", "told"), EXTERNAL.values(), ids=EXTERNAL)
def test_an_external_metric_needs_series_and_no_labels(known, metric, told):
    causes = missing.of_metric(known, metric, None, {})

    assert [cause.reason.value for cause in causes] == [reason for reason, _ in told]
    for cause, (_, part) in zip(causes, told, strict=True):
        assert part in cause.sentence


def test_labels_that_were_asked_for_are_told_rather_than_those_that_were_looked_for():
    known = seen(UTIL, found=[["gpu_util ns"]])
    ((rule, series),) = missing.unlabelled(known, "utilisation", PODS)

    (cause,) = missing.of_metric(
        known, "utilisation", PODS, {(rule.index, series.name): {"ns", "k8s_pod", "a b"}}
    )

    assert '; they carry "a b", k8s_pod, ns; ' in cause.sentence


def test_a_label_that_appeared_since_the_last_relist_is_not_reported_as_missing():
    regions = GroupResource("example.com", "regions")
    known = seen(CONTAINERS, found=[["container_a namespace"]], kinds=REGIONS)
    ((rule, series),) = missing.unlabelled(known, "container_a", regions)

    (cause,) = missing.of_metric(
        known, "container_a", regions, {(rule.index, series.name): {"namespace", "region"}}
    )

    assert cause.reason is Reason.NOT_LISTED_YET
    assert cause.sentence == (
        "rules[0] (rules.yaml:3): container_a carries region, but the last relist did not see that "
        "label. The metric appears after the next relist"
    )


def test_a_label_that_names_a_resource_of_another_group_is_not_reported_as_missing():
    known = seen(CONTAINERS, found=[["container_a region"]], kinds=REGIONS)

    (cause,) = missing.of_metric(
        known, "container_a", GroupResource("another.com", "regions"), {(0, "container_a"): set()}
    )

    assert cause.reason is Reason.OTHER_RESOURCE
    assert (
        "label region names regions.example.com, not regions.another.com. Request the metric for "
        "regions.example.com, or add an override for regions.another.com"
    ) in cause.sentence


@pytest.mark.parametrize(
    ("found", "metric"),
    [([["gpu_util pod"]], "utilisation"), ([[]], "utilisation"), ([["gpu_util"]], "other")],
    ids=["labelled", "no series", "another metric"],
)
def test_there_is_nothing_to_ask_of_what_has_its_labels_or_is_not_there(found, metric):
    assert missing.unlabelled(seen(UTIL, found=found), metric, PODS) == ()


def test_of_very_many_causes_the_first_are_told():
    causes = missing.of_metric(seen(*[UTIL] * 20, found=[[]] * 20), "utilisation", PODS, {})

    assert len(causes) == 8
    assert str(causes[-1]) == "NoSeries: 13 more rules are no better off"


def test_what_others_named_cannot_break_a_line_or_fill_it():
    metric = "a\nb" + "x" * 10_000

    (cause,) = missing.of_metric(seen(UTIL, found=[[]]), metric, PODS, {})

    assert "\n" not in cause.sentence
    assert r'"a\nbx' in cause.sentence
    assert len(cause.sentence) < 500


def planned(known, metric, resource, names, namespace, selector=""):
    entry = known.catalog.entry(resource, metric)
    return plan.custom(entry, namespace=namespace, names=names, selector=selectors.parse(selector))


def test_what_a_query_does_not_find_is_told_with_the_labels_that_it_asked_by():
    known = seen(UTIL, found=[["gpu_util ns pod"]])
    asked = planned(known, "utilisation", PODS, ["a", "b"], "default", "model=x")

    (cause,) = missing.of_plan(known, asked)

    assert cause.reason is Reason.NO_SAMPLE
    assert cause.sentence.startswith(
        "the query of rules[0] (rules.yaml:3) found no number for pods a, b in namespace default, "
        'asking gpu_util by label pod, ns="default", model=x: '
    )


def test_the_query_of_an_external_metric_that_finds_nothing_is_told():
    known = seen(external=[UPPER, UTIL], found=[["DCGM_A"], []])
    a, utilisation = (
        plan.external(
            known.catalog.external_entry(name), namespace="x", selector=selectors.parse("")
        )
        for name in ("dcgm_a", "utilisation")
    )

    sample, series = missing.of_query(known, a), missing.of_query(known, utilisation)

    assert (sample.reason, sample.rule) == (Reason.NO_SAMPLE, 0)
    assert (
        "the query of externalRules[0] (rules.yaml:3) found no number: `m` has" in sample.sentence
    )
    assert (series.reason, series.rule) == (Reason.NO_SERIES, 1)
    assert "gives it, but Prometheus had no series of `gpu_util{gpu" in series.sentence


@pytest.mark.parametrize("heard", [STARTED, NEVER])
def test_a_query_that_was_answered_tells_more_than_a_listing_that_was_not(heard):
    known = seen(external=[UTIL], heard=[heard])
    entry = known.catalog.external_entry("utilisation")

    cause = missing.of_query(
        known, plan.external(entry, namespace="x", selector=selectors.parse(""))
    )

    assert cause.reason is Reason.NO_SAMPLE


def test_of_rules_that_answer_together_each_says_how_far_it_came():
    merged = (
        "seriesQuery: a\nmerge: true\nmetricsQuery: m\nname: {as: u}\n"
        "resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    )
    known = seen(merged, merged.replace("a\n", "b\n", 1), found=[[], ["b ns pod"]])

    causes = missing.of_plan(known, planned(known, "u", PODS, ["a"], "default"))

    assert [(cause.reason, cause.rule) for cause in causes] == [
        (Reason.NO_SAMPLE, 1),
        (Reason.NO_SERIES, 0),
    ]


def test_objects_without_a_namespace_are_asked_by_one_label():
    known = seen(NODES_ALONE, found=[["power node"]])

    (cause,) = missing.of_plan(known, planned(known, "power", NODES, ["n"], ""))

    assert "found no number for nodes n, asking power by label node: " in cause.sentence


def test_series_that_name_pods_and_no_namespace_are_missing_that_label():
    known = seen(UTIL, found=[["gpu_util pod"]])

    (cause,) = missing.of_plan(known, planned(known, "utilisation", PODS, ["a"], "default"))

    assert cause.reason is Reason.LABELS_MISSING
    assert "names namespaces: looked for ns; they carry pod. Name" in cause.sentence


def test_a_query_by_one_namespace_label_does_not_report_another_label_as_missing():
    """A merged rule is queried by the labels of the other; its series carry a second one."""
    rule = """
seriesQuery: a
merge: true
metricsQuery: m
name: {as: u}
resources:
  overrides: {ns: {resource: namespace}, namespace: {resource: namespace}, pod: {resource: pod}}
"""
    known = seen(rule, rule.replace(": a", ": b"), found=[["a ns pod"], ["b namespace"]])

    causes = missing.of_plan(known, planned(known, "u", PODS, ["x"], "default"))

    (cause,) = (each for each in causes if each.reason is Reason.LABELS_MISSING)
    assert cause.rule == 1
    assert "looked for ns; they carry namespace" in cause.sentence


@pytest.mark.parametrize(
    ("resource", "namespaced", "sentence"),
    [
        (
            PODS,
            True,
            "pods are namespaced, and the path has no namespace: use "
            "namespaces/NAMESPACE/pods/NAME/METRIC",
        ),
        (
            NODES,
            False,
            "nodes are cluster-scoped, and the path has a namespace: use nodes/NAME/METRIC",
        ),
        (
            NAMESPACES,
            False,
            "namespaces are cluster-scoped, and the path has a namespace: use "
            "namespaces/NAME/metrics/METRIC",
        ),
    ],
)
def test_a_path_of_the_wrong_scope_is_answered_with_the_right_path(resource, namespaced, sentence):
    cause = missing.other_scope(resource, namespaced=namespaced)

    assert (cause.reason, cause.sentence) == (Reason.OTHER_SCOPE, sentence)


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        ("pood", "the cluster has no resource pood: did you mean pods?"),
        ("nodess.apps", "the cluster has no resource nodess.apps: did you mean nodes?"),
        ("widgets", "the cluster has no resource widgets"),
        ("", 'the cluster has no resource ""'),
    ],
)
def test_a_resource_that_there_is_not(resource, sentence):
    cause = missing.unknown_resource(resource, KINDS)

    assert (cause.reason, cause.sentence) == (Reason.UNKNOWN_RESOURCE, sentence)


def test_the_rest_is_told_in_one_line_each():
    over = missing.no_object(PODS, namespace="default", name="a")
    unasked = missing.no_query(PlanError("rules.yaml: rules[0]:\n  no such"))

    assert str(over).startswith("NoObject: there is none of the pods called a in namespace default")
    assert str(unasked) == "NoQuery: rules.yaml: rules[0]: no such"


def test_reasons_are_words_of_kubernetes():
    assert {reason.value for reason in Reason} >= {"NoRule", "NoSeries", "NotListedYet"}
    assert all(reason.value.isalpha() for reason in Reason)
