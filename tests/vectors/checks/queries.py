"""Check of queries.json: the query of a rule and a request.

Four answers differ on purpose: label names that are not classic ones are quoted, several object
names are escaped for regular expressions, an empty `containerLabel` is left out of `GroupBy`, and
an override with an empty label is dropped, where the original sends `{="name"}`.
Unknown kinds do not make a file invalid: the rest of it is used.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rules import ruleset
from rules.errors import PlanError, RulesError, SelectorError
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.query import label_binding, plan, resource
from rules.query.catalog import Entry, ExternalEntry, Source
from rules.query.label_binding import LabelBinding
from rules.quoting import quote
from rules.selectors import selectors
from tests.vectors.checks.naming_config import kinds_of
from tests.vectors.expect import same

_CLASSIC = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    expected = [each["query"] for each in case.get("any_of", (case,)) if "query" in each]
    try:
        query = _BUILD[case["kind"]](case, kinds_of(case, clusters))
    except RulesError as error:
        if expected and not re.search(r"[{,]=", expected[0]):
            raise AssertionError(f"expected {expected}\nactual   {error!r}") from error
        return
    if case.get("error", {}).get("phase") == "rule" and query.bound.unknown:
        return
    assert expected, f"expected {case['error']}\nactual   {query.promql}"
    actual = query.as_original()
    if actual not in expected:
        same(actual, query.without_empty_label(expected[0]), "query")


@dataclass(frozen=True, kw_only=True)
class _Query:
    """Query, and what is needed to write it as the original would."""

    promql: str
    bound: BoundMapping
    labels: tuple[str, ...]
    names: tuple[str, ...] = ()
    empty_label_after: str = ""

    def as_original(self) -> str:
        text = self.promql
        for label in self.labels:
            if not _CLASSIC.fullmatch(label):
                # Behind `=` or `~` the same text is a value.
                quoted = rf"(?<![=~]){re.escape(quote(label))}"
                text = re.sub(quoted, lambda _, label=label: label, text)
        escaped = "|".join(map(plan.escape, self.names))
        if len(self.names) > 1:
            text = text.replace(quote(escaped), quote("|".join(self.names)))
        return text

    def without_empty_label(self, query: str) -> str:
        before = self.empty_label_after
        if before:
            query = query.replace(f"{before},)", f"{before})").replace(
                f"[{before} ]", f"[{before}]"
            )
        return query


def _custom(case: Mapping[str, Any], kinds: Kinds) -> _Query:
    rule = _rule(case, "rules")
    bound = rule.mapping.bind(kinds)
    resource = GroupResource(**case["resource"])
    own, namespace = bound.labels(resource), bound.labels(NAMESPACES)
    if not own:
        raise PlanError(f"no label for {resource}")
    binding = LabelBinding(resource=own[0], namespace=(*namespace, "")[0])
    source = Source(rule=rule, series=case["series"], bindings=(binding,))
    entry = Entry(
        metric="m", resource=resource, namespaced=bool(case["namespace"]), sources=(source,)
    )
    selector = _selector(case)
    made = plan.custom(entry, namespace=case["namespace"], names=case["names"], selector=selector)
    return _Query(
        promql=made.promql()[0],
        bound=bound,
        labels=(*own, *namespace, *_keys(selector)),
        names=tuple(case["names"]),
    )


def _external(case: Mapping[str, Any], kinds: Kinds) -> _Query:
    rule = _rule(case, "externalRules")
    bound = rule.mapping.bind(kinds)
    (only,) = label_binding.choices(rule, bound, frozenset(), kinds)[NAMESPACES]
    entry = ExternalEntry(
        metric="m",
        namespaced=rule.config.resources.namespaced is not False,
        source=Source(rule=rule, series=case["series"], bindings=(only,)),
    )
    selector = _selector(case)
    made = plan.external(entry, namespace=case["namespace"], selector=selector)
    return _Query(
        promql=made.promql(), bound=bound, labels=(*bound.labels(NAMESPACES), *_keys(selector))
    )


def _container(case: Mapping[str, Any], kinds: Kinds) -> _Query:
    rules, bound = _resource_rules(case, kinds)
    made, _ = resource.plans(
        resource.compile(rules), PODS, namespace=case["namespace"], names=case["names"]
    )
    binding = made.steps[0].binding
    return _Query(
        promql=made.promql()[0],
        bound=bound,
        labels=(*bound.labels(NAMESPACES), binding.resource, *filter(None, (binding.container,))),
        names=tuple(case["names"]),
        empty_label_after="" if binding.container else binding.resource,
    )


def _node(case: Mapping[str, Any], kinds: Kinds) -> _Query:
    rules, bound = _resource_rules(case, kinds)
    made, _ = resource.plans(resource.compile(rules), NODES, namespace="", names=case["names"])
    return _Query(
        promql=made.promql()[0],
        bound=bound,
        labels=(made.steps[0].binding.resource,),
        names=tuple(case["names"]),
    )


_BUILD: Mapping[str, Callable[[Mapping[str, Any], Kinds], _Query]] = {
    "custom": _custom,
    "external": _external,
    "container": _container,
    "node": _node,
}


def _rule(case: Mapping[str, Any], section: str) -> ruleset.CompiledRule:
    text = f"{section}:\n-\n{textwrap.indent(case['rule'], '  ')}"
    rules = ruleset.load([("rules.yaml", text)])
    (rule,) = rules.all
    return rule


def _resource_rules(case: Mapping[str, Any], kinds: Kinds) -> tuple[Any, BoundMapping]:
    rule = textwrap.indent(case["rule"], "    ")
    text = f"resourceRules:\n  window: 1m\n  cpu:\n{rule}\n  memory:\n{rule}"
    rules = ruleset.load([("rules.yaml", text)]).resource_rules
    return rules, rules.cpu.mapping.bind(kinds)


def _selector(case: Mapping[str, Any]) -> selectors.Selector:
    if "requirements" not in case:
        return selectors.parse(case["selector"])
    text = ",".join(map(_requirement, case["requirements"]))
    selector = selectors.parse(text)
    expected = sorted(
        (each["key"], each["operator"], sorted(set(each["values"])))
        for each in case["requirements"]
    )
    parsed = [(each.key, each.operator, list(each.values)) for each in selector.requirements]
    if expected != sorted(parsed):
        raise SelectorError(f"no selector for {case['requirements']}: {text!r} is different")
    return selector


def _requirement(requirement: Mapping[str, Any]) -> str:
    """Return a requirement as selector text; some requirements have none."""
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
