"""Warnings about query templates: each one is rendered for typical requests and parsed.

`promql-parser` rejects some queries that Prometheus accepts, so nothing here is an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from rules import patterns, promql
from rules.causes import wording
from rules.document.found import HpaTarget
from rules.document.where import Where
from rules.errors import MAX_PROBLEMS, PatternError, PlanError, TemplateExecError, TooComplexError
from rules.exporters import generations, metric_types
from rules.findings import Finding
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.lint import means
from rules.mapping import BoundMapping
from rules.query import delay, nature
from rules.query.clauses import CHOOSES_SAMPLES
from rules.ruleset import CompiledResourceRules, CompiledRule, uses
from rules.syntax import Aggregation, Expression, VectorSelector, bare, every
from rules.template import Template

_EQUALS_LABEL_VALUES = re.compile(
    r"""!?=\s*["'`]<<-?\s*index\s+\.LabelValuesByName\s+["`](?P<label>[^"`]*)["`]"""
)
_OBJECTS = ("a", "a|b")
"""Values of the labels in a rendering: one object, and several."""
_CLUSTER_SCOPED = frozenset((NAMESPACES, NODES, GroupResource("", "persistentvolumes")))
_WITHOUT = re.compile(r"\bwithout\s*\([^)]*\)")
"""Lists of labels that an aggregation drops."""
_MAX_LABELS = 20
"""Labels for which a rule's query is rendered and parsed; rules of practice have 9."""
_SLOW = 120.0
"""Seconds of a range that delays an HPA by a minute, on average."""
ANY_SERIES = "series"
"""Stands for the name of a series where a rule does not pin one."""
_SCALAR = frozenset(("scalar",))
_BUCKETS_OF_SERIES = re.compile(r"<<-?\s*\.Series\s*-?>>_bucket")


def check_rule(
    compiled: CompiledRule, bound: BoundMapping, targets: Sequence[HpaTarget] = ()
) -> Iterator[Finding]:
    """Yield the warnings about `metricsQuery`; `bound` is the rule's mapping.

    `targets` are those of the HPAs that request a metric of the rule, if any are known.
    """
    where, query = compiled.config.where, compiled.query
    if not query.source:
        return  # reported when the file was read
    labels = _resource_labels(compiled, bound)
    renderings = list(_renderings(compiled, bound, labels))
    expressions = list(_parsed(renderings))
    if message := _unusable(query, renderings):
        yield where.warning("metricsQuery", message)
    if not uses(query, "LabelMatchers") and (
        message := _unmatched(compiled, bound, expressions, targets)
    ):
        yield where.warning("metricsQuery", message)
    if targets and (message := _slow(expressions, targets)):
        yield where.warning("metricsQuery", message)
    external = compiled.section == "externalRules"
    if external and (message := _divided(expressions, targets)):
        yield where.warning("metricsQuery", message)
    if compiled.section == "rules" and not uses(query, "GroupBy", "GroupBySlice"):
        dropped = _dropped(compiled, bound, labels, expressions)
        if dropped:
            described = " or ".join(map(str, bound.associations(dropped)))
            yield where.warning(
                "metricsQuery",
                f"aggregates without <<.GroupBy>> and drops the label{'s' * (len(dropped) > 1)} "
                f"{' and '.join(dropped)}: no value can be assigned to {described}, and requests "
                "for them get 404 or an empty list. Aggregate by (<<.GroupBy>>)",
            )
    pods = frozenset(bound.labels(PODS))
    # An HPA requests one namespace, and one object of other kinds.
    equals = (each for each in _EQUALS_LABEL_VALUES.finditer(query.source) if each["label"] in pods)
    for match in itertools.islice(equals, MAX_PROBLEMS):
        yield where.warning(
            "metricsQuery",
            "compares with = to <<index .LabelValuesByName ...>>, which is a|b for several pods "
            "and then matches none. Use =~",
            offset=match.start(),
        )
    yield from _invalid_patterns(compiled, expressions)
    for series in _rated(expressions):
        if metric_types.is_gauge(series):
            yield where.warning("metricsQuery", metric_types.warning(series))
    of_counters = itertools.chain.from_iterable(map(metric_types.problems, expressions))
    of_means = (means.problems(each, external=external) for each in expressions)
    for message in dict.fromkeys(itertools.chain(of_counters, *of_means)):
        yield where.warning("metricsQuery", message)
    yield from _unlike_series(compiled)
    averaged = compiled.section == "rules" and compiled.config.aggregate == "avg"
    if averaged and (more := _more_groups(expressions, labels)):
        yield where.warning(
            "metricsQuery",
            f"groups also by {', '.join(more)}: an object has several samples, and its value is "
            "their mean; the original takes any of them. Leave it out, or set aggregate",
        )
    if compiled.section == "rules" and compiled.config.max_sample_age is not None:
        yield from _other_ages(compiled, expressions)


