"""Warnings about rules that load but produce no metrics, too many, or the wrong ones.

A warning never prevents a start. `check_queries` has the warnings about query templates.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence

from rules import connection, presets
from rules.document.config import Override
from rules.document.found import HpaTarget
from rules.document.where import Where
from rules.exporters import generations
from rules.findings import Finding
from rules.kinds import NAMESPACES, Kinds
from rules.lint import check_hpas, check_queries
from rules.mapping import BoundMapping
from rules.ruleset import CompiledRule, RuleSet
from rules.syntax import Matcher

_COMMON_LABELS = frozenset(
    ("__name__", "job", "instance", "namespace", "pod", "container", "service", "endpoint", "node")
)
"""Labels that nearly every series of a cluster has."""
_ANYTHING = re.compile(r"\^?\(?\.[*+]\)?\$?")
"""Patterns that match every name."""
_ANCHORED_START = re.compile(r"(?:\(\?[a-zA-Z]+\))?(?:\((?:\?:|\?P?<\w+>)?)*(?:\^|\\A|\.[*+])")
_ANCHORED_END = re.compile(r"(?:(?<!\\)\$|\\z|(?<!\\)\.[*+]\??)(?:\)[?*+]?)*\Z")
_SHORT_NAMES = {
    "cm": "configmap",
    "deploy": "deployment",
    "ds": "daemonset",
    "hpa": "horizontalpodautoscaler",
    "ing": "ingress",
    "no": "node",
    "ns": "namespace",
    "po": "pod",
    "pv": "persistentvolume",
    "pvc": "persistentvolumeclaim",
    "rs": "replicaset",
    "sts": "statefulset",
    "svc": "service",
}
"""Short names, which only kubectl knows -> the singular of the resource."""

_Earlier = dict[object, list[tuple[CompiledRule, frozenset[object]]]]
"""Result of `_naming` -> the earlier rules with this result, each with its resources."""


def warnings(ruleset: RuleSet, targets: Sequence[HpaTarget] = ()) -> tuple[Finding, ...]:
    """Return all warnings that are not in `ruleset.problems`, in the order of the rules.

    `targets` are those of known HPAs. No cluster is needed: resources are those that every cluster
    has. Rules of presets have no warnings, because a user cannot edit them.
    """
    kinds = Kinds.builtin()
    problems: list[Finding] = list(_sources(ruleset))
    pinned = {rule.pinned_series for rule in ruleset.all}
    for section in (ruleset.rules, ruleset.external):
        earlier: _Earlier = {}
        for rule in section:
            bound = rule.mapping.bind(kinds)
            if presets.is_preset(rule.config.where.file):
                problems += _duplicate(rule, bound, earlier)
                continue
            problems += _unknown_resources(rule.config.where, bound, kinds)
            problems += _broad_selector(rule)
            problems += _old_name(rule, pinned)
            problems += _names(rule)
            if rule.section == "rules":
                problems += _custom(rule, bound, kinds)
            else:
                problems += _external(rule, bound)
            of_rule = [each for each in targets if check_hpas.requests(each, rule)]
            problems += check_queries.check_rule(rule, bound, of_rule)
            problems += _duplicate(rule, bound, earlier)
    usage = ruleset.resource_rules
    if usage and not presets.is_preset(usage.cpu.config.where.file):
        for each in (usage.cpu, usage.memory):
            bound = each.mapping.bind(kinds)
            problems += _unknown_resources(each.config.where, bound, kinds)
        problems += check_queries.check_resource_rules(usage, kinds)
    return tuple(problems)


def _sources(ruleset: RuleSet) -> Iterator[Finding]:
    used = {rule.config.source for rule in ruleset.all}
    for source in ruleset.sources:
        if source.name not in used:
            message = "no rule uses this source: set `source` in rules, or remove it"
            yield source.where.warning("", message)
        secret = connection.authorizations(source) or source.auth_in_cluster
        if secret and connection.is_plain_text(source.url):
            message = "is not https, so everybody on the path can read the credentials. Use https"
            yield source.where.warning("url", message)
        if connection.is_plain_text(source.oauth2_token_url):
            message = "is not https, so everybody on the path can read the secret. Use https"
            yield source.where.warning("oauth2TokenUrl", message)


def _unknown_resources(where: Where, bound: BoundMapping, kinds: Kinds) -> Iterator[Finding]:
    for override in bound.unknown:
        if message := _unknown_resource(override, kinds):
            yield where.warning(f"resources.overrides.{override.label}", message)


def _unknown_resource(override: Override, kinds: Kinds) -> str:
    """Return the warning about a resource that is not built in; empty for that of a CRD."""
    resource, group = override.resource, override.group
    builtin = {kind.group for kind in kinds}
    if group in builtin or not group:
        names = {name for kind in kinds for name in (kind.resource, kind.singular)}
        near = difflib.get_close_matches(resource.lower(), names, n=1, cutoff=0.8)
        meant = _SHORT_NAMES.get(resource.lower()) or (near[0] if near else "")
        of_group = f" of group {group!r}" if group else ""
        hint = f"write {meant}" if meant else "if it is that of a CRD, add its group"
        return (
            f"{resource!r}{of_group} is not a built-in resource: the label has no effect unless "
            f"the cluster has it; {hint}"
        )
    if "." in group:  # CRDs have such groups
        return ""
    served = sorted({kind.group for kind in kinds if resource in (kind.resource, kind.singular)})
    hint = f"; {resource} is in group {served[0] or repr('')}" if served else ""
    return f"there is no built-in group {group!r}: the label has no effect{hint}"


def _broad_selector(compiled: CompiledRule) -> Iterator[Finding]:
    rule = compiled.config
    patterns = (rule.name.matches, *(each.is_ for each in rule.series_filters))
    narrowed = not all(map(_ANYTHING.fullmatch, filter(None, patterns)))
    if compiled.matchers and not narrowed and all(map(_is_broad, compiled.matchers)):
        yield rule.where.warning(
            "seriesQuery",
            "matches nearly every series: discovery lists thousands of metrics, and each relist "
            'reads all names. Select names ({__name__=~"^http_.*",...}), or use seriesFilters or '
            "name.matches",
        )


def _old_name(compiled: CompiledRule, pinned: Collection[str | None]) -> Iterator[Finding]:
    """Yield a warning if no rule reads the later name of the rule's series."""
    series = compiled.pinned_series or ""
    newer = generations.OLD_NAMES_OF.get(series)
    if newer and newer not in pinned:
        yield compiled.config.where.warning(
            "seriesQuery",
            f"selects {series}, which later releases name {newer}: their pods have no value. The "
            "presets read both names",
        )


