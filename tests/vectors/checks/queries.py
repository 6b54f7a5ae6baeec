"""From a rule and a request to the text of the query.

Four answers differ on purpose: label names that are not classic ones are quoted, several object
names are escaped for regular expressions, an empty `containerLabel` is left out of `GroupBy`, and
an override with an empty label is dropped, where the original sends `{="name"}`.
Kinds that the cluster does not know are no error of the file: the rest of it works.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rules import promql, ruleset
from rules.errors import PlanError, RulesError, SelectorError
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.query import label_binding, plan
from rules.query.catalog import Entry, ExternalEntry, Source
from rules.query.label_binding import LabelBinding
from rules.selectors import selectors
from tests.vectors.checks.naming_config import kinds_of
from tests.vectors.expect import same

FILE = "queries.json"

_CLASSIC = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    wanted = [each["query"] for each in case.get("any_of", (case,)) if "query" in each]
    try:
        asked = _ASK[case["kind"]](case, kinds_of(case, clusters))
    except RulesError as error:
        if wanted and not re.search(r"[{,]=", wanted[0]):
            raise AssertionError(f"wanted {wanted}\ncame   {error!r}") from error
        return
    if case.get("error", {}).get("phase") == "rule" and asked.bound.unknown:
        return
    assert wanted, f"wanted the error {case['error']}\ncame   {asked.promql}"
    came = asked.as_the_original()
    if came not in wanted:
        same(came, asked.without_empty_label(wanted[0]), "query")


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A query of ours, and what is needed to see it as the original would have written it."""

    promql: str
    bound: BoundMapping
    labels: tuple[str, ...]
    names: tuple[str, ...] = ()
    empty_label_after: str = ""

    def as_the_original(self) -> str:
        text = self.promql
        for label in self.labels:
            if not _CLASSIC.fullmatch(label):
                # Where a label stands; elsewhere the same may be a value.
                written = rf"(?<![=~]){re.escape(promql.quote(label))}"
                text = re.sub(written, lambda _, label=label: label, text)
        escaped = "|".join(map(plan.escape, self.names))
        if len(self.names) > 1:
            text = text.replace(promql.quote(escaped), promql.quote("|".join(self.names)))
        return text

    def without_empty_label(self, query: str) -> str:
        before = self.empty_label_after
        if before:
            query = query.replace(f"{before},)", f"{before})").replace(
                f"[{before} ]", f"[{before}]"
            )
        return query


def _custom(case: Mapping[str, Any], kinds: Kinds) -> _Asked:
    rule = _rule(case, "rules")
    bound = rule.mapping.bind(kinds)
    resource = GroupResource(**case["resource"])
    own, namespace = bound.labels(resource), bound.labels(NAMESPACES)
    if not own:
        raise PlanError(f"no label stands for {resource}")
    binding = LabelBinding(resource=own[0], namespace=(*namespace, "")[0])
    source = Source(rule=rule, series=case["series"], bindings=(binding,))
    entry = Entry(
        metric="m", resource=resource, namespaced=bool(case["namespace"]), sources=(source,)
    )
    selector = _selector(case)
    made = plan.custom(entry, namespace=case["namespace"], names=case["names"], selector=selector)
    return _Asked(
        promql=made.steps[0].promql,
        bound=bound,
        labels=(*own, *namespace, *_keys(selector)),
        names=tuple(case["names"]),
    )


def _external(case: Mapping[str, Any], kinds: Kinds) -> _Asked:
    rule = _rule(case, "externalRules")
    bound = rule.mapping.bind(kinds)
    (only,) = label_binding.bindings(rule, bound, frozenset(), kinds)[NAMESPACES]
    entry = ExternalEntry(
        metric="m",
        namespaced=rule.config.resources.namespaced is not False,
        source=Source(rule=rule, series=case["series"], bindings=(only,)),
    )
    selector = _selector(case)
    made = plan.external(entry, namespace=case["namespace"], selector=selector)
    return _Asked(
        promql=made.step.promql,
        bound=bound,
        labels=(*bound.labels(NAMESPACES), *_keys(selector)),
    )


def _container(case: Mapping[str, Any], kinds: Kinds) -> _Asked:
    rule, bound = _resource_rule(case, kinds)
    made = plan.container(rule, bound, namespace=case["namespace"], names=case["names"])
    return _Asked(
        promql=made.promql,
        bound=bound,
        labels=(*bound.labels(NAMESPACES), *made.group_by),
        names=tuple(case["names"]),
        empty_label_after="" if rule.config.container_label else made.group_by[0],
    )


def _node(case: Mapping[str, Any], kinds: Kinds) -> _Asked:
    rule, bound = _resource_rule(case, kinds)
    made = plan.node(rule, bound, names=case["names"])
    names = tuple(case["names"])
    return _Asked(promql=made.promql, bound=bound, labels=made.group_by, names=names)


_ASK: Mapping[str, Callable[[Mapping[str, Any], Kinds], _Asked]] = {
    "custom": _custom,
    "external": _external,
    "container": _container,
    "node": _node,
}


def _rule(case: Mapping[str, Any], section: str) -> ruleset.CompiledRule:
    text = f"{section}:\n-\n{textwrap.indent(case['rule'], '  ')}"
    rules = ruleset.load([("rules.yaml", text)])
    (rule,) = (*rules.rules, *rules.external)
    return rule


def _resource_rule(
    case: Mapping[str, Any], kinds: Kinds
) -> tuple[ruleset.CompiledResourceRule, BoundMapping]:
    rule = textwrap.indent(case["rule"], "    ")
    text = f"resourceRules:\n  window: 1m\n  cpu:\n{rule}\n  memory:\n{rule}"
    rules = ruleset.load([("rules.yaml", text)]).resource_rules
    assert rules is not None
    return rules.cpu, rules.cpu.mapping.bind(kinds)


def _selector(case: Mapping[str, Any]) -> selectors.Selector:
    if "requirements" not in case:
        return selectors.parse(case["selector"])
    written = ",".join(map(_written, case["requirements"]))
    selector = selectors.parse(written)
    wanted = sorted(
        (each["key"], each["operator"], sorted(set(each["values"])))
        for each in case["requirements"]
    )
    found = [(each.key, each.operator, list(each.values)) for each in selector.requirements]
    if wanted != sorted(found):
        raise SelectorError(f"no selector says {case['requirements']}: {written!r} does not")
    return selector


def _written(requirement: Mapping[str, Any]) -> str:
    """A requirement as selector text, as far as there is one."""
    key, operator, values = requirement["key"], requirement["operator"], requirement["values"]
    match operator:
        case "exists":
            return str(key)
        case "!":
            return f"!{key}"
        case "in" | "notin":
            return f"{key} {operator} ({','.join(sorted(set(values)))})"
    sign = {"gt": ">", "lt": "<"}.get(operator, operator)
    return f"{key}{sign}{','.join(values)}"


def _keys(selector: selectors.Selector) -> tuple[str, ...]:
    return tuple(requirement.key for requirement in selector.requirements)
