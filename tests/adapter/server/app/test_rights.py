"""Rights of the adapter's own account that follow from the rules and from the groups served."""

from __future__ import annotations

import pytest

from adapter.clients import own_rights
from rules import ruleset
from rules.kinds import SCALE_TARGETS, Kinds
from tests import world

DEPLOYMENTS = (
    "rules: [{seriesQuery: up, metricsQuery: up, "
    "resources: {overrides: {x: {group: apps, resource: deployment}}}}]"
)


@pytest.mark.parametrize(
    ("rules", "resources"),
    [
        ("rules: []", {"pods"}),
        (DEPLOYMENTS, {"deployments", "pods"}),
        ("resourceRules: {window: 1m}", {"nodes", "pods"}),
    ],
)
def test_objects_that_rules_describe_must_be_readable(rules, resources):
    required = list(own_rights.of_rules(ruleset.load([("f.yaml", rules)]), Kinds.builtin()))

    assert {right.resource for right in required} == resources
    assert {right.verbs for right in required} == {("list", "watch")}


def test_scales_of_targets_that_the_cluster_serves_must_be_readable():
    served = [world.group("argoproj.io", "rollouts Rollout")]
    kinds = Kinds.of([*Kinds.builtin().groups, *served], SCALE_TARGETS)

    required = list(own_rights.of_rules(world.load("rules: []"), kinds))

    assert [(right.resource, right.verbs) for right in required] == [
        ("pods", ("list", "watch")),
        ("rollouts/scale", ("get",)),
    ]


def test_only_an_apiservice_of_the_base_must_be_writable():
    names = ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")
    required = own_rights.of_apiservices((*names, "v1beta1.metrics.k8s.io"))

    assert [(right.name, right.verbs) for right in required] == [
        ("v1beta1.custom.metrics.k8s.io", ("get", "patch")),
        ("v1beta1.external.metrics.k8s.io", ("get",)),
        ("v1beta1.metrics.k8s.io", ("get",)),
    ]
