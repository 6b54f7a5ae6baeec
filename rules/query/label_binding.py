"""By which labels series name their objects, where several labels may stand for one resource.

The pure half of following a fleet that is switched from one label to another: which labels compete
for a resource (`ambiguous_bindings`), and how Prometheus is asked which of them live series carry.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rules import promql
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.ruleset import CompiledRule


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBinding:
    """One way in which series name their object.

    Where several labels may stand for one resource (`exported_pod`, then `pod`), a series belongs
    to the object named by the *first* of them that it carries; with namespaces likewise. So to ask
    by a later label is to ask, too, that the earlier ones are absent: those are `absent`.
    """

    resource: str
    """The label that holds the object's name; empty for an external metric, which has no object."""
    namespace: str = ""
    """The label that holds the object's namespace; empty where there is none: for root-scoped
    resources, and for rules that map none."""
    absent: tuple[str, ...] = ()
    """Labels that must be empty for this labelling to hold: the resource's, then the namespace's,
    each in the order of the overrides."""

    def probe_matchers(self) -> tuple[str, ...]:
        """The matchers of series that bear this labelling: `earlier=""`, then `label!=""`."""
        present = (label for label in (self.resource, self.namespace) if label)
        return (
            *(promql.matcher(label, "=", "") for label in self.absent),
            *(promql.matcher(label, "!=", "") for label in present),
        )


def ambiguous_bindings(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, tuple[LabelBinding, ...]]:
    """Where labels compete among `labels` (those of one series name), all labellings that may hold.

    Empty when nothing competes. In order of preference: every label of the resource with every
    label of namespaces. A relist asks, for each, an instant query with its `probe_matchers` and
    puts those that found the series into `Listing.live` under (series, resource).
    """
    found = bindings(rule, bound, labels, kinds)
    return {resource: each for resource, each in found.items() if len(each) > 1}


def bindings(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, tuple[LabelBinding, ...]]:
    """Each resource that `labels` associate, with its labellings in order of preference.

    Where series carry no label of namespaces, it is the first that the rule has, as in the original
    (the query then finds nothing). An external rule associates nothing; its labellings, of
    namespaces alone, stand under NAMESPACES.
    """
    carried = bound.carried(labels)
    namespaces = carried.get(NAMESPACES) or bound.labels(NAMESPACES)[:1]
    if rule.section == "externalRules":
        return {NAMESPACES: combinations(("",), namespaces if selects_namespace(rule) else ())}
    return {
        resource: combinations(
            names,
            namespaces if kinds.resolve(resource.resource, resource.group).namespaced else (),
        )
        for resource, names in carried.items()
    }


def combinations(resource: Collection[str], namespace: Collection[str]) -> tuple[LabelBinding, ...]:
    """Every pair of a resource's label and a namespace's, earlier ones first."""
    resources, namespaces = tuple(resource), tuple(namespace) or ("",)
    return tuple(
        LabelBinding(resource=name, namespace=space, absent=resources[:i] + namespaces[:j])
        for i, name in enumerate(resources)
        for j, space in enumerate(namespaces)
    )


def selects_namespace(rule: CompiledRule) -> bool:
    """Whether a request's namespace selects series: unless an external rule says not."""
    return rule.config.resources.namespaced is not False
