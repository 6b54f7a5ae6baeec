"""From a request to PromQL: a `Plan` is what to ask, as plain data, and nothing has been asked yet.

Queries are only ever made by rendering a rule's template, so a query's text is the original's, save
where that is no PromQL or means something else: object names are escaped in regular expressions,
and label names that are not classic ones are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rules import promql
from rules.errors import PlanError, TemplateExecError
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource
from rules.mapping import BoundMapping
from rules.query.catalog import Entry, ExternalEntry, place
from rules.query.label_binding import LabelBinding
from rules.ruleset import CompiledResourceRule, CompiledRule
from rules.selectors.selectors import Requirement, Selector
from rules.template import Template

_METACHARACTER = re.compile(r"[\\.+*?()|\[\]{}^$]")
_UNQUOTABLE = re.compile(r"""["'`\\\x00-\x1f]""")
_OPERATORS = {
    "=": ("=", "=~"),
    "==": ("=", "=~"),
    "in": ("=~", "=~"),
    "!=": ("!=", "!~"),
    "notin": ("!~", "!~"),
}
"""Of a requirement with one value, and with several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One query of a plan."""

    rule: CompiledRule
    series: str
    binding: LabelBinding
    """Whose `resource` label names the objects in the answer."""
    promql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask for one metric of some objects of one resource."""

    metric: str
    resource: GroupResource
    namespace: str
    """Empty for root-scoped resources, whatever was asked."""
    names: tuple[str, ...]
    """Of the objects, in the order in which they were given."""
    selector: Selector
    """The request's metric selector."""
    steps: tuple[Step, ...]
    """Where several answer for one object, the earlier wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlan:
    """What to ask for one external metric."""

    metric: str
    namespace: str
    selector: Selector
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuery:
    """One query of metrics.k8s.io."""

    promql: str
    group_by: tuple[str, ...]
    """The labels that tell the answer's rows apart: the pod's and, unless empty, the container's;
    or the node's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matcher:
    label: str
    operator: str
    values: tuple[str, ...]
    escaped: bool = False

    def __str__(self) -> str:
        values = map(escape, self.values) if self.escaped else self.values
        return promql.matcher(self.label, self.operator, "|".join(values))


def custom(entry: Entry, *, namespace: str, names: Sequence[str], selector: Selector) -> Plan:
    """The plan for `entry` of the objects called `names` in `namespace`.

    Raises PlanError where the rule maps no label to namespaces, where the selector cannot be put as
    matchers, and where the template fails or renders nothing.
    """
    space = namespace if entry.namespaced else ""
    steps = tuple(
        Step(
            rule=source.rule,
            series=source.series,
            binding=binding,
            promql=render(
                source.rule,
                source.series,
                binding,
                namespace=space,
                names=names,
                selector=selector,
            ),
        )
        for source in entry.sources
        for binding in source.bindings
    )
    return Plan(
        metric=entry.metric,
        resource=entry.resource,
        namespace=space,
        names=tuple(names),
        selector=selector,
        steps=steps,
    )


def external(entry: ExternalEntry, *, namespace: str, selector: Selector) -> ExternalPlan:
    """The plan for an external metric in `namespace`, which may be any text, `*` included.

    Raises PlanError as `custom` does.
    """
    source = entry.source
    (binding,) = source.bindings
    text = render(
        source.rule,
        source.series,
        binding,
        namespace=namespace if entry.namespaced else "",
        names=(),
        selector=selector,
    )
    step = Step(rule=source.rule, series=source.series, binding=binding, promql=text)
    return ExternalPlan(metric=entry.metric, namespace=namespace, selector=selector, step=step)


def container(
    rule: CompiledResourceRule, bound: BoundMapping, *, namespace: str, names: Sequence[str]
) -> ResourceQuery:
    """The `containerQuery` for pods of one namespace; `bound` is the rule's mapping, bound.

    Raises PlanError as `custom` does, and where no label stands for pods.
    """
    pod = _first_label(bound, PODS)
    matchers = (
        _Matcher(label=_first_label(bound, NAMESPACES), operator="=", values=(namespace,)),
        _objects(pod, names),
    )
    group_by = tuple(label for label in (pod, rule.config.container_label) if label)
    where = f"{rule.config.where.path}.containerQuery"
    text = _rendered(rule.container_query, where, "", matchers, group_by)
    return ResourceQuery(promql=text, group_by=group_by)


