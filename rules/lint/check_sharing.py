"""Notes on the scope of each rule: how far one query serves several autoscalers.

`rules.query.scope` decides it for one label; here every resource counts that a rule maps.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules import presets
from rules.findings import Finding, State
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.query import label_binding, resource, scope
from rules.query.catalog import Source, Step
from rules.query.scope import Scope, Sharing
from rules.ruleset import CompiledResourceRules, CompiledRule, RuleSet


def notes(ruleset: RuleSet) -> tuple[Finding, ...]:
    """Return a note on each rule whose queries do not serve the whole cluster; of presets, none.

    A rule has several if its resources differ. Of `resourceRules`, each query is judged. No cluster
    is needed: resources are those that every cluster has.
    """
    kinds = Kinds.builtin()
    own = (rule for rule in ruleset.rules if not presets.is_preset(rule.config.where.file))
    found = [note for rule in own for note in _notes(rule, kinds)]
    if ruleset.resource_rules:
        found += _notes_of_queries(ruleset.resource_rules)
    return tuple(found)


def sharings(rule: CompiledRule, kinds: Kinds) -> dict[GroupResource, Sharing]:
    """Return the scope of a rule for each resource, by the label that is preferred for it."""
    bound = rule.mapping.bind(kinds)
    labels = {each.label for each in rule.config.resources.overrides}
    if rule.config.resources.template:
        labels.update(label for each in (PODS, NODES, NAMESPACES) for label in bound.labels(each))
    # The name of a series makes no difference; any will do.
    source = Source(rule=rule, series=rule.pinned_series or "series", bindings=())
    every = label_binding.choices(rule, bound, frozenset(labels), kinds)
    return {
        resource: scope.sharing(Step(source=source, binding=each.preferred))
        for resource, each in every.items()
    }


def _notes(rule: CompiledRule, kinds: Kinds) -> Iterator[Finding]:
    if not rule.query.source:
        return  # reported when the file was read
    resources: dict[Sharing, list[GroupResource]] = {}
    every = sharings(rule, kinds)
    for each, sharing in every.items():
        if sharing.scope != Scope.CLUSTER:
            resources.setdefault(sharing, []).append(each)
    for sharing, those in resources.items():
        which = f" for {', '.join(map(str, those))}" if len(set(every.values())) > 1 else ""
        yield rule.config.where.problem(
            State.NOTE,
            "metricsQuery",
            f"scope {sharing.scope}{which}{_explained(sharing)}",
            offset=sharing.position,
        )


def _notes_of_queries(rules: CompiledResourceRules) -> Iterator[Finding]:
    queries = resource.compile(rules)
    of_file = {each.config.where.path: each.config.where for each in (rules.cpu, rules.memory)}
    for step in (*queries.pods, *queries.nodes):
        if not step.rule.query.source or not step.binding.resource:
            continue  # reported elsewhere
        sharing = scope.sharing(step)
        if sharing.scope == Scope.CLUSTER or presets.is_preset(step.rule.config.where.file):
            continue
        path, _, key = step.rule.config.where.path.rpartition(".")
        yield of_file[path].problem(
            State.NOTE, key, f"scope {sharing.scope}{_explained(sharing)}", offset=sharing.position
        )


def _explained(sharing: Sharing) -> str:
    advice = f": {sharing.advice}" if sharing.advice else ""
    return f": {sharing.obstacle}{advice}"
