"""Catalogs: merging, pinned and external rules, bindings; naming.json has the golden cases."""

from __future__ import annotations

import pytest

from rules import ruleset
from rules.document.ahead import Ahead
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.kinds import WORKLOADS as WORKLOAD_KINDS
from rules.query import catalog, label_binding
from rules.query.catalog import Catalog
from rules.query.label_binding import LabelBinding
from tests import world
from tests.world import listing

STORAGE_CLASSES = GroupResource("storage.k8s.io", "storageclasses")


AGED = """
- seriesQuery: {series}
  name: {{as: load}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: x
  merge: true
  minPodAge: {age}
"""


def test_of_merged_rules_the_longest_minimum_age_of_pods_counts():
    text = "rules:" + "".join(
        AGED.format(series=name, age=age) for name, age in (("a", "1m"), ("b", "2m"), ("c", "30s"))
    )
    built = world.generation(text).catalog

    assert built.entry(PODS, "load").min_pod_age == 120.0
    assert built.entry(NAMESPACES, "load").min_pod_age is None


WORKLOADS = """
rules:
- seriesQuery: gpu
  name: {as: load}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: x
  workloads: max
"""
OF_DEPLOYMENTS = """
- seriesQuery: recorded
  name: {as: load}
  resources:
    overrides: {namespace: {resource: namespace}, deployment: {group: apps, resource: deployment}}
  metricsQuery: y
"""


def test_a_metric_of_pods_is_also_one_of_their_workloads():
    built = world.generation(WORKLOADS).catalog

    resources = {
        str(resource)
        for resource in (*WORKLOAD_KINDS, NODES)
        if built.entry(resource, "load") is not None
    }
    assert resources == {"deployments.apps", "statefulsets.apps", "replicasets.apps", "jobs.batch"}
    entry = built.entry(WORKLOAD_KINDS[0], "load")
    assert (entry.pods, entry.workloads) == (built.entry(PODS, "load"), "max")


def test_a_metric_of_pods_and_of_workloads_looks_ahead():
    built = world.generation(f"{WORKLOADS}  ahead: {{season: 7d}}\n").catalog

    entries = [built.entry(each, "load") for each in (PODS, WORKLOAD_KINDS[0], NAMESPACES)]
    assert [each.ahead for each in entries] == [Ahead(season=604_800.0)] * 2 + [None]


@pytest.mark.parametrize(("listed", "computed"), [("gpu", True), ("recorded", False)])
def test_a_listed_metric_of_the_workload_itself_comes_first(listed, computed):
    listings = {("gpu", "recorded").index(listed): listing(f"{listed} namespace pod deployment")}
    built = catalog.build(world.load(WORKLOADS + OF_DEPLOYMENTS), listings, Kinds.builtin())

    entry = built.entry(WORKLOAD_KINDS[0], "load")
    assert (entry.pods is not None) == computed


def test_a_kind_that_the_cluster_does_not_serve_has_no_metric_of_its_pods():
    core = Kinds.of(group for group in Kinds.builtin().groups if group.name in {"", "apps"})
    built = world.generation(WORKLOADS, kinds=core).catalog

    assert built.entry(WORKLOAD_KINDS[0], "load") is not None
    assert built.entry(WORKLOAD_KINDS[-1], "load") is None


KINDS = Kinds.of(
    [
        world.group("", "namespaces Namespace*", "nodes Node*", "pods Pod"),
        world.group("storage.k8s.io", "storageclasses StorageClass*"),
    ]
)

FLEET = """
seriesQuery: '{gpu!=""}'
resources:
  overrides:
    exported_namespace: {resource: namespace}
    namespace: {resource: namespace}
    exported_pod: {resource: pod}
    pod: {resource: pod}
    pod_name: {resource: pod}
    node: {resource: node}
metricsQuery: m
"""


def load(*rules: str, external: tuple[str, ...] = ()) -> ruleset.RuleSet:
    return world.load(world.file_of(*rules, external=external))


def build(*rules, external=(), listings):
    compiled = load(*rules, external=external)
    indexes = [rule.index for rule in compiled.all]
    return catalog.build(compiled, dict(zip(indexes, listings, strict=True)), KINDS)


