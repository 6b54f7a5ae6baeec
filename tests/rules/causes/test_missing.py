from __future__ import annotations

from dataclasses import replace

import pytest

from rules.causes import missing
from rules.causes.candidates import ListingStatus
from rules.causes.reasons import Reason
from rules.errors import PlanError
from rules.findings import State
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.query import catalog, plan, resource
from rules.selectors import selectors
from tests import world
from tests.rules.query.test_resource import queries

KINDS = Kinds.of([world.group("", "namespaces Namespace*", "nodes Node*", "pods Pod")])
REGIONS = Kinds.of(
    [
        *KINDS.groups,
        world.group("example.com", "regions Region*"),
        world.group("another.com", "regions Region*"),
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


def inventory(*rules, listed=(), statuses=(), external=(), kinds=KINDS):
    """An inventory of `rules` and `external`, each with its entry of `listed` and `statuses`.

    An entry of `listed` is the rule's series, as `name label label`; None before its first relist.
    """
    listings = [None if series is None else world.listing(*series) for series in listed]
    count = len(rules) + len(external)
    every = (*statuses, *[GOOD] * (count - len(statuses)))
    text = world.file_of(*rules, external=external)
    return world.generation(text, *listings, kinds=kinds, statuses=every).inventory(now=105.9)


CASES = {
    "no rules": (
        inventory(),
        "utilisation",
        ["NoRule: no rule is loaded. Set --config to a rules file, or --preset"],
    ),
    "no rule produces the name": (
        inventory(UTIL, listed=[["gpu_util pod"]]),
        "queue_depth",
        ["NoRule: no rule produces a metric named queue_depth (1 loaded). Add a rule, or"],
    ),
    "no rule and no series produces the name": (
        inventory(UTIL, CONTAINERS, listed=[["gpu_util pod"], ["container_cpu pod"]]),
        "queue_depth",
        ["NoRule: (2 loaded, 1 of which name metrics after series). Add a rule"],
    ),
    "a rule that names metrics after series has other series": (
        inventory(CONTAINERS, listed=[["container_cpu pod"]]),
        "container_queue_depth",
        ["NoRule: container_queue_depth (1 loaded, 1 of which name metrics after series)"],
    ),
    "the name resembles one that is listed": (
        inventory(UTIL, CONTAINERS, listed=[["gpu_util pod ns"], []]),
        "utilization",
        ["WrongName: named utilization; did you mean utilisation (of namespaces, pods)?"],
    ),
    "the name is that of a series": (
        inventory(UTIL, RATES, listed=[["gpu_util pod"], ["jobs_total pod"]]),
        "jobs_total",
        [
            (
                "WrongName: that is the name of a series, which rules[1] (rules.yaml:13) exposes "
                "as jobs_per_second"
            )
        ],
    ),
    "the name is that of a pinned series": (
        inventory(UTIL, listed=[[]]),
        "gpu_util",
        ["WrongName: which rules[0] (rules.yaml:3) exposes as utilisation"],
    ),
    "the metric is an external one": (
        inventory(
            UTIL, external=[UTIL.replace("as: util", "as: queue_util")], listed=[[], ["gpu_util"]]
        ),
        "queue_utilisation",
        ["WrongName: named queue_utilisation; it is an external metric (`type: External`"],
    ),
    "no series": (
        inventory(UTIL, listed=[[]]),
        "utilisation",
        [
            (
                "NoSeries: rules[0] (rules.yaml:3) produces it, but Prometheus had no series of "
                '`gpu_util{gpu!=""}` 1m5s ago. Check that the exporter is scraped'
            )
        ],
    ),
    "perhaps no series, perhaps no such name": (
        inventory(CONTAINERS, RATES, listed=[[], []]),
        "container_cpu",
        ["NoSeries: rules[0] (rules.yaml:3) may produce it, but Prometheus had no series of"],
    ),
    "the filters of the rule reject all series": (
        inventory(FILTERED, listed=[["gpu_a pod", "gpu_b pod"]]),
        "filtered",
        [
            (
                "NoSeries: produces it, but its `seriesFilters` and `name.matches` reject all "
                'series of `{job="gpu"}` (gpu_a and 1 more name), listed 1m5s ago'
            )
        ],
    ),
    "labels missing": (
        inventory(UTIL, listed=[["gpu_util ns node UUID"]]),
        "utilisation",
        [
            (
                "LabelsMissing: (rules.yaml:3): gpu_util has no label for pods: expected "
                "exported_pod, pod; found UUID, node, ns. The metric exists only for namespaces, "
                "nodes. Map"
            )
        ],
    ),
    "no label at all": (
        inventory(UTIL, listed=[["gpu_util"]]),
        "utilisation",
        ["LabelsMissing: expected exported_pod, pod; found none that a rule maps. Map"],
    ),
    "no label at all, and the rule maps none": (
        inventory(NODES_ALONE, listed=[["power"]]),
        "power",
        ["LabelsMissing: `resources` maps none; found none that a rule maps. Map"],
    ),
    "labels missing that a template maps": (
        inventory(CONTAINERS, listed=[["container_a id", "container_a2 id"]]),
        "container_a",
        ["LabelsMissing: container_a has no label for pods: expected pod; found id. Map"],
    ),
    "the relist failed": (
        inventory(UTIL, listed=[[]], statuses=[STALE]),
        "utilisation",
        [
            (
                'RelistFailed: produces it, but the last relist of `gpu_util{gpu!=""}` failed '
                "(last success: 1m5s ago). The adapter's log has the error"
            )
        ],
    ),
    "the relist never worked": (
        inventory(UTIL, listed=[None], statuses=[NEVER]),
        "utilisation",
        ["RelistFailed: failed (last success: never). The adapter's log"],
    ),
    "not listed yet": (
        inventory(UTIL, listed=[None], statuses=[STARTED]),
        "utilisation",
        ["NotListedYet: produces it, but its first relist has not finished"],
    ),
    "a failed relist does not hide a wrong name": (
        inventory(UTIL, CONTAINERS, listed=[["gpu_util pod"], None], statuses=[GOOD, NEVER]),
        "gpu_utl",
        ["NoRule: named gpu_utl (2 loaded, 1 of which"],
    ),
    "the cause closest to a sample comes first": (
        inventory(
            UTIL,
            NODES_ALONE.replace("metricsQuery", "name: {as: utilisation}\nmetricsQuery"),
            UTIL,
            UTIL,
            listed=[[], ["power node"], None, ["gpu_util ns"]],
            statuses=[GOOD, GOOD, NEVER, GOOD],
        ),
        "utilisation",
        [
            "LabelsMissing: rules[3]",
            "OtherResource: rules[1]",
            "RelistFailed: rules[2]",
            "NoSeries: rules[0]",
        ],
    ),
    "the metric appeared meanwhile": (
        inventory(UTIL, listed=[["gpu_util pod"]]),
        "utilisation",
        [],
    ),
    "the metric of one of several rules appeared meanwhile": (
        inventory(UTIL, UTIL, listed=[["gpu_util node"], ["gpu_util pod"]]),
        "utilisation",
        [],
    ),
}


EXTERNAL = {
    "no series": (
        inventory(external=[UTIL], listed=[[]]),
        "utilisation",
        ["NoSeries: externalRules[0] (rules.yaml:3) produces it, but Prometheus had no series"],
    ),
    "wrong name": (
        inventory(external=[UTIL], listed=[["gpu_util"]]),
        "utilization",
        ["WrongName: no external rule produces a metric named utilization; did you mean"],
    ),
    "a custom metric": (
        inventory(UTIL, external=[RATES], listed=[["gpu_util pod node"], []]),
        "utilisation",
        ["WrongName: named utilisation; it is a custom metric of nodes, pods"],
    ),
    "the metric appeared meanwhile": (
        inventory(external=[UTIL], listed=[["gpu_util"]]),
        "utilisation",
        [],
    ),
    "no series, requested in lower case": (
        inventory(external=[UPPER], listed=[[]]),
        "dcgm_fi_dev_gpu_util",
        ["NoSeries: externalRules[0] (rules.yaml:3) may produce it, but Prometheus had no"],
    ),
    "no series of a name in upper case": (
        inventory(external=[UTIL.replace("utilisation", "GPU_Busy")], listed=[[]]),
        "gpu_busy",
        ["NoSeries: externalRules[0] (rules.yaml:3) produces it, but Prometheus had no series"],
    ),
    "the name of a series in upper case": (
        inventory(external=[UPPER + "name: {as: busy}"], listed=[["DCGM_FI_DEV_GPU_UTIL"]]),
        "dcgm_fi_dev_gpu_util",
        [
            (
                "WrongName: the name of a series, which externalRules[0] (rules.yaml:3) exposes "
                "as busy"
            )
        ],
    ),
    "a wrong name of one in upper case": (
        inventory(external=[UPPER], listed=[["DCGM_FI_DEV_GPU_UTIL"]]),
        "dcgm_fi_gpu_util",
        ["WrongName: named dcgm_fi_gpu_util; did you mean DCGM_FI_DEV_GPU_UTIL?"],
    ),
    "a custom metric in upper case": (
        inventory(
            CONTAINERS.replace("container_", "C_"), external=[RATES], listed=[["C_a pod"], []]
        ),
        "c_a",
        ["WrongName: named c_a; C_a is a custom metric of pods"],
    ),
}


@pytest.mark.parametrize(
    ("resource", "known", "metric", "expected"),
    [
        pytest.param(resource, *case, id=name)
        for resource, cases in ((PODS, CASES), (None, EXTERNAL))
        for name, case in cases.items()
    ],
)
def test_the_causes_of_a_missing_metric(resource, known, metric, expected):
    causes = missing.of_metric(known, metric, resource, {})

    parts = [each.partition(": ") for each in expected]
    assert [cause.reason for cause in causes] == [reason for reason, _, _ in parts]
    for cause, (_, _, part) in zip(causes, parts, strict=True):
        assert part in cause.sentence


def test_present_labels_are_reported_instead_of_those_that_the_relist_queried():
    known = inventory(UTIL, listed=[["gpu_util ns"]])
    ((rule, series),) = missing.series_without_label(known, "utilisation", PODS)

    (cause,) = missing.of_metric(
        known, "utilisation", PODS, {(rule.index, series.name): {"ns", "k8s_pod", "a b"}}
    )

    assert 'expected exported_pod, pod; found "a b", k8s_pod, ns. ' in cause.sentence


def test_a_label_that_appeared_since_the_last_relist_is_not_reported_as_missing():
    regions = GroupResource("example.com", "regions")
    known = inventory(CONTAINERS, listed=[["container_a namespace"]], kinds=REGIONS)
    ((rule, series),) = missing.series_without_label(known, "container_a", regions)

    (cause,) = missing.of_metric(
        known, "container_a", regions, {(rule.index, series.name): {"namespace", "region"}}
    )

    assert cause.reason == Reason.NOT_LISTED_YET
    assert cause.sentence == (
        "rules[0] (rules.yaml:3): container_a has the label region, but the last relist did not "
        "see it. The metric appears after the next relist"
    )


@pytest.mark.parametrize(
    ("rule", "mapped"),
    [
        (CONTAINERS, "regions.example.com"),
        (
            CONTAINERS.replace("{template", "{overrides: {region: {resource: nope}}, template"),
            "an unknown resource",
        ),
    ],
    ids=["of another group", "unknown"],
)
def test_a_label_that_is_mapped_to_another_resource_is_not_reported_as_missing(rule, mapped):
    known = inventory(rule, listed=[["container_a region"]], kinds=REGIONS)

    (cause,) = missing.of_metric(
        known, "container_a", GroupResource("another.com", "regions"), {(0, "container_a"): set()}
    )

    assert cause.reason == Reason.OTHER_RESOURCE
    assert f"label region is mapped to {mapped}, not to regions.another.com. Ch" in cause.sentence


@pytest.mark.parametrize(
    ("listed", "metric"),
    [([["gpu_util pod"]], "utilisation"), ([[]], "utilisation"), ([["gpu_util"]], "other")],
    ids=["labelled", "no series", "another metric"],
)
def test_labels_are_not_queried_for_labelled_or_absent_series(listed, metric):
    assert missing.series_without_label(inventory(UTIL, listed=listed), metric, PODS) == ()


def test_at_most_eight_causes_are_returned():
    causes = missing.of_metric(inventory(*[UTIL] * 20, listed=[[]] * 20), "utilisation", PODS, {})

    assert len(causes) == 8
    assert str(causes[-1]) == "NoSeries: 13 more rules provide no value either"


def test_a_name_from_a_request_is_escaped_and_truncated():
    metric = "a\nb" + "x" * 10_000

    (cause,) = missing.of_metric(inventory(UTIL, listed=[[]]), metric, PODS, {})

    assert "\n" not in cause.sentence
    assert r'"a\nbx' in cause.sentence
    assert len(cause.sentence) < 500


def planned(known, metric, resource, names, namespace, selector=""):
    entry = known.catalog.entry(resource, metric)
    return plan.custom(entry, namespace=namespace, names=names, selector=selectors.parse(selector))


def test_a_query_without_samples_is_reported_with_its_matchers():
    known = inventory(UTIL, listed=[["gpu_util ns pod"]])
    pods = planned(known, "utilisation", PODS, ["a", "b"], "default", "model=x")

    (cause,) = missing.of_plan(known, pods)

    assert cause.reason == Reason.NO_SAMPLE
    assert cause.sentence.startswith(
        "rules[0] (rules.yaml:3) returned no sample for pods a, b in namespace default. It matches "
        'gpu_util by label pod, ns="default", model=x: '
    )


def test_an_external_query_without_samples_is_reported_unless_there_are_no_series():
    known = inventory(external=[UPPER, UTIL], listed=[["DCGM_A"], []])
    a, utilisation = (
        plan.external(
            known.catalog.external_entry(name), namespace="x", selector=selectors.parse("")
        )
        for name in ("dcgm_a", "utilisation")
    )

    sample, series = missing.of_query(known, a), missing.of_query(known, utilisation)

    assert (sample.reason, sample.where.path) == (Reason.NO_SAMPLE, "externalRules[0]")
    assert "externalRules[0] (rules.yaml:3) returned no sample: `m` has no" in sample.sentence
    assert (series.reason, series.where.path) == (Reason.NO_SERIES, "externalRules[1]")
    assert "produces it, but Prometheus had no series of `gpu_util{gpu" in series.sentence


@pytest.mark.parametrize("status", [STARTED, NEVER])
def test_an_answered_query_outweighs_a_relist_that_failed_or_did_not_run(status):
    known = inventory(external=[UTIL], statuses=[status])
    entry = known.catalog.external_entry("utilisation")

    cause = missing.of_query(
        known, plan.external(entry, namespace="x", selector=selectors.parse(""))
    )

    assert cause.reason == Reason.NO_SAMPLE


def test_each_merged_rule_has_its_own_cause():
    merged = (
        "seriesQuery: a\nmerge: true\nmetricsQuery: m\nname: {as: u}\n"
        "resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    )
    known = inventory(merged, merged.replace("a\n", "b\n", 1), listed=[[], ["b ns pod"]])

    causes = missing.of_plan(known, planned(known, "u", PODS, ["a"], "default"))

    assert [(cause.reason, cause.where.path) for cause in causes] == [
        (Reason.NO_SAMPLE, "rules[1]"),
        (Reason.NO_SERIES, "rules[0]"),
    ]


def test_cluster_scoped_objects_are_matched_by_one_label():
    known = inventory(NODES_ALONE, listed=[["power node"]])

    (cause,) = missing.of_plan(known, planned(known, "power", NODES, ["n"], ""))

    assert "returned no sample for node n. It matches power by label node: " in cause.sentence


def test_series_with_a_pod_label_and_no_namespace_label_lack_the_latter():
    known = inventory(UTIL, listed=[["gpu_util pod"]])

    (cause,) = missing.of_plan(known, planned(known, "utilisation", PODS, ["a"], "default"))

    assert cause.reason == Reason.LABELS_MISSING
    assert "no label for namespaces: expected ns; found pod. Map" in cause.sentence


def test_a_query_by_one_namespace_label_does_not_report_another_label_as_missing():
    """A merged rule may be queried by the labels of another; its series have a second one."""
    rule = """
seriesQuery: a
merge: true
metricsQuery: m
name: {as: u}
resources:
  overrides: {ns: {resource: namespace}, namespace: {resource: namespace}, pod: {resource: pod}}
"""
    known = inventory(rule, rule.replace(": a", ": b"), listed=[["a ns pod"], ["b namespace"]])

    causes = missing.of_plan(known, planned(known, "u", PODS, ["x"], "default"))

    (cause,) = (each for each in causes if each.reason is Reason.LABELS_MISSING)
    assert cause.where.path == "rules[1]"
    assert "expected ns; found namespace" in cause.sentence


@pytest.mark.parametrize(
    ("status", "pending"),
    [
        (STARTED, True),
        (ListingStatus(listed=100.0, failed=False, first_listed=50.0), True),
        (ListingStatus(listed=100.0, failed=False, first_listed=40.0), False),
        (GOOD, False),
        (NEVER, False),
    ],
)
def test_missing_series_are_pending_until_a_scrape_after_the_start(status, pending):
    known = inventory(UTIL, listed=[None if status.listed is None else ()], statuses=[status])

    (cause,) = missing.of_metric(known, "utilisation", PODS, {})

    assert (cause.state is State.PENDING) is pending


def test_labels_that_changed_while_they_were_queried_are_not_reported_as_missing():
    known = inventory(UTIL, listed=[["gpu_util ns pod"]])
    guesses = replace(known, catalog=catalog.build(known.ruleset, {}, KINDS))

    (cause,) = missing.of_plan(known, planned(guesses, "utilisation", PODS, ["a"], "default"))

    assert cause.reason == Reason.NOT_LISTED_YET
    assert "labels of its series became known while it was queried" in cause.sentence


INSTALL = "Correct the resource, or install its CustomResourceDefinition"
WIDGETS = GroupResource("example.com", "widgets")
CPU, _ = resource.plans(queries(), PODS, namespace="ml", names=["a", "b", "c"])
_, MEMORY = resource.plans(queries(), NODES, namespace="", names=["n"])


@pytest.mark.parametrize(
    ("cause", "begin", "end"),
    [
        (
            missing.other_scope(PODS, namespaced=True),
            "OtherScope: pods are namespaced, and the path has no namespace: ",
            "use namespaces/NAMESPACE/pods/NAME/METRIC",
        ),
        (
            missing.other_scope(NODES, namespaced=False),
            "OtherScope: nodes are cluster-scoped, and the path has a namespace: ",
            "use nodes/NAME/METRIC",
        ),
        (
            missing.other_scope(NAMESPACES, namespaced=False),
            "OtherScope: namespaces are cluster-scoped, ",
            "use namespaces/NAME/metrics/METRIC",
        ),
        (missing.unknown_resource("pood", KINDS), "UnknownResource: ", "; did you mean pods?"),
        (missing.unknown_resource("nodess.apps", KINDS), "Unk", "nodess.apps; did you mean nodes?"),
        (missing.unknown_resource("widgets", KINDS), "Unk", f"resource widgets. {INSTALL}"),
        (missing.unknown_resource("", KINDS), "Unk", f'the cluster has no resource "". {INSTALL}'),
        (
            missing.no_object(PODS, namespace="default", name="a"),
            "NoObject: pod a in namespace default has succeeded or failed",
            ", so it has no current value",
        ),
        (
            missing.no_query(PlanError("rules.yaml: rules[0]:\n  no such")),
            "NoQuery: rules.yaml: rules[0]: no such",
            ". Correct the rule or the selector",
        ),
        (
            missing.no_match(PODS, namespace="a", selector="app=x"),
            "NoObject: no unfinished pod in namespace a matches the label selector app=x. Compare ",
            "; an HPA uses the selector of its scale target",
        ),
        (
            missing.no_match(WIDGETS, namespace="a", selector=""),
            "NoObject: no object of widgets.example.com",
            " in namespace a exists",
        ),
        (
            missing.without_usage(CPU, {"b"}),
            "NoSample: 2 of 3 pods in namespace ml have no cpu: a, c. resourceRules.cpu.containerQ",
            "kubelets (cAdvisor), and compare the labels of its series by pod and ns",
        ),
        (
            missing.without_usage(MEMORY, ()),
            "NoSample: 1 of 1 nodes has no memory: n. resourceRules.memory.nodeQuery (rules.yaml:3",
            "node-exporter, and compare the labels of its series by node",
        ),
        (
            missing.without_finite_usage(CPU, ["a"]),
            "NotFinite: 1 of 3 pods in namespace ml has no cpu: a. resourceRules.cpu.containerQ",
            "for them, which is not a value. Correct the query (does it divide by 0?)",
        ),
    ],
)
def test_a_cause_says_what_is_so_and_what_to_do(cause, begin, end):
    assert str(cause).startswith(begin)
    assert str(cause).endswith(end)


TOO_OLD = "Correct `metricsQuery`: this Prometheus may be too old for"


@pytest.mark.parametrize(
    ("refusal", "cure"),
    [
        ("bad_data: unexpected end", "Correct `metricsQuery`"),
        ('unknown function with name "histogram_avg"', f"{TOO_OLD} histogram_avg. Upgrade it, or "),
        ('unknown function with name "mad_over_time"', f"{TOO_OLD} mad_over_time. Upgrade it, or "),
    ],
)
def test_a_function_that_prometheus_lacks_may_be_too_new(refusal, cure):
    found = missing.failed_query("rules[0]", refusal=refusal, problem="").cure

    assert found.startswith(cure)
    assert ("histogram_sum(X) / histogram_count(X)" in found) == ("histogram" in refusal)
