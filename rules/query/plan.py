"""Plans: what is queried to answer one request, as plain data, and the PromQL of it.

`catalog` has the rules, series and labels of a metric; `adapter.server.evaluation` evaluates plans.
A plan is rendered only when it is queried: most are answered from an evaluation that another
request started.

Queries are rendered from the rules' templates. Their text is the original's, except where that
would be invalid or match other objects: several names are escaped for a regular expression, and
label names that are not classic ones are quoted.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rules import promql, syntax
from rules.errors import PlanError, TemplateExecError
from rules.kinds import GroupResource
from rules.query import confined
from rules.query.catalog import Entry, ExternalEntry, Step
from rules.query.label_binding import LabelBinding
from rules.ruleset import CompiledRule, Team
from rules.selectors.selectors import Requirement, Selector

MAX_LENGTH = 7168
"""Length in a URL up to which a query matches names; above, they are omitted if its rule permits.

Proxies accept request lines of 8 KiB, which contain the path and other parameters, too.
VictoriaMetrics accepts queries of 16 KiB, also by POST."""

_METACHARACTER = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ENDS_STRING = re.compile(r"""["'`\\\x00-\x1f]""")
_OPERATORS = {
    "=": ("=", "=~"),
    "==": ("=", "=~"),
    "in": ("=~", "=~"),
    "!=": ("!=", "!~"),
    "notin": ("!~", "!~"),
}
"""Operator of a selector -> operator of the matcher for one value, and for several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedObjects:
    """Objects whose series a query selects."""

    namespaces: tuple[str, ...] | None
    """None for every namespace; empty if the objects live in no namespace."""
    names: tuple[str, ...] | None
    """None for every object."""
    pattern: str = ""
    """Regular expression of the names, if `names` is None; empty for every object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQueries:
    """Queries of one step, to be evaluated at the same time."""

    values: str
    recent: str | None
    """Its samples name the objects whose series have a sample within `maxSampleAge`; others are
    missing. None if their age does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Queries for one metric of some objects of one resource.

    The metric is one of custom.metrics.k8s.io, or cpu or memory of metrics.k8s.io.
    """

    metric: str
    resource: GroupResource
    namespace: str
    """Empty for root-scoped resources, whatever the request says."""
    names: tuple[str, ...]
    """Names of the objects, in the order of the request."""
    selector: Selector
    """The metric label selector of the request."""
    steps: tuple[Step, ...]
    """If several have a value for one object, the earliest wins."""

    def queries(self) -> tuple[StepQueries, ...]:
        """Render the queries of each step for the objects of this plan alone.

        Raises PlanError if the rule maps no label to namespaces, if matchers cannot express the
        selector, and if the template fails or renders to nothing.
        """
        namespaces = (self.namespace,) if self.namespace else ()
        objects = SelectedObjects(namespaces=namespaces, names=self.names)
        return tuple(queries(step, objects, self.selector) for step in self.steps)

    def promql(self) -> tuple[str, ...]:
        """Render the query for the values of each step. Raises PlanError as `queries` does."""
        return tuple(each.values for each in self.queries())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlan:
    """The query for one external metric (external.metrics.k8s.io)."""

    metric: str
    namespace: str
    """As in the request; it may be any text, also `*`."""
    namespaced: bool
    """Whether the namespace selects series."""
    selector: Selector
    step: Step

    def promql(self) -> str:
        """Render the query. Raises PlanError as `Plan.queries` does."""
        objects = SelectedObjects(
            namespaces=(self.namespace,) if self.namespaced else (), names=None
        )
        return render(self.step, objects, self.selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matcher:
    label: str
    operator: str
    values: tuple[str, ...]
    literal: bool = False
    """Whether the values are names, to be escaped in a regular expression."""

    def __str__(self) -> str:
        values = map(escape, self.values) if self.literal else self.values
        return promql.matcher(self.label, self.operator, "|".join(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The text of a query before it is confined."""

    text: str
    of_request: tuple[str, ...]
    """Texts that the request chose, which may stand in several places."""

    def own_size(self) -> int:
        """Return the number of characters without those that the request chose."""
        text = self.text
        for each in self.of_request:
            text = text.replace(each, "")
        return len(text)


def custom(entry: Entry, *, namespace: str, names: Sequence[str], selector: Selector) -> Plan:
    """Plan the queries for a metric of the objects called `names` in `namespace`."""
    return Plan(
        metric=entry.metric,
        resource=entry.resource,
        namespace=namespace if entry.namespaced else "",
        names=tuple(names),
        selector=selector,
        steps=entry.steps,
    )


def external(entry: ExternalEntry, *, namespace: str, selector: Selector) -> ExternalPlan:
    """Plan the query for an external metric."""
    return ExternalPlan(
        metric=entry.metric,
        namespace=namespace,
        namespaced=entry.namespaced and bool(namespace),
        selector=selector,
        step=entry.step,
    )


def escape(name: str) -> str:
    """Return an RE2 regular expression that matches only `name`."""
    return _METACHARACTER.sub(r"\\\g<0>", name)


def queries(
    step: Step, objects: SelectedObjects, selector: Selector, *, by_namespace: bool = False
) -> StepQueries:
    """Render the queries of one step for `objects`; see `render`."""
    return StepQueries(
        values=render(step, objects, selector, by_namespace=by_namespace),
        recent=_recent(step, objects, selector, by_namespace=by_namespace),
    )


def longest(queries: Iterable[StepQueries]) -> int:
    """Return the length that the longest of the queries has in a URL."""
    texts = (text for each in queries for text in (each.values, each.recent) if text)
    return max(len(urllib.parse.quote(text)) for text in texts)


def render(
    step: Step, objects: SelectedObjects, selector: Selector, *, by_namespace: bool = False
) -> str:
    """Render the query of one step for `objects`.

    With `by_namespace` the result has the namespace of each object: its label joins `GroupBy`.
    The query of a team's rule is confined to its namespace as the last step, so that neither the
    template nor values of the request can widen it. Raises PlanError as `Plan.queries` does.
    """
    text = unconfined(step, objects, selector, by_namespace=by_namespace)
    return _confined(text, step.source.rule)


def unconfined(
    step: Step, objects: SelectedObjects, selector: Selector, *, by_namespace: bool = False
) -> Rendered:
    """Render a query as `render` does, without the last step for rules of teams."""
    binding, rule = step.binding, step.source.rule
    where = str(rule.config.where)
    matchers = _matchers(step, objects, selector)
    external = rule.section == "externalRules"
    group_by = () if external else _group_by(binding, by_namespace=by_namespace)
    if "LabelValuesByName" in rule.query.source:
        _check_values(matchers, where)
    of_request = ",".join(map(str, matchers))
    values = {matcher.label: "|".join(matcher.values) for matcher in matchers}
    data: dict[str, object] = {
        "Series": step.source.series,
        "LabelMatchers": of_request,
        "LabelValuesByName": values,
        "GroupBy": ",".join(map(promql.label, group_by)),
        "GroupBySlice": group_by,
    }
    try:
        text = rule.query.render(data)
    except TemplateExecError as error:
        raise PlanError(f"{where}: cannot render the query template: {error}") from error
    if not text:
        raise PlanError(f"{where}: the query template renders to nothing for this request")
    names = values.get(binding.resource, "")
    return Rendered(text=text, of_request=tuple(filter(None, (of_request, names))))


def confine(query: Rendered, team: Team) -> str:
    """Return the query of a team's rule, confined to its namespace. Raises PlanError."""
    size, limits = len(query.text), team.limits
    if size > limits.team_query and (size := query.own_size()) > limits.team_query:
        raise PlanError(f"the query {limits.exceeded('team_query', size)}")
    tree = promql.parse(query.text)
    if (depth := syntax.depth(tree)) > limits.team_query_depth:
        raise PlanError(f"the query {limits.exceeded('team_query_depth', depth)}")
    return confined.confine(tree, team.label, team.namespace)


def _recent(
    step: Step, objects: SelectedObjects, selector: Selector, *, by_namespace: bool
) -> str | None:
    """Render the query for the objects that are not too old. It is pointwise in the object.

    A range finds samples of any age. An instant query with timestamp() would find only those
    within the lookback of Prometheus, and none of a series that has just ended.
    """
    rule = step.source.rule
    seconds = rule.config.max_sample_age
    if seconds is None:
        return None
    name = promql.matcher("__name__", "=", step.source.series)
    matchers = ",".join([name, *map(str, _matchers(step, objects, selector))])
    labels = ",".join(map(promql.label, _group_by(step.binding, by_namespace=by_namespace)))
    age = f"{seconds:.0f}s" if seconds.is_integer() else f"{seconds * 1000:.0f}ms"
    text = f"group by ({labels}) (last_over_time({{{matchers}}}[{age}]))"
    return _confined(Rendered(text=text, of_request=(matchers,)), rule)


def _confined(query: Rendered, rule: CompiledRule) -> str:
    if rule.team is None:
        return query.text
    try:
        return confine(query, rule.team)
    except PlanError as error:
        raise PlanError(f"{rule.config.where}: {error}") from error


def _group_by(binding: LabelBinding, *, by_namespace: bool) -> tuple[str, ...]:
    labels = (binding.resource, binding.container, binding.namespace if by_namespace else "")
    return tuple(filter(None, labels))


def _matchers(step: Step, objects: SelectedObjects, selector: Selector) -> list[_Matcher]:
    """Return the matchers of `objects` and of the metric selector."""
    binding, rule = step.binding, step.source.rule
    where = str(rule.config.where)
    matchers = [_Matcher(label=label, operator="=", values=("",)) for label in binding.absent]
    matchers += map(_required, selector.requirements)
    if objects.namespaces != ():
        if not binding.namespace:
            raise PlanError(
                f"{where}: no label is mapped to namespaces, so series cannot be selected by "
                "namespace: add an override for `namespace` to `resources`"
            )
        matchers.append(_objects(binding.namespace, objects.namespaces))
    if rule.section != "externalRules":
        if not binding.resource:
            raise PlanError(
                f"{where}: no label is mapped to the objects: add an override for pods or nodes, "
                "or a template, to `resources`"
            )
        matchers.append(_objects(binding.resource, objects.names, objects.pattern))
    return matchers


def _required(requirement: Requirement) -> _Matcher:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator == "exists":
        return _Matcher(label=key, operator="!=", values=("",))
    if operator == "!":
        return _Matcher(label=key, operator="=", values=("",))
    if operator not in _OPERATORS:
        raise PlanError(
            f"the metric selector `{requirement}` cannot be a matcher, because Prometheus does "
            "not compare label values as numbers: use =, !=, in, notin, or the key alone"
        )
    return _Matcher(label=key, operator=_OPERATORS[operator][len(values) > 1], values=values)


def _objects(label: str, names: Sequence[str] | None, pattern: str = "") -> _Matcher:
    """Return the matcher of these names; None for all that match, or that have the label."""
    if pattern:
        return _Matcher(label=label, operator="=~", values=(pattern,))
    if names is None:
        return _Matcher(label=label, operator="!=", values=("",))
    several = len(names) > 1
    return _Matcher(
        label=label, operator="=~" if several else "=", values=tuple(names), literal=several
    )


def _check_values(matchers: Iterable[_Matcher], where: str) -> None:
    r"""Refuse values that could end a PromQL string of a template that does its own quoting.

    Clients choose them: `x"} or secret{pod="y` would read series that the rule does not select.
    """
    for matcher in matchers:
        for value in matcher.values:
            if _ENDS_STRING.search(value):
                raise PlanError(
                    f"{where}: {value!r} could end a PromQL string, and the query template does "
                    "not escape <<.LabelValuesByName>>: use <<.LabelMatchers>>"
                )
