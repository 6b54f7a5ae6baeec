from __future__ import annotations

import textwrap

import pytest

from rules import ruleset
from rules.kinds import ApiGroup, ApiResource, GroupResource, Kinds
from rules.query import catalog, label_binding
from rules.query.catalog import Catalog, Listing, Series
from rules.query.label_binding import LabelBinding

PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
NAMESPACES = GroupResource("", "namespaces")
STORAGE_CLASSES = GroupResource("storage.k8s.io", "storageclasses")


def api_group(name: str, *resources: tuple[str, str, str, bool]) -> ApiGroup:
    return ApiGroup(
        name=name,
        versions=("v1",),
        preferred="v1",
        resources={
            "v1": tuple(
                ApiResource(name=plural, singular=singular, kind=kind, namespaced=namespaced)
                for plural, singular, kind, namespaced in resources
            )
        },
    )


KINDS = Kinds.of(
    [
        api_group(
            "",
            ("namespaces", "namespace", "Namespace", False),
            ("nodes", "node", "Node", False),
            ("pods", "pod", "Pod", True),
        ),
        api_group("storage.k8s.io", ("storageclasses", "storageclass", "StorageClass", False)),
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
    text = "".join(
        f"{section}:\n"
        + "".join("-\n" + textwrap.indent(rule.strip("\n"), "  ") + "\n" for rule in each)
        for section, each in (("rules", rules), ("externalRules", external))
        if each
    )
    return ruleset.load([("rules.yaml", text)])


def listed(*series: str, live=()) -> Listing:
    """`name label label ...` for each series."""
    split = [one.split() for one in series]
    return Listing(
        series=tuple(Series(name=name, labels=frozenset(labels)) for name, *labels in split),
        live=dict(live),
    )


def build(*rules: str, listings: list[Listing]) -> Catalog:
    compiled = load(*rules)
    indexes = [rule.index for rule in compiled.rules]
    return catalog.build(compiled, dict(zip(indexes, listings, strict=True)), KINDS)


def served(built: Catalog) -> list[tuple[str, str, list[tuple[int, str]]]]:
    return [
        (str(e.resource), e.metric, [(s.rule.index, s.series) for s in e.sources])
        for e in built.entries
    ]


def rule(name: str = "", *, merge: bool = False, resources: str = "{resource: pod}") -> str:
    lines = [
        "seriesQuery: '{a!=\"\"}'",
        f"resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {resources}}}}}",
        "metricsQuery: m",
        *([f"name: {{as: {name}}}"] if name else []),
        *(["merge: true"] if merge else []),
    ]
    return "\n".join(lines)


def test_a_metric_exists_for_each_resource_that_a_label_stands_for():
    built = build(FLEET, listings=[listed("m namespace pod", "n node", "o unknown")])

    assert [(str(e.resource), e.metric, e.namespaced) for e in built.entries] == [
        ("namespaces", "m", False),
        ("nodes", "n", False),
        ("pods", "m", True),
    ]


def test_entries_are_found_by_resource_and_metric():
    built = build(FLEET, listings=[listed("m namespace pod")])

    assert built.entry(PODS, "m") in built.entries
    assert built.entry(NODES, "m") is None
    assert built.entry(PODS, "n") is None


def test_filters_and_names_decide_which_series_count():
    only = rule() + "\nseriesFilters: [{isNot: _sum$}]\nname: {matches: '^http_(.*)$'}\n"

    built = build(only, listings=[listed("http_a pod", "http_sum pod", "up pod")])

    assert served(built) == [("pods", "a", [(0, "http_a")])]


def test_discovery_says_what_is_root_scoped():
    mapping = "seriesQuery: m\nmetricsQuery: m\nresources: {template: <<.Resource>>}\n"

    built = build(mapping, listings=[listed("m storageclass pod namespace")])

    entry = built.entry(STORAGE_CLASSES, "m")
    assert entry is not None
    assert not entry.namespaced
    assert entry.sources[0].bindings == (LabelBinding(resource="storageclass"),)


def test_a_kind_that_the_cluster_does_not_know_leaves_the_rest_working():
    mapping = """
        seriesQuery: m
        resources: {overrides: {pod: {resource: pod}, queue: {group: kueue, resource: queue}}}
        metricsQuery: m
        """

    built = build(textwrap.dedent(mapping), listings=[listed("m pod queue")])

    assert served(built) == [("pods", "m", [(0, "m")])]


def test_a_rule_without_a_listing_produces_nothing():
    assert catalog.build(load(rule()), {}, KINDS) == Catalog.empty()
    assert Catalog.empty().entry(PODS, "m") is None


def test_the_later_rule_wins_per_resource_and_the_loser_is_a_conflict():
    built = build(rule("x"), rule("x"), listings=[listed("a namespace pod"), listed("b namespace")])

    assert served(built) == [("namespaces", "x", [(1, "b")]), ("pods", "x", [(0, "a")])]
    (conflict,) = built.conflicts
    assert (conflict.metric, conflict.resource) == ("x", NAMESPACES)
    assert (conflict.winner.series, conflict.loser.series) == ("b", "a")
    assert str(conflict) == (
        "the metric 'x' of namespaces is produced by rules.yaml: rules[0] (from 'a') and by "
        "rules.yaml: rules[1] (from 'b'); the later rule answers it and the earlier one never "
        "does: give them different names, or say `merge: true` in both"
    )


def test_within_one_rule_the_last_series_listed_wins_and_the_others_are_conflicts():
    built = build(rule("x"), listings=[listed("b pod", "a pod")])

    assert served(built) == [("pods", "x", [(0, "a")])]
    (conflict,) = built.conflicts
    assert "the series 'b' and 'a' both become the metric 'x' of pods" in str(conflict)


def test_one_series_listed_twice_is_no_conflict():
    assert build(rule("x"), listings=[listed("a pod", "a pod")]).conflicts == ()


@pytest.mark.parametrize(
    ("merges", "rules", "losers"),
    [
        ([True, True], [0, 1], []),
        ([True, False], [1], [0]),
        ([False, True], [1], [0]),
        ([True, False, True], [0, 2], [1]),
        ([True, True, False], [2], [0, 1]),
    ],
)
def test_rules_that_merge_answer_together_if_the_last_one_does(merges, rules, losers):
    texts = [rule("x", merge=merge) for merge in merges]

    built = build(*texts, listings=[listed("m pod") for _ in merges])

    assert served(built) == [("pods", "x", [(index, "m") for index in rules])]
    assert [conflict.loser.rule.index for conflict in built.conflicts] == losers


def bindings(live=(), labels: str = "", resource: GroupResource = PODS) -> list[LabelBinding]:
    built = build(FLEET, listings=[listed(f"m {labels}", live=[(("m", resource), tuple(live))])])
    entry = built.entry(resource, "m")
    assert entry is not None
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
    ids=["one each", "another one each", "all", "the first that is carried", "no namespace"],
)
def test_with_nothing_known_live_the_first_labels_carried_are_asked(labels, resource, namespace):
    assert bindings(labels=labels) == [LabelBinding(resource=resource, namespace=namespace)]


def test_root_scoped_resources_have_no_namespace_label():
    assert bindings(labels="namespace node", resource=NODES) == [LabelBinding(resource="node")]


def test_a_rule_without_namespaces_is_listed_all_the_same():
    built = build(
        "seriesQuery: m\nmetricsQuery: m\nresources: {overrides: {pod: {resource: pod}}}\n",
        listings=[listed("m pod")],
    )

    entry = built.entry(PODS, "m")
    assert entry is not None
    assert entry.namespaced
    assert entry.sources[0].bindings == (LabelBinding(resource="pod"),)


def test_the_one_labelling_that_is_live_is_asked_alone():
    live = [
        LabelBinding(resource="pod_name", namespace="namespace", absent=("exported_pod", "pod"))
    ]

    found = bindings(live, labels="exported_pod pod pod_name namespace")

    assert found == [LabelBinding(resource="pod_name", namespace="namespace")]


def test_several_live_labellings_are_asked_in_order_of_preference():
    last = LabelBinding(resource="pod_name", namespace="namespace", absent=("exported_pod",))
    first = LabelBinding(resource="exported_pod", namespace="namespace")

    assert bindings([last, first], labels="exported_pod pod_name namespace") == [first, last]


def test_what_was_live_and_can_no_longer_be_is_forgotten():
    live = [LabelBinding(resource="exported_pod", namespace="namespace")]

    found = bindings(live, labels="pod pod_name namespace")

    assert found == [LabelBinding(resource="pod", namespace="namespace")]


def competing(labels: str, text: str = FLEET) -> dict[GroupResource, tuple[LabelBinding, ...]]:
    (one,) = load(text).rules
    return label_binding.ambiguous_bindings(
        one, one.mapping.bind(KINDS), frozenset(labels.split()), KINDS
    )


def test_nothing_competes_where_each_resource_has_one_label():
    assert competing("namespace pod node") == {}


def test_labels_of_a_resource_and_of_namespaces_compete_in_every_pair():
    found = competing("namespace exported_namespace pod exported_pod node")

    assert found == {
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
                resource="pod",
                namespace="namespace",
                absent=("exported_pod", "exported_namespace"),
            ),
        ),
    }


