"""Label bindings: the labels by which series name their object, where several labels are possible.

While a fleet switches from one label to another, series with either are live. This module says
which bindings are ambiguous and which matchers probe them; relists send the probes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rules import promql
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.ruleset import CompiledRule


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBinding:
    """One way in which series name their object: a label for it and one for its namespace.

    If several labels map to one resource (`exported_pod`, then `pod`), a series belongs to the
    object that the first label it carries names; likewise for namespaces. A query by a later label
    must therefore exclude series that carry an earlier one: those labels are `absent`.
    """

    resource: str
    """Label with the object's name; empty for an external metric, which has no object."""
    namespace: str = ""
    """Label with the object's namespace; empty for root-scoped resources, and if none is mapped."""
    absent: tuple[str, ...] = ()
    """Labels that must be empty: the earlier ones of the resource, then those of the namespace."""
    container: str = ""
    """Label with the name of the container that a sample describes; only in `resourceRules`."""

    def probe_matchers(self) -> tuple[str, ...]:
        """Return the matchers of series with this binding: `earlier=""`, then `label!=""`."""
        present = (label for label in (self.resource, self.namespace) if label)
        return (
            *(promql.matcher(label, "=", "") for label in self.absent),
            *(promql.matcher(label, "!=", "") for label in present),
        )


def ambiguous_bindings(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, tuple[LabelBinding, ...]]:
    """Return the bindings of each resource for which series with `labels` have several.

    A relist queries the `probe_matchers` of each, and puts the bindings of live series into
    `Listing.live`.
    """
    every = choices(rule, bound, labels, kinds)
    return {resource: tuple(each) for resource, each in every.items() if len(each) > 1}


def choices(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, Choice]:
    """Return the resources that series with `labels` describe, each with its bindings.

    Without a namespace label among `labels`, the rule's first one is used as in the original; its
    query then finds nothing. External rules have bindings of the namespace alone, under NAMESPACES.
    """
    carried = bound.associations(labels)
    namespaces = carried.get(NAMESPACES) or bound.labels(NAMESPACES)[:1]
    if rule.section == "externalRules":
        return {NAMESPACES: Choice(("",), namespaces if selects_namespace(rule) else ())}
    return {
        resource: Choice(
            names, namespaces if kinds.resolve(resource.resource, resource.group).namespaced else ()
        )
        for resource, names in carried.items()
    }


class Choice(Collection[LabelBinding]):
    """The bindings for each pair of a resource label and a namespace label, in their order.

    They are built when they are read: 500 labels of each make 250 000 bindings.
    """

    def __init__(self, resources: Iterable[str], namespaces: Iterable[str]) -> None:
        self._resources = tuple(resources)
        self._namespaces = tuple(namespaces) or ("",)

    @property
    def preferred(self) -> LabelBinding:
        """The first binding."""
        return self._binding(0, 0)

    def __len__(self) -> int:
        return len(self._resources) * len(self._namespaces)

    def __iter__(self) -> Iterator[LabelBinding]:
        """Yield the bindings, the preferred one first."""
        for i in range(len(self._resources)):
            for j in range(len(self._namespaces)):
                yield self._binding(i, j)

    def __contains__(self, binding: object) -> bool:
        return any(each == binding for each in self)

    def _binding(self, i: int, j: int) -> LabelBinding:
        return LabelBinding(
            resource=self._resources[i],
            namespace=self._namespaces[j],
            absent=self._resources[:i] + self._namespaces[:j],
        )


def selects_namespace(rule: CompiledRule) -> bool:
    """Return whether a request's namespace selects series; false under `namespaced: false`."""
    return rule.config.resources.namespaced is not False