def node(rule: CompiledResourceRule, bound: BoundMapping, *, names: Sequence[str]) -> ResourceQuery:
    """The `nodeQuery`. Raises PlanError as `container` does."""
    label = _first_label(bound, NODES)
    where = f"{rule.config.where.path}.nodeQuery"
    text = _rendered(rule.node_query, where, "", (_objects(label, names),), (label,))
    return ResourceQuery(promql=text, group_by=(label,))


def render(
    rule: CompiledRule,
    series: str,
    binding: LabelBinding,
    *,
    namespace: str,
    names: Sequence[str],
    selector: Selector,
) -> str:
    """The rule's query for `series`. Raises PlanError.

    An empty `namespace` puts no matcher on it; a labelling without a resource (an external metric)
    puts none on names and leaves `GroupBy` empty.
    """
    where = place(rule)
    matchers = [_Matcher(label=label, operator="=", values=("",)) for label in binding.absent]
    matchers += map(_required, selector.requirements)
    if namespace:
        if not binding.namespace:
            raise PlanError(
                f"{where}: no label stands for namespaces, so series of {namespace!r} cannot be "
                "told from others: add an override for `namespace` to `resources`"
            )
        matchers.append(_Matcher(label=binding.namespace, operator="=", values=(namespace,)))
    if rule.section == "rules":
        matchers.append(_objects(binding.resource, names))
        return _rendered(rule.query, where, series, matchers, (binding.resource,))
    return _rendered(rule.query, where, series, matchers, ())


def escape(name: str) -> str:
    """A regular expression of RE2 that matches `name` alone."""
    return _METACHARACTER.sub(r"\\\g<0>", name)


def _required(requirement: Requirement) -> _Matcher:
    key, operator, values = requirement.key, requirement.operator, tuple(requirement.values)
    if operator == "exists":
        return _Matcher(label=key, operator="!=", values=("",))
    if operator == "!":
        return _Matcher(label=key, operator="=", values=("",))
    if operator not in _OPERATORS:
        sign = {"gt": ">", "lt": "<"}.get(operator, operator)
        raise PlanError(
            f"the metric selector's `{key}{sign}{','.join(values)}` cannot be asked: matchers of "
            "Prometheus do not compare numbers; use =, !=, in, notin, or the key alone"
        )
    return _Matcher(label=key, operator=_OPERATORS[operator][len(values) > 1], values=values)


def _objects(label: str, names: Sequence[str]) -> _Matcher:
    several = len(names) > 1
    return _Matcher(
        label=label, operator="=~" if several else "=", values=tuple(names), escaped=several
    )


def _check_quotable(matchers: Iterable[_Matcher], where: str) -> None:
    """A template puts such values between quotation marks of its own, and whoever asks names them.

    Else `x"} or secret{pod="y` would ask for what its author may not read.
    """
    for matcher in matchers:
        for value in matcher.values:
            if _UNQUOTABLE.search(value):
                raise PlanError(
                    f"{where}: {value!r} has a character that may end a string of PromQL, and the "
                    "template uses <<.LabelValuesByName>>; <<.LabelMatchers>> has it escaped"
                )


def _first_label(bound: BoundMapping, resource: GroupResource) -> str:
    labels = bound.labels(resource)
    if not labels:
        raise PlanError(
            f"no label stands for {resource}: add an override for it, or a template, to `resources`"
        )
    return labels[0]


def _rendered(
    query: Template,
    where: str,
    series: str,
    matchers: Iterable[_Matcher],
    group_by: tuple[str, ...],
) -> str:
    matchers = tuple(matchers)
    if "LabelValuesByName" in query.source:
        _check_quotable(matchers, where)
    data: dict[str, object] = {
        "Series": series,
        "LabelMatchers": ",".join(map(str, matchers)),
        "LabelValuesByName": {matcher.label: "|".join(matcher.values) for matcher in matchers},
        "GroupBy": ",".join(map(promql.label, group_by)),
        "GroupBySlice": group_by,
    }
    try:
        text = query.render(data)
    except TemplateExecError as error:
        raise PlanError(f"{where}: the query's template cannot be rendered: {error}") from error
    if not text:
        raise PlanError(f"{where}: the query's template renders nothing for this request")
    if not promql.is_text(text):
        raise PlanError(f"{where}: the query's template renders what is no UTF-8: {text!r}")
    return text