def listed_sources(built: Catalog) -> list[tuple[str, str, list[tuple[int, str]]]]:
    return [
        (
            str(entry.resource),
            entry.metric,
            [(source.rule.index, source.series) for source in entry.sources],
        )
        for entry in built.entries
    ]


def rule(name: str = "", *, merge: bool = False) -> str:
    lines = [
        "seriesQuery: '{a!=\"\"}'",
        "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}",
        "metricsQuery: m",
        *([f"name: {{as: {name}}}"] if name else []),
        *(["merge: true"] if merge else []),
    ]
    return "\n".join(lines)


def test_discovery_decides_which_resources_are_root_scoped():
    mapping = "seriesQuery: m\nmetricsQuery: m\nresources: {template: <<.Resource>>}\n"

    built = build(mapping, listings=[listing("m storageclass pod namespace")])

    entry = built.entry(STORAGE_CLASSES, "m")
    assert not entry.namespaced
    assert entry.sources[0].bindings == (LabelBinding(resource="storageclass"),)


def test_rule_without_a_listing_produces_no_metrics():
    assert catalog.build(load(rule()), {}, KINDS) == Catalog.empty()
    assert Catalog.empty().entry(PODS, "m") is None


@pytest.mark.parametrize(
    ("merges", "rules"),
    [
        ([True, True], [0, 1]),
        ([True, False], [1]),
        ([False, True], [1]),
        ([True, False, True], [0, 2]),
        ([True, True, False], [2]),
    ],
)
def test_rules_that_merge_are_all_sources_if_the_last_one_merges(merges, rules):
    texts = [rule("x", merge=merge) for merge in merges]

    built = build(*texts, listings=[listing("m pod") for _ in merges])

    assert listed_sources(built) == [("pods", "x", [(index, "m") for index in rules])]


def bindings(live=(), labels: str = "", resource: GroupResource = PODS) -> list[LabelBinding]:
    built = build(FLEET, listings=[listing(f"m {labels}", live={("m", resource): tuple(live)})])
    entry = built.entry(resource, "m")
    return list(entry.sources[0].bindings)


@pytest.mark.parametrize(
    ("labels", "resource", "namespace"),
    [
        ("namespace pod", "pod", "namespace"),
        ("pod_name exported_namespace", "pod_name", "exported_namespace"),
        ("exported_pod pod namespace exported_namespace", "exported_pod", "exported_namespace"),
        ("pod_name pod namespace", "pod", "namespace"),
        ("pod", "pod", "exported_namespace"),
    ],
    ids=["one each", "another one each", "all", "first carried label", "no namespace"],
)
def test_without_live_series_the_first_labels_are_chosen(labels, resource, namespace):
    assert bindings(labels=labels) == [LabelBinding(resource=resource, namespace=namespace)]


def test_binding_of_a_root_scoped_resource_has_no_namespace():
    assert bindings(labels="namespace node", resource=NODES) == [LabelBinding(resource="node")]


def test_rule_without_a_namespace_label_is_listed():
    built = build(
        "seriesQuery: m\nmetricsQuery: m\nresources: {overrides: {pod: {resource: pod}}}\n",
        listings=[listing("m pod")],
    )

    entry = built.entry(PODS, "m")
    assert entry.namespaced
    assert entry.sources[0].bindings == (LabelBinding(resource="pod"),)


def test_the_only_live_binding_is_chosen():
    live = [
        LabelBinding(resource="pod_name", namespace="namespace", absent=("exported_pod", "pod"))
    ]

    chosen = bindings(live, labels="exported_pod pod pod_name namespace")

    assert chosen == [LabelBinding(resource="pod_name", namespace="namespace")]


def test_live_bindings_are_in_order_of_preference():
    last = LabelBinding(resource="pod_name", namespace="namespace", absent=("exported_pod",))
    first = LabelBinding(resource="exported_pod", namespace="namespace")

    assert bindings([last, first], labels="exported_pod pod_name namespace") == [first, last]


def test_live_binding_with_labels_that_disappeared_is_dropped():
    live = [LabelBinding(resource="exported_pod", namespace="namespace")]

    chosen = bindings(live, labels="pod pod_name namespace")

    assert chosen == [LabelBinding(resource="pod", namespace="namespace")]


