from __future__ import annotations

import textwrap

import pytest

from rules import presets, ruleset
from rules.kinds import Kinds
from rules.lint import check_sharing
from rules.query.scope import Scope

RULE = """
rules:
- seriesQuery: up
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '%s'
"""


def notes(text: str) -> list[str]:
    loaded = ruleset.load([("rules.yaml", textwrap.dedent(text))])
    return [str(note) for note in check_sharing.notes(loaded)]


def test_a_rule_of_cluster_scope_has_no_note():
    query = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"

    assert notes(RULE % query) == []


def test_a_rule_of_a_preset_has_no_note():
    loaded = ruleset.load([(f"{presets.FILE}any", RULE % "1 + sum(<<.Series>>)")])

    assert check_sharing.notes(loaded) == ()


def test_a_note_has_the_construct_its_place_and_the_rewriting():
    assert notes(RULE % "1 + sum(<<.Series>>{<<.LabelMatchers>>})") == [
        (
            "rules.yaml:5:22: note: rules[0].metricsQuery: scope alone for namespaces: `sum` drops "
            "the label namespace, and so combines several objects: aggregate by (<<.GroupBy>>)"
        ),
        (
            "rules.yaml:5:22: note: rules[0].metricsQuery: scope alone for pods: `sum` drops "
            "the label pod, and so combines several objects: aggregate by (<<.GroupBy>>)"
        ),
    ]


def test_a_query_that_cannot_be_parsed_is_alone():
    (note,) = notes(RULE % "rate(<<.Series>>{<<.LabelMatchers>>}[5m]) keep_metric_names")

    assert "scope alone: it cannot be analysed: invalid promql query" in note


def test_a_template_of_labels():
    text = """
        rules:
        - seriesQuery: up
          resources: {template: <<.Resource>>}
          metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (pod)'
        """

    scopes = [note.partition("scope ")[2].partition(":")[0] for note in notes(text)]

    assert scopes == ["alone for namespaces", "alone for nodes", "namespace for pods"]


def test_no_note_without_a_query_and_for_external_rules():
    text = """
        rules: [{seriesQuery: up, resources: {template: <<.Resource>>}}]
        externalRules: [{seriesQuery: up, metricsQuery: up}]
        """

    assert notes(text) == []


def test_a_query_of_resource_rules_has_a_note_with_its_obstacle():
    text = """
        resourceRules:
          window: 1m
          cpu: &both
            containerQuery: sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>)
            nodeQuery: topk(3, x{<<.LabelMatchers>>})
            resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod},
              node: {resource: node}}}
          memory: {containerQuery: up, nodeQuery: up}
        """

    (nodes,) = notes(text)

    assert ": resourceRules.cpu.nodeQuery: scope alone: `topk` may depend on the series" in nodes


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.names())
def test_every_rule_of_a_preset_is_of_cluster_scope(name):
    """The preset prometheus-adapter has the default rules of the original's Helm chart."""
    loaded = ruleset.load([(name, presets.text(name))])

    for rule in loaded.rules:
        for resource, sharing in check_sharing.sharings(rule, Kinds.builtin()).items():
            assert sharing.scope == Scope.CLUSTER, (rule.config.where, resource, sharing)
    assert check_sharing.notes(loaded) == ()
