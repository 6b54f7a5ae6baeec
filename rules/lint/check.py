"""What will surprise in a rule set that loads: each warning says what follows and what to do.

Nothing here is wrong enough to refuse a file; all of it was seen in real ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rules import promql
from rules.document.config import Override, Rule, Where
from rules.errors import PlanError, Problem, UnknownResourceError
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.lint import check_queries
from rules.mapping import BoundMapping
from rules.ruleset import CompiledRule, RuleSet

_COMMON_LABELS = frozenset(
    ("__name__", "job", "instance", "namespace", "pod", "container", "service", "endpoint", "node")
)
"""Labels that nearly every series of a cluster has."""
_ANYTHING = frozenset((".*", ".+", "^.*$", "^.+$", "^.*", ".*$", "^.+", ".+$", "(.*)", "(.+)"))
_BEGINS = re.compile(r"(?:\(\?[a-zA-Z]+\))?(?:\((?:\?:|\?P?<\w+>)?)*(?:\^|\\A|\.[*+])")
_ENDS = re.compile(r"(?:(?<!\\)\$|\\z|(?<!\\)\.[*+]\??)(?:\)[?*+]?)*\Z")


def warnings(ruleset: RuleSet, kinds: Kinds | None = None) -> tuple[Problem, ...]:
    """Everything that will surprise, besides `ruleset.problems`, in the order of the rules.

    `kinds` are those of the cluster that the rules are for; without them, those of every cluster.
    """
    known = kinds or Kinds.builtin()
    found: list[Problem] = []
    for section in (ruleset.rules, ruleset.external):
        seen: dict[object, list[tuple[CompiledRule, frozenset[object]]]] = {}
        for rule in section:
            bound = rule.mapping.bind(known)
            found += _unknown(rule.config.where, bound, certain=kinds is not None)
            found += _selector(rule)
            found += _name(rule)
            if rule.section == "rules":
                found += _custom(rule, bound, known)
            else:
                found += _external(rule, bound)
            found += check_queries.rule(rule, bound, known)
            found += _doubled(rule, bound, seen)
    if ruleset.resource_rules:
        for each in (ruleset.resource_rules.cpu, ruleset.resource_rules.memory):
            bound = each.mapping.bind(known)
            found += _unknown(each.config.where, bound, certain=kinds is not None)
        found += check_queries.resource_rules(ruleset.resource_rules, known)
    return tuple(found)


def _warning(rule: Rule, path: str, message: str) -> Problem:
    return rule.where.problem("warning", path, message)


def _unknown(where: Where, bound: BoundMapping, *, certain: bool) -> Iterator[Problem]:
    for override in bound.unknown:
        named = repr(override.resource)
        if override.group:
            named += f" of group {override.group!r}"
        known = (
            f"the cluster knows no resource {named}: the label is without effect until it does"
            if certain
            else f"{named} is no resource that every cluster has: if yours has it, this is fine; "
            "if not, the label is without effect"
        )
        message = f"{known} (short names such as po are not known; write pod)"
        yield where.problem("warning", f"resources.overrides.{override.label}", message)


def _selector(compiled: CompiledRule) -> Iterator[Problem]:
    rule = compiled.config
    try:
        matchers = promql.selector(rule.series_query).matchers
    except PlanError:
        return  # compiling the rule has said so
    narrowed = any(each.is_ for each in rule.series_filters) or rule.name.matches not in {
        "",
        *_ANYTHING,
    }
    if matchers and not narrowed and all(map(_is_open, matchers)):
        yield _warning(
            rule,
            "seriesQuery",
            "matches nearly every series: each becomes a metric, the API lists thousands of names, "
            "and every relist asks Prometheus for all of them; name the series "
            '({__name__=~"^http_.*",...}), or narrow them by seriesFilters or name.matches',
        )


def _is_open(matcher: promql.Matcher) -> bool:
    common = matcher.label in _COMMON_LABELS or matcher.label.startswith(("kubernetes_", "kube_"))
    if not common:
        return False
    if matcher.operator in {"!=", "!~"}:
        return True
    return matcher.operator == "=~" and matcher.value in _ANYTHING


def _name(compiled: CompiledRule) -> Iterator[Problem]:
    rule = compiled.config
    series = promql.pinned_name(rule.series_query)
    if series is not None:
        if not compiled.filters.accept(series) or compiled.namer.metric(series) is None:
            yield _warning(
                rule,
                "name.matches" if compiled.filters.accept(series) else "seriesFilters",
                f"does not take {series}, the only series of seriesQuery: there will be no metric",
            )
        return
    if not rule.name.as_ or _single(rule):
        return
    if "$" not in rule.name.as_:
        yield _warning(
            rule,
            "name.as",
            f"calls every series that the rule takes {rule.name.as_!r}: the last one listed wins "
            "and the others are not served; name one series in seriesQuery, or use ${1}",
        )
    elif rule.name.matches and not (
        _BEGINS.match(rule.name.matches) and _ENDS.search(rule.name.matches)
    ):
        yield _warning(
            rule,
            "name.matches",
            f"{rule.name.matches!r} has no ^ or no $ and so matches inside longer names (_total "
            "takes _total_sum, too): if several give one metric name, the last one listed wins; "
            "anchor the pattern",
        )


def _single(rule: Rule) -> bool:
    """Whether regular expressions pin one series name."""
    try:
        matchers = promql.selector(rule.series_query).matchers
    except PlanError:
        matchers = ()
    names = [each for each in matchers if each.label == "__name__" and each.operator == "=~"]
    filters = [each.is_ for each in rule.series_filters]
    anchored = [each for each in (rule.name.matches, *filters) if re.match(r"\^.*\$\Z", each)]
    patterns = (*(each.value for each in names), *anchored)
    return any(re.fullmatch(r"\^?[\w:]+\$?", each) for each in patterns)


def _external(compiled: CompiledRule, bound: BoundMapping) -> Iterator[Problem]:
    rule = compiled.config
    if rule.resources.namespaced is not False and not bound.labels(NAMESPACES):
        yield _warning(
            rule,
            "resources",
            "no label stands for the namespace: the metric is listed and every request for it is "
            "answered with 500; add an override for namespace, or namespaced: false",
        )
    for key in ("aggregate", "onMissing", "merge"):
        if key in rule.where.positions:
            message = (
                "has no effect in an external rule, which answers with every sample: remove it"
            )
            yield _warning(rule, key, message)


def _custom(compiled: CompiledRule, bound: BoundMapping, kinds: Kinds) -> Iterator[Problem]:
    rule = compiled.config
    if rule.resources.namespaced is not None:
        message = "has an effect in external rules only: remove it"
        yield _warning(rule, "resources.namespaced", message)
    if not rule.resources.template and not rule.resources.overrides:
        yield _warning(
            rule,
            "resources",
            "has no label for any resource, so the rule produces no metric; add overrides, such as "
            "pod: {resource: pod}",
        )
    resources = _resources(rule, kinds)
    namespaced = [each for each in resources if kinds.resolve(each.resource, each.group).namespaced]
    if namespaced and not bound.labels(NAMESPACES):
        yield _warning(
            rule,
            "resources",
            f"has a label for {', '.join(map(str, sorted(namespaced)))} and none for namespaces: "
            "the metric is listed and every request for it is answered with 404; add an override, "
            "such as namespace: {resource: namespace}",
        )
    shape = compiled.mapping.template
    if shape and shape.template.unknown_fields({"Resource": str}) and not _has_core(resources):
        yield _warning(
            rule,
            "resources.template",
            "has .Group in it, which is empty for core resources: pods, namespaces, nodes and "
            "services are never found by it; add overrides for them",
        )


def _resources(rule: Rule, kinds: Kinds) -> Mapping[GroupResource, Override]:
    bound: dict[GroupResource, Override] = {}
    for override in rule.resources.overrides:
        try:
            kind = kinds.resolve(override.resource, override.group)
        except UnknownResourceError:
            continue
        bound.setdefault(kind.group_resource, override)
    return bound


def _has_core(resources: Mapping[GroupResource, Override]) -> bool:
    return any(not each.group for each in resources)


def _doubled(
    compiled: CompiledRule,
    bound: BoundMapping,
    seen: dict[object, list[tuple[CompiledRule, frozenset[object]]]],
) -> Iterator[Problem]:
    """A metric that an earlier rule of the section produces too, as far as the file shows."""
    rule = compiled.config
    resources = _produced(compiled, bound)
    before = seen.setdefault(_produces(compiled), [])
    for other, theirs in before:
        if not (resources & theirs) or (rule.merge and other.config.merge):
            continue
        shared = "" if compiled.section != "rules" else _listed(resources & theirs)
        line, _ = other.config.where.positions.get("", (0, 0))
        merging = ", or say merge: true in both" if compiled.section == "rules" else ""
        yield _warning(
            rule,
            "name",
            f"gives the same metric{shared} as {other.config.where.path} (line {line} of "
            f"{other.config.where.file}): this later rule wins and the other is not asked; "
            f"rename one of them{merging}",
        )
        break
    before.append((compiled, resources))


def _produces(compiled: CompiledRule) -> object:
    """What two rules that name their metrics alike have in common."""
    rule = compiled.config
    series = promql.pinned_name(rule.series_query)
    if series is not None and compiled.filters.accept(series):
        return compiled.namer.metric(series) or compiled.index
    if rule.name.as_ and "$" not in rule.name.as_:
        return rule.name.as_
    return (rule.series_query, rule.series_filters, rule.name)


def _produced(compiled: CompiledRule, bound: BoundMapping) -> frozenset[object]:
    """The resources that the rule's metrics are of; an external metric is of none in particular."""
    if compiled.section != "rules":
        return frozenset(("",))
    labels = [each.label for each in compiled.config.resources.overrides]
    template = compiled.config.resources.template
    return frozenset((*bound.carried(labels), *([template] if template else [])))


def _listed(resources: frozenset[object]) -> str:
    named = sorted(str(each) for each in resources)
    return f" of {', '.join(named)}"
