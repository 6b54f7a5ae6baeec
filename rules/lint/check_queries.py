"""What will surprise in the queries of a rule set: each template is rendered and looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import promql_parser

from rules import promql
from rules.document.config import Where
from rules.errors import PlanError, Problem, TemplateExecError
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.ruleset import QUERY_FIELDS, CompiledResourceRules, CompiledRule
from rules.template import Template

_EQUAL_TO_SEVERAL = re.compile(r"""!?=\s*["']<<-?\s*index\s+\.LabelValuesByName\b""")


def rule(compiled: CompiledRule, bound: BoundMapping, kinds: Kinds) -> Iterator[Problem]:
    """Warnings about `metricsQuery`."""
    where, query = compiled.config.where, compiled.query
    if not query.source:
        return  # reading the file has said so
    labels = _resource_labels(compiled, bound, kinds)
    refusal = _refusal(query, list(_rendered(compiled, bound, labels)))
    if refusal:
        yield where.problem("warning", "metricsQuery", refusal)
    if not _uses(query, "LabelMatchers"):
        yield where.problem("warning", "metricsQuery", _unmatched(compiled))
    if compiled.section == "externalRules" and _is_average(compiled, bound):
        yield where.problem(
            "warning",
            "metricsQuery",
            "averages everything into one number, which an autoscaler compares as it is only if "
            "its target is of type Value: AverageValue divides it by the number of replicas, so "
            "that an average of percentages hardly ever asks for more than two; use Value there, "
            "or sum here",
        )
    if compiled.section == "rules" and not _uses(query, "GroupBy", "GroupBySlice"):
        words = set(re.findall(r"\w+", query.source))
        missing = [label for label in labels if label not in words]
        if missing and _aggregates(compiled, bound, labels):
            yield where.problem(
                "warning",
                "metricsQuery",
                f"aggregates without <<.GroupBy>> and so drops the label {', '.join(missing)}: its "
                "samples belong to no object, of which one alone is answered with 404 and * with "
                "an empty list; aggregate by (<<.GroupBy>>)",
            )
    if match := _EQUAL_TO_SEVERAL.search(query.source):
        yield where.problem(
            "warning",
            "metricsQuery",
            "compares a label with = to <<index .LabelValuesByName ...>>, which holds the values "
            "of several objects joined by |: asked for several it finds nothing; use =~",
            offset=match.start(),
        )


def resource_rules(compiled: CompiledResourceRules, kinds: Kinds) -> Iterator[Problem]:
    """Warnings about the queries of `resourceRules`."""
    for each in (compiled.cpu, compiled.memory):
        where, bound = each.config.where, each.mapping.bind(kinds)
        for path, query, needed in (
            ("containerQuery", each.container_query, (PODS, NAMESPACES)),
            ("nodeQuery", each.node_query, (NODES,)),
        ):
            if query.source:
                yield from _resource_query(where, path, query, bound, needed)


def _resource_query(
    where: Where, path: str, query: Template, bound: BoundMapping, needed: Sequence[GroupResource]
) -> Iterator[Problem]:
    unlabelled = [str(each) for each in needed if not bound.labels(each)]
    if unlabelled:
        yield where.problem(
            "warning",
            "resources",
            f"no label stands for {' and '.join(unlabelled)}, which {path} needs: metrics.k8s.io "
            "answers nothing from it; add overrides for them",
        )
        return
    labels = [bound.labels(each)[0] for each in needed]
    if refusal := _refusal(query, [_render(query, "", labels, labels[:1], several=True)]):
        yield where.problem("warning", path, refusal)
    for field, consequence in (
        ("GroupBy", "its samples belong to no object and metrics.k8s.io answers nothing from it"),
        ("LabelMatchers", "every request reads the samples of the whole cluster"),
    ):
        if not _uses(query, field):
            message = f"does not use <<.{field}>>, so {consequence}"
            yield where.problem("warning", path, message)


def _uses(query: Template, *fields: str) -> bool:
    rest = {name: type_ for name, type_ in QUERY_FIELDS.items() if name not in fields}
    return bool(query.unknown_fields(rest))