def _invalid_patterns(
    compiled: CompiledRule, expressions: Iterable[Expression]
) -> Iterator[Finding]:
    """Yield a warning for the first matcher whose regular expression Prometheus refuses."""
    of_query = [matcher for each in _selectors(expressions) for matcher in each.matchers]
    for path, matchers in (("seriesQuery", compiled.matchers), ("metricsQuery", of_query)):
        texts = dict.fromkeys(each.value for each in matchers if each.operator.endswith("~"))
        for text in itertools.islice(texts, MAX_PROBLEMS):
            try:
                patterns.check(text)
            except PatternError as error:
                message = f"{error}: Prometheus refuses every query of the rule"
                yield compiled.config.where.warning(path, message)
                break


def _unlike_series(compiled: CompiledRule) -> Iterator[Finding]:
    """Yield warnings about a pinned series that does not exist, or is not what its metric says."""
    where, series = compiled.config.where, compiled.pinned_series
    if series is None:
        return
    if _BUCKETS_OF_SERIES.search(compiled.query.source) and not series.endswith("_bucket"):
        yield where.warning(
            "seriesQuery",
            f"selects {series}, but a histogram has only series {series}_bucket, _sum and _count: "
            "the rule finds none. Select _bucket, and write <<.Series>> without it",
        )
    if series in generations.REQUESTS and "token" in compiled.config.name.as_:
        yield where.warning(
            "name.as", f"says tokens, but {series} counts requests: select the counter of tokens"
        )


def _more_groups(expressions: Iterable[Expression], labels: Sequence[str]) -> list[str]:
    """Return labels by which a query groups its result, other than those of its objects."""
    found: set[str] = set()
    for expression in map(bare, expressions):
        if (
            isinstance(expression, Aggregation)
            and expression.operator not in CHOOSES_SAMPLES
            and expression.labels is not None
            and expression.labels.listed
        ):
            found.update(expression.labels.names)
    return sorted(found.difference(labels))


def _other_ages(compiled: CompiledRule, expressions: Iterable[Expression]) -> Iterator[Finding]:
    """Yield a warning if the query reads series whose age `maxSampleAge` does not limit."""
    own = compiled.pinned_series or ANY_SERIES
    read = {each.name for each in _selectors(expressions)}
    others = sorted(read - {own, ""})
    if own not in read:
        message = (
            "counts the age of <<.Series>>, which metricsQuery does not read: values of old "
            "samples are served. Read <<.Series>>, and select it in seriesQuery"
        )
    elif others:
        message = f"counts the age of <<.Series>> only, not of {', '.join(others)}"
    else:
        return
    yield compiled.config.where.warning("maxSampleAge", message)


def rated(compiled: CompiledRule, bound: BoundMapping) -> list[str]:
    """Return the names of series of which the query computes a rate.

    ANY_SERIES stands for those of the rule, if it does not pin one.
    """
    return _rated(_parsed(_renderings(compiled, bound, _resource_labels(compiled, bound))))


def raw(compiled: CompiledRule, bound: BoundMapping) -> list[str]:
    """Return the names of series whose value the query takes as it is; ANY_SERIES as in `rated`."""
    expressions = _parsed(_renderings(compiled, bound, _resource_labels(compiled, bound)))
    return sorted({name for each in expressions for name in metric_types.raw(each) if name})


def reads_series(compiled: CompiledRule) -> bool:
    """Return whether the query depends on which series of `seriesQuery` is served."""
    return uses(compiled.query, "Series")


def check_resource_rules(compiled: CompiledResourceRules, kinds: Kinds) -> Iterator[Finding]:
    """Yield the warnings about the queries of `resourceRules`."""
    for each in (compiled.cpu, compiled.memory):
        where, bound = each.config.where, each.mapping.bind(kinds)
        for path, query, resources in (
            ("containerQuery", each.container_query, (PODS, NAMESPACES)),
            ("nodeQuery", each.node_query, (NODES,)),
        ):
            if query.source:
                yield from _resource_query(where, path, query, bound, resources)