def ambiguous(labels: str) -> dict[GroupResource, tuple[LabelBinding, ...]]:
    (compiled,) = load(FLEET).rules
    return label_binding.ambiguous_bindings(
        compiled, compiled.mapping.bind(KINDS), frozenset(labels.split()), KINDS
    )


def test_bindings_are_not_ambiguous_if_each_resource_has_one_label():
    assert ambiguous("namespace pod node") == {}


def test_ambiguous_bindings_combine_labels_of_the_resource_and_of_namespaces():
    assert ambiguous("namespace exported_namespace pod exported_pod node") == {
        NAMESPACES: (
            LabelBinding(resource="exported_namespace"),
            LabelBinding(resource="namespace", absent=("exported_namespace",)),
        ),
        PODS: (
            LabelBinding(resource="exported_pod", namespace="exported_namespace"),
            LabelBinding(
                resource="exported_pod", namespace="namespace", absent=("exported_namespace",)
            ),
            LabelBinding(resource="pod", namespace="exported_namespace", absent=("exported_pod",)),
            LabelBinding(
                resource="pod", namespace="namespace", absent=("exported_pod", "exported_namespace")
            ),
        ),
    }


def test_probe_matches_the_labels_and_excludes_earlier_ones():
    binding = LabelBinding(resource="pod", namespace="k8s.ns", absent=("exported_pod",))

    assert binding.probe_matchers() == ('exported_pod=""', 'pod!=""', '"k8s.ns"!=""')
    assert LabelBinding(resource="node").probe_matchers() == ('node!=""',)


EXTERNAL = """
seriesQuery: 'queue_depth'
resources: {overrides: {ns: {resource: namespace}, namespace: {resource: namespace}}}
metricsQuery: m
"""


def test_external_metrics_need_no_labels_and_are_sorted():
    built = build(external=[EXTERNAL], listings=[listing("b", "a namespace")])

    assert built.entries == ()
    assert list(built.external) == ["a", "b"]
    assert [entry.source.bindings for entry in built.external.values()] == [
        (LabelBinding(resource="", namespace="namespace"),),
        (LabelBinding(resource="", namespace="ns"),),
    ]


def test_external_metric_has_the_first_live_namespace_label():
    (compiled,) = load(external=(EXTERNAL,)).external
    labels = frozenset({"ns", "namespace"})
    (_, second) = label_binding.ambiguous_bindings(
        compiled, compiled.mapping.bind(KINDS), labels, KINDS
    )[NAMESPACES]

    live = {("m", NAMESPACES): (second,)}
    built = build(external=[EXTERNAL], listings=[listing("m ns namespace", live=live)])

    assert second.probe_matchers() == ('ns=""', 'namespace!=""')
    assert built.external["m"].source.bindings == (
        LabelBinding(resource="", namespace="namespace"),
    )


def test_external_metric_has_one_namespace_label_even_if_several_are_live():
    live = {("m", NAMESPACES): tuple(label_binding.Choice([""], ["ns", "namespace"]))}

    built = build(external=[EXTERNAL], listings=[listing("m ns namespace", live=live)])

    assert built.external["m"].source.bindings == (LabelBinding(resource="", namespace="ns"),)


def test_external_rule_can_be_not_namespaced():
    text = "seriesQuery: m\nmetricsQuery: m\nresources: {namespaced: false}\n"

    entry = build(external=[text], listings=[listing("m namespace")]).external["m"]

    assert not entry.namespaced
    assert entry.source.bindings == (LabelBinding(resource=""),)


def test_external_metric_is_found_by_its_lower_case_name():
    built = build(external=[EXTERNAL], listings=[listing("Depth", "DEPTH", "size")])

    assert built.external_entry("Depth") is built.external["Depth"]
    assert built.external_entry("depth") is built.external["DEPTH"]
    assert built.external_entry("SIZE") is built.external["size"]
    assert built.external_entry("width") is None


def build_pinned(compiled: ruleset.RuleSet) -> Catalog:
    """The catalog before the first relist."""
    return catalog.build(compiled, catalog.pinned_listings(compiled), KINDS)


