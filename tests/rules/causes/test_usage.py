"""Causes of missing usage."""

from __future__ import annotations

from rules.causes import missing
from rules.causes.cause import Reason
from rules.kinds import NODES, PODS
from rules.query import resource
from tests.rules.query.test_resource import queries


def test_pods_without_usage_are_named_with_the_query_and_its_labels():
    cpu, _ = resource.plans(queries(), PODS, namespace="ml", names=["a", "b", "c"])

    cause = missing.without_usage(cpu, {"b"})

    assert cause.reason is Reason.NO_SAMPLE
    assert cause.sentence == (
        "2 of 3 pods in namespace ml have no cpu: a, c. resourceRules.cpu.containerQuery "
        "(rules.yaml:2) returned no sample for them. A new one is not scraped yet; otherwise "
        "compare the labels of its series by pod and ns"
    )


def test_nodes_have_no_namespace():
    _, memory = resource.plans(queries(), NODES, namespace="", names=["n"])

    assert missing.without_usage(memory, ()).sentence.startswith("1 of 1 nodes has no memory: n. ")
