"""Series for rules files: what a well-behaved exporter would expose for each rule.

Labels and values come from `seriesQuery`, the mapping of labels to resources, and the selectors of
the rendered query. Nothing here knows what `check` says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from adapter.cli.local_prometheus.remote_write import Labels
from rules import promql, syntax
from rules.errors import PlanError, RulesError
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.ruleset import CompiledRule, RuleSet
from rules.syntax import Matcher, VectorSelector
from rules.template import Template

NAMESPACE = "n"
OBJECT = "a"
_OTHER_LABELS = {"kube_pod_owner": {"owner_name": OBJECT}}
"""Labels that a query reads without a matcher."""
_ANY = re.compile(r"\.[*+]\??")
_GROUP = re.compile(r"\((?:\?:)?([^()|]*)(?:\|[^()]*)?\)")


def of(ruleset: RuleSet, kinds: Kinds) -> Iterator[Labels]:
    """Yield the labels of each series that the rules select or query; some of them twice."""
    for rule in ruleset.all:
        for name in names(rule):
            labels = own_labels(rule, kinds)
            yield from _with_buckets({"__name__": name, **labels})
            for more in _queried(rule.query, name, labels):
                yield from _with_buckets(more)
    if ruleset.resource_rules:
        for each in (ruleset.resource_rules.cpu, ruleset.resource_rules.memory):
            bound, container = each.mapping.bind(kinds), each.config.container_label
            pod = {
                **dict.fromkeys(bound.labels(NAMESPACES), NAMESPACE),
                **dict.fromkeys(bound.labels(PODS), OBJECT),
                **({container: "c"} if container else {}),
            }
            yield from _queried(each.container_query, "", pod)
            node = dict.fromkeys(bound.labels(NODES), OBJECT)
            yield from _queried(each.node_query, "", {**node, "namespace": "kube", "pod": "p"})


def names(rule: CompiledRule) -> list[str]:
    """Return names of series that the rule takes; one of each alternative in its patterns."""
    if rule.pinned_series is not None:
        return [rule.pinned_series]
    patterns = [each.value for each in rule.matchers if each.label == "__name__"]
    first = [*itertools.chain.from_iterable(map(examples, patterns)), "some_gauge"]
    last = examples(rule.config.name.matches)
    both = (f"{one.removesuffix('x')}{other}" for one, other in itertools.product(first, last))
    every = dict.fromkeys(filter(None, [*first, *last, *both]))
    taken = [name for name in every if _takes(rule, name)]
    assert taken, f"no name of a series for {rule.config.where}"
    return taken


def own_labels(rule: CompiledRule, kinds: Kinds) -> dict[str, str]:
    """Return the labels of a series that the rule takes, without the name."""
    bound = rule.mapping.bind(kinds)
    labels = {each.label: OBJECT for each in rule.config.resources.overrides}
    if rule.config.resources.template:
        labels |= {label: OBJECT for each in (PODS, NAMESPACES) for label in bound.labels(each)}
    labels |= dict.fromkeys(bound.labels(NAMESPACES), NAMESPACE)
    selected = [each for each in rule.matchers if each.label != "__name__"]
    labels = _matching(labels, selected)
    name = rule.pinned_series or ""
    required = [
        each
        for matchers in _selectors(rule.query, name, labels)
        if Matcher(label="__name__", operator="=", value=name) in matchers
        for each in matchers
        if each.label in labels and each.label not in {one.label for one in selected}
    ]
    return _matching(labels, required)


def objects(rule: CompiledRule, kinds: Kinds) -> dict[GroupResource, tuple[str, str]]:
    """Return the objects that the rule's series describe: resource -> namespace and name."""
    labels = own_labels(rule, kinds)
    resources = rule.mapping.bind(kinds).associations(labels)
    namespace = own_namespace(rule, kinds)
    return {each: (namespace, labels[carried[0]]) for each, carried in resources.items()}


def own_namespace(rule: CompiledRule, kinds: Kinds) -> str:
    """Return the namespace that the series of the rule name; NAMESPACE if they name none."""
    labels = own_labels(rule, kinds)
    mapped = rule.mapping.bind(kinds).labels(NAMESPACES)
    return next((labels[each] for each in mapped if each in labels), NAMESPACE)


def examples(pattern: str) -> list[str]:
    """Return a text for each alternative at the top of a simple regular expression."""
    found = []
    for each in pattern.strip("^$").split("|") if "(" not in pattern else [pattern.strip("^$")]:
        text = _ANY.sub("x", _GROUP.sub(r"\1", each)).replace("\\", "")
        found.append(text)
    return found


def _takes(rule: CompiledRule, name: str) -> bool:
    named = {"__name__": name}
    selected = all(_agrees(named, each) for each in rule.matchers if each.label == "__name__")
    return selected and rule.metric(name) is not None


def _agrees(labels: Mapping[str, str], matcher: Matcher) -> bool:
    value = labels.get(matcher.label, "")
    if "~" in matcher.operator:
        return bool(re.fullmatch(matcher.value, value)) == (matcher.operator == "=~")
    return (value == matcher.value) == (matcher.operator == "=")


def _matching(labels: Mapping[str, str], matchers: Iterable[Matcher]) -> dict[str, str]:
    """Return `labels`, changed and extended so that all matchers agree."""
    result = dict(labels)
    for matcher in matchers:
        if _agrees(result, matcher):
            continue
        wanted = {"=": matcher.value, "=~": examples(matcher.value)[0]}
        result[matcher.label] = wanted.get(matcher.operator, "x")
        assert _agrees(result, matcher), f"no value of {matcher.label} for {matcher.value!r}"
    return {label: value for label, value in result.items() if value}


def _queried(query: Template, name: str, labels: Mapping[str, str]) -> Iterator[Labels]:
    """Yield the labels of the series that the query selects for the object of `labels`."""
    for matchers in _selectors(query, name, labels):
        found = _matching(labels, matchers)
        if "__name__" in found:
            yield {**_OTHER_LABELS.get(found["__name__"], {}), **found}


def _selectors(
    query: Template, name: str, labels: Mapping[str, str]
) -> Iterator[tuple[Matcher, ...]]:
    """Yield the matchers of each selector in the query, rendered for the object of `labels`."""
    data = {
        "Series": name,
        "LabelMatchers": ",".join(promql.matcher(each, "=", labels[each]) for each in labels),
        "LabelValuesByName": dict(labels),
        "GroupBy": ",".join(labels),
        "GroupBySlice": tuple(labels),
    }
    try:
        expression = promql.parse(query.render(data))
    except (PlanError, RulesError):
        return  # Prometheus refuses the query, whatever the series
    for node in syntax.walk(expression):
        if isinstance(node, VectorSelector):
            name = [Matcher(label="__name__", operator="=", value=node.name)] if node.name else []
            yield (*name, *node.matchers)


def _with_buckets(labels: Labels) -> Iterator[Labels]:
    if labels["__name__"].endswith("_bucket"):
        yield {**labels, "le": "+Inf"}
        yield {**labels, "le": "1"}
    else:
        yield labels