@pytest.mark.parametrize(
    ("text", "series"),
    [
        (FLEET.replace("'{gpu!=\"\"}'", "DCGM_FI_DEV_GPU_UTIL"), ["DCGM_FI_DEV_GPU_UTIL"]),
        (FLEET, []),
        ("seriesQuery: m\nmetricsQuery: m\nresources: {template: <<.Resource>>}\n", []),
    ],
    ids=["name and overrides", "no name", "template"],
)
def test_rule_that_pins_name_and_labels_needs_no_relist(text, series):
    built = build_pinned(load(text))

    assert sorted({entry.sources[0].series for entry in built.entries}) == series
    if series:
        entry = built.entry(PODS, series[0])
        assert entry.sources[0].bindings == (
            LabelBinding(resource="exported_pod", namespace="exported_namespace"),
        )


def test_external_rule_needs_only_a_pinned_name():
    template = "seriesQuery: m\nmetricsQuery: m\nresources: {template: <<.Resource>>}\n"

    built = build_pinned(load(external=(EXTERNAL, template)))

    assert list(built.external) == ["m", "queue_depth"]


def test_pinned_external_metric_is_listed_without_series():
    rules = [EXTERNAL, EXTERNAL.replace("queue_depth", "wait")]

    built = build(external=rules, listings=[listing(), listing("wait")])

    assert list(built.external) == ["queue_depth", "wait"]
    assert built.external["queue_depth"].source.bindings == (
        LabelBinding(resource="", namespace="ns"),
    )


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_external_rule_with_series_wins_over_one_without(order):
    rules = [EXTERNAL.replace("queue_depth", series) + "name: {as: x}\n" for series in order]

    listings = [listing("old") if series == "old" else listing() for series in order]
    built = build(external=rules, listings=listings)

    assert built.external["x"].source.series == "old"


def test_later_of_two_external_rules_without_series_wins():
    rules = [EXTERNAL.replace("queue_depth", series) + "name: {as: x}\n" for series in "ab"]

    built = build(external=rules, listings=[listing(), listing()])

    assert built.external["x"].source.series == "b"


def pinning(series: str, *, merge: bool = False) -> str:
    return (
        f"seriesQuery: {series}\nname: {{as: x}}\nmetricsQuery: m\nmerge: {merge}\n"
        "resources: {overrides: {exported_namespace: {resource: namespace}, "
        "namespace: {resource: namespace}, exported_pod: {resource: pod}, pod: {resource: pod}}}\n"
    )


def test_pinned_metric_without_series_is_unlisted():
    built = build(pinning("old"), listings=[listing()])

    assert built.entries == ()
    entry = built.entry(PODS, "x")
    assert not entry.listed
    assert [source.series for source in entry.sources] == ["old"]


def test_merged_metric_includes_pinned_series_that_do_not_exist_yet():
    live = {("old", PODS): (LabelBinding(resource="pod", namespace="namespace"),)}
    old = listing("old exported_pod pod exported_namespace namespace", live=live)

    built = build(pinning("new", merge=True), pinning("old", merge=True), listings=[listing(), old])

    entry = built.entry(PODS, "x")
    assert entry.listed
    assert [(source.series, source.bindings) for source in entry.sources] == [
        ("new", (LabelBinding(resource="pod", namespace="namespace"),)),
        ("old", (LabelBinding(resource="pod", namespace="namespace"),)),
    ]


@pytest.mark.parametrize(("absent", "present"), [(False, True), (True, False)])
def test_pinned_series_are_added_only_if_both_rules_merge(absent, present):
    built = build(
        pinning("new", merge=absent),
        pinning("old", merge=present),
        listings=[listing(), listing("old pod namespace")],
    )

    entry = built.entry(PODS, "x")
    assert [source.series for source in entry.sources] == ["old"]


def test_pinned_series_with_other_labels_keep_their_own_binding():
    other = (
        pinning("new", merge=True).replace("pod:", "pod_name:").replace("exported_pod_name", "p")
    )

    built = build(
        other, pinning("old", merge=True), listings=[listing(), listing("old pod namespace")]
    )

    entry = built.entry(PODS, "x")
    assert entry.sources[0].bindings == (
        LabelBinding(resource="p", namespace="exported_namespace"),
    )
