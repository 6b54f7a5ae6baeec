"""Plans of metrics.k8s.io: the queries of `resourceRules`, and the usage that they return.

Pure. The queries are rendered by `rules.query.plan` like those of other rules; the group
`adapter.server.api.groups.resource` makes documents of the usage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules import naming
from rules.document import config
from rules.document.where import Where
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.query import aggregate
from rules.query.aggregate import Point, SamplesByObject
from rules.query.catalog import Source, Step
from rules.query.label_binding import LabelBinding
from rules.query.plan import Plan
from rules.ruleset import CompiledResourceRule, CompiledResourceRules, CompiledRule, content_of
from rules.selectors.selectors import Selector
from rules.template import Template

_EVERYTHING = Selector()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQueries:
    """The queries of `resourceRules`, and the window that they report."""

    pods: tuple[Step, Step]
    """For CPU and for memory."""
    nodes: tuple[Step, Step]
    window_ns: int

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The queries, each as a rule."""
        return tuple(step.rule for step in (*self.pods, *self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of CPU or memory by one pod or node."""

    milli: Mapping[str, int]
    """Thousandths of a core or of a byte, by container; a node has them below ""."""
    time: float
    """Unix seconds of the earliest sample."""


class UsageByName(dict[str, Usage]):
    """Usage of pods or nodes, by name.

    Those with a sample that is NaN or infinite are only in `not_finite`: if the sample counted as
    0, or its container were left out, an autoscaler could remove pods because they seem idle.
    """

    not_finite: Sequence[str] = ()


def compile(rules: CompiledResourceRules) -> ResourceQueries:  # noqa: A001 (as re.compile)
    """Return the queries of `resourceRules`, bound to their labels.

    Pods, nodes and namespaces are built-in kinds, so no cluster is needed. Plans for objects that
    no label is mapped to raise PlanError when they are rendered.
    """
    bound = {each: each.mapping.bind(Kinds.builtin()) for each in (rules.cpu, rules.memory)}

    def steps(resource: GroupResource) -> tuple[Step, Step]:
        cpu, memory = (_step(rule, mapping, resource) for rule, mapping in bound.items())
        return cpu, memory

    return ResourceQueries(pods=steps(PODS), nodes=steps(NODES), window_ns=rules.window_ns)


def plans(
    queries: ResourceQueries, resource: GroupResource, *, namespace: str, names: Sequence[str]
) -> tuple[Plan, Plan]:
    """Plan the queries for CPU and for memory of pods in `namespace`, or of nodes."""
    steps = queries.pods if resource == PODS else queries.nodes
    cpu, memory = (
        Plan(
            metric=metric,
            resource=resource,
            namespace=namespace,
            names=tuple(names),
            selector=_EVERYTHING,
            steps=(step,),
        )
        for metric, step in zip(("cpu", "memory"), steps, strict=True)
    )
    return cpu, memory


def usage(plan: Plan, samples: Sequence[SamplesByObject]) -> UsageByName:
    """Return the usage of each object of `plan` that has samples, in the order of `plan.names`.

    `samples` has those of the plan's namespace for its only step. Negative values count as 0. Of
    several samples of one container, the average counts. One value that is not finite makes the
    usage of its object incomplete.
    """
    (by_name,) = samples
    usages, not_finite = UsageByName(), []
    for name in plan.names:
        points = by_name.of(name)
        if not all(math.isfinite(number) for number, _, _ in points):
            not_finite.append(name)
        elif points:
            usages[name] = _usage(points)
    usages.not_finite = not_finite
    return usages


def _usage(points: Sequence[Point]) -> Usage:
    numbers: dict[str, list[float]] = {}
    for number, _, container in points:
        numbers.setdefault(container, []).append(number)
    return Usage(
        milli={each: max(0, aggregate.average(those)) for each, those in numbers.items()},
        time=min(time for _, time, _ in points),
    )


def _step(rule: CompiledResourceRule, bound: BoundMapping, resource: GroupResource) -> Step:
    """Return the query for `resource`. Like the original, it uses the first label for each kind."""
    if resource == PODS:
        key, query, container = "containerQuery", rule.container_query, rule.config.container_label
        namespace = _first(bound, NAMESPACES)
    else:
        key, query, container, namespace = "nodeQuery", rule.node_query, "", ""
    binding = LabelBinding(
        resource=_first(bound, resource), namespace=namespace, container=container
    )
    source = Source(rule=_rule(rule, key, query), series="", bindings=(binding,))
    return Step(source=source, binding=binding)


def _first(bound: BoundMapping, resource: GroupResource) -> str:
    return next(iter(bound.labels(resource)), "")


def _rule(rule: CompiledResourceRule, key: str, query: Template) -> CompiledRule:
    """Return one query of `resourceRules` as a rule, so that it is evaluated like one."""
    where = rule.config.where
    node = where.nodes.get(key, where.nodes[""])
    return CompiledRule(
        index=-1,
        section="resourceRules",
        config=config.Rule(
            series_query="",
            resources=rule.config.resources,
            metrics_query=query.source,
            on_nan="keep",
            where=Where(file=where.file, path=f"{where.path}.{key}", nodes={"": node}),
        ),
        content=content_of(f"{where.path}.{key}", rule.config),
        namer=naming.compile("", ""),
        mapping=rule.mapping,
        query=query,
    )