def test_a_probe_asks_for_the_labels_and_for_the_absence_of_earlier_ones():
    binding = LabelBinding(resource="pod", namespace="k8s.ns", absent=("exported_pod",))

    assert binding.probe_matchers() == ('exported_pod=""', 'pod!=""', '"k8s.ns"!=""')
    assert LabelBinding(resource="node").probe_matchers() == ('node!=""',)


EXTERNAL = """
seriesQuery: 'queue_depth'
resources: {overrides: {ns: {resource: namespace}, namespace: {resource: namespace}}}
metricsQuery: m
"""


def build_external(*rules: str, listings: list[Listing]) -> Catalog:
    compiled = load(external=rules)
    indexes = [rule.index for rule in compiled.external]
    return catalog.build(compiled, dict(zip(indexes, listings, strict=True)), KINDS)


def test_external_metrics_need_no_labels_and_are_sorted():
    built = build_external(EXTERNAL, listings=[listed("b", "a namespace")])

    assert built.entries == ()
    assert list(built.external) == ["a", "b"]
    assert [entry.source.bindings for entry in built.external.values()] == [
        (LabelBinding(resource="", namespace="namespace"),),
        (LabelBinding(resource="", namespace="ns"),),
    ]


def test_an_external_metric_is_asked_by_the_first_namespace_label_that_is_live():
    (one,) = load(external=(EXTERNAL,)).external
    labels = frozenset({"ns", "namespace"})

    found = label_binding.ambiguous_bindings(one, one.mapping.bind(KINDS), labels, KINDS)
    live = {("m", NAMESPACES): found[NAMESPACES][1:]}
    built = build_external(EXTERNAL, listings=[listed("m ns namespace", live=live)])

    assert found[NAMESPACES][1].probe_matchers() == ('ns=""', 'namespace!=""')
    assert built.external["m"].source.bindings == (
        LabelBinding(resource="", namespace="namespace"),
    )