def _is_broad(matcher: Matcher) -> bool:
    common = matcher.label in _COMMON_LABELS or matcher.label.startswith(("kubernetes_", "kube_"))
    if not common:
        return False
    if matcher.operator in {"!=", "!~"}:
        return True
    return matcher.operator == "=~" and _ANYTHING.fullmatch(matcher.value) is not None


def _names(compiled: CompiledRule) -> Iterator[Finding]:
    rule, series = compiled.config, compiled.pinned_series
    if series is not None:
        metric = compiled.metric(series)
        if metric is not None and not fits_url(metric):
            yield rule.where.warning("name", not_in_url(metric))
        if metric is None and compiled.accepts(series) and (size := compiled.namer.size(series)):
            yield rule.where.warning(
                "name",
                f"makes a name of {size} characters, more than {compiled.namer.limit}: the rule "
                "produces no metric. Shorten name.as",
            )
        elif metric is None:
            yield rule.where.warning(
                "name.matches" if compiled.accepts(series) else "seriesFilters",
                f"rejects {series}, the only series of seriesQuery: the rule produces no metric",
            )
        return
    if not rule.name.as_ or _pins_name(compiled) or not check_queries.reads_series(compiled):
        return
    if "$" not in rule.name.as_:
        yield rule.where.warning(
            "name.as",
            f"names every series {rule.name.as_!r}: only the last one listed is served. Select "
            "one series in seriesQuery, or use ${1}",
        )
    elif (
        rule.name.matches
        and not _selects_names(compiled)
        and not (
            _ANCHORED_START.match(rule.name.matches) and _ANCHORED_END.search(rule.name.matches)
        )
    ):
        yield rule.where.warning(
            "name.matches",
            f"{rule.name.matches!r} has no ^ or no $ and matches parts of names (_total matches "
            "x_total_sum). Of series that get the same metric name, only the last one listed is "
            "served. Anchor the pattern",
        )


def fits_url(metric: str) -> bool:
    """Return whether a metric can be requested: its name is one segment of a URL's path."""
    return metric not in {".", ".."} and not set(metric) & set("/%")


def not_in_url(metric: str) -> str:
    """Return the warning about a metric that cannot be requested."""
    return (
        f"{metric!r} cannot be in the path of a URL, so no HPA can request it. Give it a name "
        "without / and % in name.as"
    )