def _unmatched(compiled: CompiledRule) -> str:
    selective = _uses(compiled.query, "LabelValuesByName")
    if selective:
        return (
            "does not use <<.LabelMatchers>>: the metric selector of a request has no effect, and "
            "its other conditions only as far as this template spells them out"
        )
    if compiled.section == "externalRules":
        return (
            "does not use <<.LabelMatchers>>: neither the namespace nor the selector of a request "
            "has an effect, and every namespace is answered with the same series"
        )
    return (
        "does not use <<.LabelMatchers>>: an object of the same name in another namespace gets the "
        "value too, and the metric selector of a request has no effect; write "
        "<<.Series>>{<<.LabelMatchers>>}"
    )


def _resource_labels(compiled: CompiledRule, bound: BoundMapping, kinds: Kinds) -> list[str]:
    """The labels that the rule's queries may be grouped by."""
    if compiled.section == "externalRules":
        return []
    overrides = [each.label for each in compiled.config.resources.overrides]
    if not compiled.config.resources.template:
        return overrides
    rendered = [label for each in (PODS, NAMESPACES) for label in bound.labels(each)]
    return list(dict.fromkeys([*overrides, *rendered])) or [kinds.resolve("pods").singular]


def _rendered(
    compiled: CompiledRule, bound: BoundMapping, labels: Sequence[str]
) -> Iterator[str | None]:
    """Queries such as requests lead to: each label, for one object and for several."""
    series = promql.pinned_name(compiled.config.series_query) or "series"
    space = list(bound.labels(NAMESPACES)[:1])
    for label in labels or [""]:
        matched = [*space, *([label] if label and label not in space else [])]
        for several in (False, True):
            yield _render(
                compiled.query, series, matched, [label] if label else [], several=several
            )


def _render(
    query: Template, series: str, labels: Sequence[str], group_by: Sequence[str], *, several: bool
) -> str | None:
    operator, value = ("=~", "a|b") if several else ("=", "a")
    try:
        return query.render(
            {
                "Series": series,
                "LabelMatchers": ",".join(promql.matcher(each, operator, value) for each in labels),
                "LabelValuesByName": dict.fromkeys(labels, value),
                "GroupBy": ",".join(map(promql.label, group_by)),
                "GroupBySlice": tuple(group_by),
            }
        )
    except TemplateExecError:
        return None


def _refusal(query: Template, queries: Sequence[str | None]) -> str:
    """Why none of the renderings can be asked; empty if one can."""
    texts = [text for text in queries if text]
    if not texts:
        failed = "fails to render" if None in queries else "renders nothing"
        return f"{failed} for every kind of request: all of them end in an error"
    reasons = [promql.problem_of(text) for text in texts]
    if None in reasons:
        return ""
    shown = f"; rendered it is {texts[0].strip()}" if texts[0] != query.source else ""
    return (
        f"is not PromQL as far as can be told ({reasons[0]}){shown}: if Prometheus refuses it, "
        "too, every request for the rule's metrics is answered with an error"
    )


def _aggregates(compiled: CompiledRule, bound: BoundMapping, labels: Sequence[str]) -> bool:
    """Whether a rendering drops labels by aggregation, as far as can be told."""
    found: list[promql_parser.Expr] = []

    def visit(expression: promql_parser.Expr) -> None:
        if isinstance(expression, promql_parser.AggregateExpr):
            found.append(expression)

    for text in _rendered(compiled, bound, labels):
        try:
            promql_parser.walk(promql.parse(text or ""), visit)
        except PlanError:
            continue
    return bool(found)


def _is_average(compiled: CompiledRule, bound: BoundMapping) -> bool:
    """Whether a rendering is the average of everything that it selects."""
    for text in _rendered(compiled, bound, ()):
        try:
            expression = promql.parse(text or "")
        except PlanError:
            continue
        while isinstance(expression, promql_parser.ParenExpr):
            expression = expression.expr
        if isinstance(expression, promql_parser.AggregateExpr):
            return str(expression.op) == "avg" and expression.modifier is None
    return False