def _resource_query(
    where: Where, path: str, query: Template, bound: BoundMapping, needed: Sequence[GroupResource]
) -> Iterator[Finding]:
    unmapped = [str(each) for each in needed if not bound.labels(each)]
    if unmapped:
        yield where.warning(
            "resources",
            f"maps no label to {' and '.join(unmapped)}, which {path} needs: metrics.k8s.io "
            "returns nothing from it. Add overrides for them",
        )
        return
    labels = [bound.labels(each)[0] for each in needed]
    if message := _unusable(query, [_render(query, "", labels, labels[:1], several=True)]):
        yield where.warning(path, message)
    for fields, consequence in (
        (
            ("GroupBy", "GroupBySlice"),
            "no sample matches an object, and metrics.k8s.io returns nothing from it",
        ),
        (
            ("LabelMatchers", "LabelValuesByName"),
            "every request reads the samples of the whole cluster",
        ),
    ):
        if not uses(query, *fields):
            yield where.warning(path, f"does not use <<.{fields[0]}>>: {consequence}")


def _unmatched(
    compiled: CompiledRule,
    bound: BoundMapping,
    expressions: Sequence[Expression],
    targets: Sequence[HpaTarget],
) -> str:
    """Return the warning about a template without `<<.LabelMatchers>>`; empty if it needs none.

    It needs none if it selects a namespace in another way, even a fixed one: the author knows.
    """
    external = compiled.section == "externalRules"
    if external and compiled.config.resources.namespaced is False:
        # A scalar is one value for everybody on purpose, as `migrate` writes it for KEDA's queries.
        # Of known HPAs, `check_hpas` warns about each selector.
        of_scalar = any(any(metric_types.calls(each, _SCALAR)) for each in expressions)
        if targets or of_scalar or not _selectors(expressions):
            return ""
        return f"does not use <<.LabelMatchers>>: the metric selector is ignored. {wording.MATCHED}"
    namespace = set(bound.labels(NAMESPACES))
    if any(
        each.label in namespace and each.value in _OBJECTS
        for one in _selectors(expressions)
        for each in one.matchers
    ):
        return ""
    if not namespace:  # every request fails, or the metrics describe no object in a namespace
        return ""
    if external:
        return (
            "does not use <<.LabelMatchers>>: the namespace and the metric selector are ignored, "
            f"and every namespace gets the same series. {wording.MATCHED}, and for values of the "
            "whole cluster set namespaced: false"
        )
    resources = bound.associations(_resource_labels(compiled, bound))
    if resources and all(each in _CLUSTER_SCOPED for each in resources):
        return ""
    return (
        "does not use <<.LabelMatchers>>: objects of the same name in other namespaces get the "
        f"same value, and the metric selector is ignored. {wording.MATCHED}"
    )


def _dropped(
    compiled: CompiledRule,
    bound: BoundMapping,
    labels: Sequence[str],
    expressions: Sequence[Expression],
) -> list[str]:
    """Return the labels of resources that an aggregation drops, and the query's text never adds.

    Namespaces do not count if another resource is named: they are mapped to select series.
    """
    words = set(re.findall(r"\w+", _WITHOUT.sub("", compiled.query.source)))
    by_resource = bound.associations(labels)
    dropped = {
        resource: carried
        for resource, carried in by_resource.items()
        if not words.intersection(carried)
        and any(all(_drops(each, label) for label in carried) for each in expressions)
    }
    if dropped.keys() == {NAMESPACES} and len(by_resource) > 1:
        return []
    return [label for label in labels if any(label in each for each in dropped.values())]


def _resource_labels(compiled: CompiledRule, bound: BoundMapping) -> list[str]:
    """Return the labels that may be the `GroupBy` of the rule's queries."""
    if compiled.section == "externalRules":
        return []
    overrides = [each.label for each in compiled.config.resources.overrides]
    if not compiled.config.resources.template:
        return overrides
    rendered = [label for each in (PODS, NAMESPACES) for label in bound.labels(each)]
    return list(dict.fromkeys([*overrides, *rendered])) or ["pod"]


def _renderings(
    compiled: CompiledRule, bound: BoundMapping, labels: Sequence[str]
) -> Iterator[str | None]:
    """Yield typical queries: by each of the first labels, for one object and for several.

    None where the template fails.
    """
    series = compiled.pinned_series or ANY_SERIES
    namespace = list(bound.labels(NAMESPACES)[:1])
    for label in labels[:_MAX_LABELS] or [""]:
        matched = [*namespace, *([label] if label and label not in namespace else [])]
        for several in (False, True):
            yield _render(
                compiled.query, series, matched, [label] if label else [], several=several
            )