def _selects_names(compiled: CompiledRule) -> bool:
    """Return whether `seriesQuery` or a filter selects names, so that the author knows them."""
    return any(each.is_ for each in compiled.config.series_filters) or any(
        each.label == "__name__" and each.operator in {"=", "=~"} for each in compiled.matchers
    )


def _pins_name(compiled: CompiledRule) -> bool:
    """Return whether a regular expression without metacharacters pins the series' name."""
    rule = compiled.config
    names = [
        each.value
        for each in compiled.matchers
        if each.label == "__name__" and each.operator == "=~"
    ]
    filters = [each.is_ for each in rule.series_filters]
    anchored = [each for each in (rule.name.matches, *filters) if re.match(r"\^.*\$\Z", each)]
    patterns = (*names, *anchored)
    return any(re.fullmatch(r"\^?[\w:]+\$?", each) for each in patterns)


def _external(compiled: CompiledRule, bound: BoundMapping) -> Iterator[Finding]:
    rule = compiled.config
    if rule.resources.namespaced is not False and not bound.labels(NAMESPACES):
        yield rule.where.warning(
            "resources",
            "maps no label to namespaces: the metric is listed, but every request fails with 500. "
            "Add an override for namespace, or set namespaced: false",
        )
    for key in ("aggregate", "onMissing", "merge", "maxSampleAge"):
        if key in rule.where.nodes:
            message = "has no effect in externalRules, which return every sample. Remove it"
            yield rule.where.warning(key, message)


def _custom(compiled: CompiledRule, bound: BoundMapping, kinds: Kinds) -> Iterator[Finding]:
    rule = compiled.config
    if rule.resources.namespaced is not None:
        message = "has an effect only in externalRules. Remove it"
        yield rule.where.warning("resources.namespaced", message)
    if not rule.resources.template and not rule.resources.overrides:
        yield rule.where.warning(
            "resources",
            "maps no label to a resource: the rule produces no metric. Add overrides, such as "
            "pod: {resource: pod}",
        )
    resources = bound.associations(each.label for each in rule.resources.overrides)
    namespaced = [each for each in resources if kinds.resolve(each.resource, each.group).namespaced]
    if namespaced and not bound.labels(NAMESPACES):
        yield rule.where.warning(
            "resources",
            f"maps a label to {', '.join(map(str, sorted(namespaced)))} but none to namespaces: "
            "the metric is listed, but every request fails with 404. Add an override, such as "
            "namespace: {resource: namespace}",
        )
    template = compiled.mapping.template
    uses_group = template and template.parsed.unknown_fields({"Resource": str})
    if uses_group and all(each.group for each in resources):
        yield rule.where.warning(
            "resources.template",
            "uses .Group, which is empty for core resources: it never matches a label of pods, "
            "namespaces, nodes or services. Add overrides for them",
        )


def _duplicate(compiled: CompiledRule, bound: BoundMapping, earlier: _Earlier) -> Iterator[Finding]:
    """Yield a warning if an earlier rule of the section produces the same metric.

    It does not see series of different rules that become one metric only at run time.
    """
    rule = compiled.config
    resources = _resources(compiled, bound)
    rivals = earlier.setdefault(_naming(compiled), [])
    for other, theirs in rivals:
        if not (resources & theirs) or (rule.merge and other.config.merge):
            continue
        files = (rule.where.file, other.config.where.file)
        if all(map(presets.is_preset, files)):
            continue
        custom = compiled.section == "rules"
        shared = f" of {', '.join(sorted(map(str, resources & theirs)))}" if custom else ""
        merging = ", or set merge: true in both" if custom else ""
        yield rule.where.warning(
            "name",
            f"produces the same metric{shared} as {other.config.where}: only this "
            f"later rule is queried. Rename one of them{merging}",
        )
        break
    rivals.append((compiled, resources))


def _naming(compiled: CompiledRule) -> object:
    """Return a key that is equal for rules that give their metrics the same names."""
    rule = compiled.config
    if compiled.pinned_series is not None:
        return compiled.metric(compiled.pinned_series) or compiled.index
    if rule.name.as_ and "$" not in rule.name.as_:
        return rule.name.as_
    return (rule.series_query, rule.series_filters, rule.name)


def _resources(compiled: CompiledRule, bound: BoundMapping) -> frozenset[object]:
    """Return the resources of the rule's metrics; external rules share one placeholder."""
    if compiled.section != "rules":
        return frozenset(("",))
    labels = [each.label for each in compiled.config.resources.overrides]
    template = compiled.config.resources.template
    return frozenset((*bound.associations(labels), *([template] if template else [])))