def test_several_live_namespace_labels_leave_an_external_metric_with_the_first():
    found = label_binding.combinations([""], ["ns", "namespace"])

    built = build_external(
        EXTERNAL, listings=[listed("m ns namespace", live={("m", NAMESPACES): found})]
    )

    assert built.external["m"].source.bindings == (LabelBinding(resource="", namespace="ns"),)


def test_an_external_rule_may_say_that_it_is_not_namespaced():
    text = "seriesQuery: m\nmetricsQuery: m\nresources: {namespaced: false}\n"

    entry = build_external(text, listings=[listed("m namespace")]).external["m"]

    assert not entry.namespaced
    assert entry.source.bindings == (LabelBinding(resource=""),)


def test_later_external_rules_win():
    built = build_external(
        EXTERNAL + "name: {as: x}\n",
        EXTERNAL + "name: {as: x}\n",
        listings=[listed("a"), listed("b", "c")],
    )

    assert built.external["x"].source.series == "c"
    across, within = map(str, built.conflicts)
    assert "the series 'b' and 'c' both become the metric 'x';" in within
    assert "externalRules[0] (from 'a')" in across
    assert "merge" not in across


def test_external_metrics_are_found_in_lower_case_too():
    built = build_external(EXTERNAL, listings=[listed("Depth", "DEPTH", "size")])

    assert built.external_entry("Depth") is built.external["Depth"]
    assert built.external_entry("depth") is built.external["DEPTH"]
    assert built.external_entry("SIZE") is built.external["size"]
    assert built.external_entry("width") is None


