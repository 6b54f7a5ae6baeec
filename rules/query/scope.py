"""Scope of sharing: which objects one rendering of a rule's query may cover.

`rules.query.plan` renders the queries; this module decides how much one of them may select.
`pointwise` has the proof.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from rules import promql
from rules.errors import PlanError
from rules.query import clauses, plan, pointwise
from rules.query.catalog import Step
from rules.query.clauses import MARK, NotPointwise, Wanted
from rules.query.plan import SelectedObjects
from rules.selectors.selectors import Selector
from rules.template import Template

_NAMESPACE, _NAME = "scope-any-namespace", "scope-any-object"
"""Namespace and name in the rendering that is analysed; no query contains them otherwise."""


class Scope(enum.StrEnum):
    """Objects that one query can cover with the same answer as a query for each set of them."""

    CLUSTER = "cluster"
    """Any objects of any namespaces; objects without a namespace: any.

    The query is rendered with `by_namespace`, and the label of the namespace tells which object a
    sample belongs to, together with the label of the resource.
    """
    NAMESPACE = "namespace"
    """Any objects of one namespace. As in a query for one request, samples belong to the object
    that the label of the resource names, whatever their namespace."""
    ALONE = "alone"
    """Only the objects of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Scope of a query, and what prevents a wider one."""

    scope: Scope
    obstacle: str = ""
    """The construct that prevents a wider scope, and why; empty for CLUSTER."""
    position: int | None = None
    """Of the construct in the template's source, in characters; None if it has none."""
    advice: str = ""
    """How to write the query instead, if there is a way."""


def sharing(step: Step) -> Sharing:
    """Return how far the query of a step can be shared; takes about 1 ms.

    Where promql-parser refuses the query, that is the obstacle.
    """
    rule = step.rule
    if rule.section == "externalRules":
        reason = "the answer for an external metric is the whole result of one query"
        return Sharing(scope=Scope.ALONE, obstacle=reason)
    try:
        _prove_names(step)
    except NotPointwise as refusal:
        return _refused(Scope.ALONE, refusal, rule.query)
    if rule.team is not None:
        reason = f"the rule is confined to namespace {rule.team.namespace}"
        return Sharing(scope=Scope.NAMESPACE, obstacle=reason)
    if step.binding.namespace:
        try:
            _prove_namespaces(step)
        except NotPointwise as refusal:
            return _refused(Scope.NAMESPACE, refusal, rule.query)
    return Sharing(scope=Scope.CLUSTER)


def _prove_names(step: Step) -> None:
    """Prove that one query can cover several objects of one namespace, or without a namespace."""
    resource, namespace = step.binding.resource, step.binding.namespace
    clauses.reads_nothing_of_names(step.rule.query, namespace)
    objects = SelectedObjects(namespaces=(_NAMESPACE,) if namespace else (), names=(_NAME,))
    wanted = Wanted(resource=resource, namespace="", matchers=frozenset({(resource, _NAME)}))
    _prove(step, objects, wanted)


def _prove_namespaces(step: Step) -> None:
    """Prove that one query can cover objects of several namespaces."""
    resource, namespace = step.binding.resource, step.binding.namespace
    clauses.reads_nothing_of_objects(step.rule.query)
    objects = SelectedObjects(namespaces=(_NAMESPACE,), names=(_NAME,))
    matchers = frozenset({(MARK, _NAMESPACE), (resource, _NAME)})
    wanted = Wanted(resource=resource, namespace=namespace, matchers=matchers)
    _prove(replace(step, binding=replace(step.binding, namespace=MARK)), objects, wanted)


def _prove(step: Step, objects: SelectedObjects, wanted: Wanted) -> None:
    """Prove that the query for `objects` is pointwise. Raises NotPointwise."""
    by_namespace = step.binding.namespace == MARK
    try:
        query = plan.render(step, objects, Selector(), by_namespace=by_namespace)
        code = promql.without_comments(query)
        tree = promql.parse(code)
        if by_namespace:
            single = plan.render(step, objects, Selector())
            clauses.renders_alike(code, promql.without_comments(single))
        pointwise.prove(code, tree, wanted, namespace=_NAMESPACE)
    except PlanError as error:
        raise NotPointwise("", f"it cannot be analysed: {error}", "") from error


def _refused(scope: Scope, refusal: NotPointwise, query: Template) -> Sharing:
    position = refusal.offset
    if position is None and refusal.place is not None:
        position = promql.keyword_offset(query.text_only(), refusal.keywords, refusal.place)
    return Sharing(scope=scope, obstacle=str(refusal), position=position, advice=refusal.advice)
