"""Plans of metrics.k8s.io, and the usage that their samples mean."""

from __future__ import annotations

import json
import math

import pytest

from rules import ruleset
from rules.errors import PlanError
from rules.kinds import NODES, PODS
from rules.query import plan, resource, scope
from rules.query.aggregate import NO_SAMPLES, Reduction, Sample
from rules.query.plan import SelectedObjects
from rules.query.resource import Usage
from rules.query.scope import Scope
from rules.selectors.selectors import Selector

QUERY = "sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
LABELS = "{overrides: {ns: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}"


def queries(
    query: str = QUERY, resources: str = LABELS, container: str = "container"
) -> resource.ResourceQueries:
    text = json.dumps(query)
    rule = (
        f"{{containerQuery: {text}, nodeQuery: {text}, resources: {resources}, "
        f"containerLabel: '{container}'}}"
    )
    sections = f"resourceRules:\n  cpu: {rule}\n  memory: {rule}\n  window: 3m\n"
    compiled = ruleset.load([("rules.yaml", sections)]).resource_rules
    return resource.compile(compiled)


def test_pods_are_planned_for_cpu_and_memory():
    cpu, memory = resource.plans(queries(), PODS, namespace="ml", names=["a.b", "c"])

    assert cpu.promql() == (r'sum(m{ns="ml",pod=~"a\\.b|c"}) by (pod,container)',)
    assert (cpu.metric, memory.metric) == ("cpu", "memory")
    where = cpu.steps[0].rule.config.where
    assert str(where) == "resourceRules.cpu.containerQuery (rules.yaml:2)"


def test_nodes_are_planned_without_a_namespace():
    cpu, _ = resource.plans(queries(), NODES, namespace="", names=["n1"])

    assert cpu.promql() == ('sum(m{node="n1"}) by (node)',)


def test_without_a_container_label_pods_are_grouped_by_pod():
    cpu, _ = resource.plans(queries(container=""), PODS, namespace="ml", names=["p"])

    assert cpu.promql() == ('sum(m{ns="ml",pod="p"}) by (pod)',)


def test_the_first_of_several_labels_is_used():
    labels = (
        "{overrides: {k: {resource: namespace}, exported_pod: {resource: pod}, "
        "pod: {resource: pod}}}"
    )

    cpu, _ = resource.plans(queries(resources=labels), PODS, namespace="ml", names=["p"])

    assert cpu.promql() == ('sum(m{k="ml",exported_pod="p"}) by (exported_pod,container)',)


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ("{overrides: {pod: {resource: pod}}}", NODES, "no label is mapped to the objects: add"),
        ("{overrides: {pod: {resource: pod}}}", PODS, "no label is mapped to namespaces"),
    ],
)
def test_an_unmapped_label_is_refused_with_advice(labels, kind, message):
    plans = resource.plans(queries(resources=labels), kind, namespace="", names=["n1"])
    namespaced = resource.plans(queries(resources=labels), kind, namespace="ml", names=["n1"])

    with pytest.raises(PlanError, match=rf"resourceRules\.cpu\.\w+ \(rules.yaml:2\): {message}"):
        (namespaced if kind == PODS else plans)[0].promql()


def test_a_query_that_renders_to_nothing_is_named():
    cpu, _ = resource.plans(queries("<<if false>>x<<end>>"), PODS, namespace="n", names=["p"])

    with pytest.raises(PlanError, match=r"resourceRules\.cpu\.containerQuery .*nothing"):
        cpu.promql()


def test_one_query_covers_the_containers_of_all_namespaces():
    step, _ = queries().pods

    text = plan.render(
        step, SelectedObjects(namespaces=None, names=None), Selector(), by_namespace=True
    )

    assert scope.sharing(step).scope is Scope.CLUSTER
    assert text == 'sum(m{ns!="",pod!=""}) by (pod,container,ns)'


def usage_of(*samples: Sample, names: tuple[str, ...] = ("p",)) -> resource.UsageByName:
    cpu, _ = resource.plans(queries(), PODS, namespace="ml", names=names)
    reduction = Reduction(cpu.steps[0])
    reduction.add(samples)
    return resource.usage(cpu, (reduction.by_object().get("", NO_SAMPLES),))


def sample(value: float, container: str = "main", *, pod: str = "p", time: float = 10.0) -> Sample:
    return Sample(labels={"pod": pod, "container": container}, value=value, time=time)


def test_usage_is_by_container_with_the_earliest_time():
    assert usage_of(sample(0.25), sample(1.5, "side", time=9.0)) == {
        "p": Usage(milli={"main": 250, "side": 1500}, time=9.0)
    }


def test_a_negative_value_counts_as_0():
    assert usage_of(sample(-0.5)) == {"p": Usage(milli={"main": 0}, time=10.0)}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("containers", [["main"], ["main", "side"], ["side", "main"]])
def test_a_pod_with_a_value_that_is_not_finite_has_no_usage(value, containers):
    samples = [sample(value if each == "main" else 1.0, each) for each in containers]

    found = usage_of(*samples, sample(2.0, pod="q"), names=("p", "q", "r"))

    assert found == {"q": Usage(milli={"main": 2000}, time=10.0)}
    assert found.not_finite == ["p"]


def test_several_samples_of_a_container_are_averaged():
    assert usage_of(sample(1.0), sample(2.0))["p"].milli == {"main": 1500}


def test_other_pods_and_pods_without_samples_have_no_usage():
    found = usage_of(sample(1.0, pod="x"), sample(1.0, pod="b"), names=("b", "a"))

    assert list(found) == ["b"]


def test_a_sample_without_the_container_label_is_of_the_container_without_a_name():
    found = usage_of(Sample(labels={"pod": "p"}, value=1.0, time=1.0))

    assert found["p"].milli == {"": 1000}