def unlisted(compiled: ruleset.RuleSet) -> Catalog:
    """What a relist begins with."""
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
def test_what_a_rule_pins_needs_no_relist(text, series):
    built = unlisted(load(text))

    assert sorted({entry.sources[0].series for entry in built.entries}) == series
    if series:
        entry = built.entry(PODS, series[0])
        assert entry is not None
        assert entry.sources[0].bindings == (
            LabelBinding(resource="exported_pod", namespace="exported_namespace"),
        )


def test_external_rules_pin_by_name_alone():
    template = "seriesQuery: m\nmetricsQuery: m\nresources: {template: <<.Resource>>}\n"

    built = unlisted(load(external=(EXTERNAL, template)))

    assert list(built.external) == ["m", "queue_depth"]


def test_an_external_metric_that_is_pinned_is_listed_without_series():
    built = build_external(
        EXTERNAL, EXTERNAL.replace("queue_depth", "wait"), listings=[listed(), listed("wait")]
    )

    assert list(built.external) == ["queue_depth", "wait"]
    assert built.external["queue_depth"].source.bindings == (
        LabelBinding(resource="", namespace="ns"),
    )


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_an_external_rule_without_series_never_stands_in_for_one_that_has_some(order):
    rules = [EXTERNAL.replace("queue_depth", series) + "name: {as: x}\n" for series in order]

    built = build_external(
        *rules, listings=[listed("old") if series == "old" else listed() for series in order]
    )

    assert built.external["x"].source.series == "old"
    assert built.conflicts == ()


def test_of_two_external_rules_without_series_the_later_one_is_asked():
    rules = [EXTERNAL.replace("queue_depth", series) + "name: {as: x}\n" for series in "ab"]

    built = build_external(*rules, listings=[listed(), listed()])

    assert built.external["x"].source.series == "b"
    assert built.conflicts == ()


def pinning(series: str, *, merge: bool = False) -> str:
    return (
        f"seriesQuery: {series}\nname: {{as: x}}\nmetricsQuery: m\nmerge: {merge}\n"
        "resources: {overrides: {exported_namespace: {resource: namespace}, "
        "namespace: {resource: namespace}, exported_pod: {resource: pod}, pod: {resource: pod}}}\n"
    )


def test_what_a_rule_pins_can_be_asked_before_its_series_are_found():
    built = build(pinning("old"), listings=[listed()])

    assert built.entries == ()
    entry = built.entry(PODS, "x")
    assert entry is not None
    assert not entry.listed
    assert [source.series for source in entry.sources] == ["old"]


def test_a_merged_metric_is_asked_of_a_generation_that_is_not_there_yet():
    live = {("old", PODS): (LabelBinding(resource="pod", namespace="namespace"),)}
    found = listed("old exported_pod pod exported_namespace namespace", live=live)

    built = build(
        pinning("new", merge=True), pinning("old", merge=True), listings=[listed(), found]
    )

    entry = built.entry(PODS, "x")
    assert entry is not None
    assert entry.listed
    assert [(source.series, source.bindings) for source in entry.sources] == [
        ("new", (LabelBinding(resource="pod", namespace="namespace"),)),
        ("old", (LabelBinding(resource="pod", namespace="namespace"),)),
    ]


@pytest.mark.parametrize("merges", [(False, True), (True, False)], ids=["absent", "present"])
def test_a_rule_that_does_not_merge_never_stands_in_for_a_listed_one(merges):
    absent, present = merges

    built = build(
        pinning("new", merge=absent),
        pinning("old", merge=present),
        listings=[listed(), listed("old pod namespace")],
    )

    entry = built.entry(PODS, "x")
    assert entry is not None
    assert [source.series for source in entry.sources] == ["old"]
    assert built.conflicts == ()


def test_a_generation_with_other_labels_is_asked_by_its_own():
    other = (
        pinning("new", merge=True).replace("pod:", "pod_name:").replace("exported_pod_name", "p")
    )

    built = build(
        other, pinning("old", merge=True), listings=[listed(), listed("old pod namespace")]
    )

    entry = built.entry(PODS, "x")
    assert entry is not None
    assert entry.sources[0].bindings == (
        LabelBinding(resource="p", namespace="exported_namespace"),
    )
