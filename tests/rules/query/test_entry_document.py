"""Rules of a metric as a document, from which another program plans the same queries."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rules import presets, ruleset
from rules.document import config
from rules.errors import PlanError
from rules.kinds import NODES, PODS
from rules.query import entry_document, plan
from rules.query.catalog import Entry, ExternalEntry, Source
from rules.query.label_binding import LabelBinding
from rules.ruleset import Team
from rules.selectors import selectors

BINDING = LabelBinding(resource="pod", namespace="namespace", absent=("exported_pod",))
SELECTOR = selectors.parse("queue in (a,b)")
RULES = """
rules:
- seriesQuery: 'used{a!=""}'
  resources: {template: 'kube_<<.Resource>>'}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>,b="\\"c"}) by (<<.GroupBy>>)'
  aggregate: sum
  onNaN: zero
  onMissing: {lastKnown: 90s}
  maxSampleAge: 1500ms
  minPodAge: 2m
  workloads: max
  ahead: {season: 7d, horizon: 4m}
  merge: true
- seriesQuery: used
  resources: {overrides: {pod: {resource: pod}, "a.b": {group: apps, resource: deployment}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
  onMissing: {value: 0.1}
"""
LEFT_OUT = {"series_filters", "name", "freshness", "source", "allow_partial_response", "where"}
"""Fields of a rule that change no query and no value, and those of which a reader has its own."""
KEYS = [each.name for each in dataclasses.fields(config.Rule) if each.name not in LEFT_OUT]


def sent(entry):
    return json.loads(json.dumps(entry_document.document(entry)))


def every_rule():
    loaded = [ruleset.load([(name, presets.text(name))]) for name in presets.names()]
    return [rule for each in [*loaded, ruleset.load([("r", RULES)])] for rule in each.all]


@pytest.mark.slow
def test_the_rules_of_all_presets_are_read_as_they_are():
    for rule in every_rule():
        external = rule.section == "externalRules"
        binding = LabelBinding(resource="", namespace="namespace") if external else BINDING
        source = Source(rule=rule, series="used", bindings=(binding,))
        entry: Any
        plans: list[Any]
        if external:
            entry = ExternalEntry(metric="m", namespaced=True, source=source)
            read = entry_document.read(sent(entry))
            plans = [
                plan.external(each, namespace="n", selector=SELECTOR) for each in (entry, read)
            ]
            assert plans[0].promql() == plans[1].promql()
        else:
            entry = Entry(metric="m", resource=PODS, namespaced=True, sources=(source,))
            read = entry_document.read(sent(entry))
            plans = [
                plan.custom(each, namespace="n", names=("a", "b"), selector=SELECTOR)
                for each in (entry, read)
            ]
            assert plans[0].queries() == plans[1].queries()
        mine, others = (
            rule.config,
            read.source.rule.config if external else read.steps[0].rule.config,
        )
        for key in KEYS:
            assert getattr(mine, key) == getattr(others, key)


def test_each_key_has_several_values_among_the_rules_that_are_read():
    rules = every_rule()

    for key in KEYS:
        assert len({getattr(rule.config, key) for rule in rules}) > 1, key


def test_steps_keep_their_order_and_what_they_are_confined_to():
    rules = ruleset.load([("r", RULES)]).rules
    first = dataclasses.replace(rules[1], team=Team(namespace="team", label="ns"))
    sources = (
        Source(rule=first, series="x", bindings=(BINDING, LabelBinding(resource="p"))),
        Source(rule=rules[1], series="y", bindings=(BINDING,)),
    )
    pods = Entry(metric="m", resource=PODS, namespaced=True, sources=sources)
    entry = dataclasses.replace(pods, resource=NODES, namespaced=False, pods=pods)

    read = entry_document.read(sent(entry), NODES)

    assert [(each.series, each.binding) for each in read.steps] == [
        (each.series, each.binding) for each in entry.steps
    ]
    assert read.steps[0].rule.team == first.team
    assert (read.resource, read.namespaced, read.pods.resource) == (NODES, False, PODS)


def test_the_sources_that_rules_name_are_said():
    rules = ruleset.load([("r", RULES)]).rules
    entry = Entry(
        metric="m",
        resource=PODS,
        namespaced=True,
        sources=(Source(rule=rules[0], series="x", bindings=(BINDING,)),),
    )

    assert entry_document.sources(sent(entry)) == ("default",)


@pytest.mark.parametrize(
    "document", [{}, {"external": False, "steps": [{"rule": {}, "where": "r"}]}]
)
def test_what_cannot_be_read_is_one_error(document):
    with pytest.raises(PlanError, match="the rules of the metric cannot be read"):
        entry_document.read(document)