def _render(
    query: Template, series: str, labels: Sequence[str], group_by: Sequence[str], *, several: bool
) -> str | None:
    """Render the query for one object `a` or for two, a and b; None if the template fails."""
    operator, value = ("=~", _OBJECTS[1]) if several else ("=", _OBJECTS[0])
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


def _unusable(query: Template, renderings: Sequence[str | None]) -> str:
    """Return why none of the renderings is a valid query; empty if one is valid."""
    texts = [text for text in renderings if text]
    if not texts:
        failed = "fails to render" if None in renderings else "renders no text"
        return f"{failed}: every request ends in an error"
    reasons = []
    for text in texts:
        try:
            promql.parse(text)
        except TooComplexError as error:
            return f"is served, but neither checked nor shared by autoscalers: {error}"
        except PlanError as error:
            reasons.append(error)
        else:
            return ""
    rendered = f"; rendered: {promql.one_line(texts[0])}" if texts[0] != query.source else ""
    return (
        f"does not look like PromQL ({reasons[0]}){rendered}. If Prometheus rejects it too, every "
        "request for the rule's metrics fails"
    )


def _parsed(renderings: Iterable[str | None]) -> Iterator[Expression]:
    """Return the syntax tree of each rendering that parses."""
    return filter(None, (promql.tree(text or "") for text in renderings))


def _drops(expression: Expression, label: str) -> bool:
    """Return whether an aggregation in it drops a label."""
    return any(
        each.operator not in CHOOSES_SAMPLES
        and (each.labels is None or (label in each.labels.names) != each.labels.listed)
        for each in every(expression, Aggregation)
    )


def _selectors(expressions: Iterable[Expression]) -> list[VectorSelector]:
    return [each for expression in expressions for each in every(expression, VectorSelector)]


def _rated(expressions: Iterable[Expression]) -> list[str]:
    return sorted({name for each in expressions for name in metric_types.rated(each)})


def _slow(expressions: Iterable[Expression], targets: Sequence[HpaTarget]) -> str:
    """Return the warning about a value that follows the load slowly; empty if it does not."""
    slowest = max(map(delay.of_tree, expressions), default=delay.Delay())
    if slowest.seconds <= _SLOW:
        return ""
    begin = f"delays {targets[0].title} ({targets[0].file}:{targets[0].line})"
    if slowest.function == delay.OFFSET:
        return f"{begin} by {slowest.seconds:g} s, its offset. Leave it out"
    return (
        f"{begin}: {slowest.function} shows half of a change after {slowest.seconds / 2:g} s, and "
        f"all of it after {slowest.seconds:g} s. Use a range of four scrape intervals"
    )


def _divided(expressions: Sequence[Expression], targets: Sequence[HpaTarget]) -> str:
    """Return the warning about a value that is not a sum, and targets of type AverageValue.

    Without `targets`, an HPA may have this type. If all have type Value, nothing is wrong.
    """
    what, remedy = _mean(expressions)
    averaged = [each for each in targets if each.averaged]
    if not what or (targets and not averaged):
        return ""
    with_type = ". With target type AverageValue, an HPA"
    if averaged:
        more = f" and {len(averaged) - 1} more" if len(averaged) > 1 else ""
        with_type = (
            f", and the target of {averaged[0].title} ({averaged[0].file}:{averaged[0].line})"
            f"{more} has type AverageValue. So the HPA"
        )
    least = ": with a share of a whole, rarely for more than two" if what == "is a ratio" else ""
    return f"{what}{with_type} asks for value / target replicas, however many run{least}. {remedy}"


def _mean(expressions: Sequence[Expression]) -> tuple[str, str]:
    """Return what the value is if it does not grow with the number of pods, and a remedy."""
    remedy = "Use type Value"
    for each in expressions:
        if averaged := means.plainly_averaged(each):
            names = {one.name for one in _selectors([averaged])}
            counts = not nature.of_tree(averaged) and not any(map(nature.of_name, names))
            # Shares and latencies must not be added up.
            return "averages all series into one value", remedy + ", or sum here" * counts
    found = next(filter(None, map(nature.of_tree, expressions)), "")
    return (f"is a {found}" if found else ""), remedy
