"""Check of configs.json: the structure of whole files, and the phase in which one is refused.

Four answers differ on purpose: the keys that this project adds are known; an unknown kind is
reported and does not make the file invalid (here it counts as the original's error); unknown
fields of templates are found when the file is loaded, not when a query is rendered; and an override
with an empty label is dropped with a warning.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rules import mapping, quantity, ruleset
from rules.document import config
from rules.errors import ConfigError, RulesError
from rules.findings import State
from rules.kinds import Kinds
from tests.vectors.checks.naming_config import kinds_of
from tests.vectors.expect import same

_PHASES = ("rules", "externalRules", "resourceRules")
_ADDED = {"aggregate", "onMissing", "onNaN", "freshness", "merge"}


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    parsed, problems = config.parse(case["yaml"], file="rules.yaml")
    errors = [str(problem) for problem in problems if problem.state is State.FAILURE]
    expected = case.get("error", {}).get("phase")
    if errors or parsed is None:
        same("yaml", expected, "\n".join(errors))
        return
    if expected == "yaml":
        unknown = re.findall(r"field (\w+) not found in type config.D", case["error"]["message"])
        same(set(unknown) <= _ADDED and bool(unknown), True, f"accepted: {case['error']}")
        return
    same(_document(parsed), _expected(case["parsed"]), "parsed")
    if parsed.resource_rules and "window_ns" in case:
        same(str(parsed.resource_rules.window_ns), case["window_ns"], "window_ns")
    phases = {*_refused(case), *_unknown_kinds(parsed, kinds_of(case, clusters))}
    first = next((phase for phase in _PHASES if phase in phases), None)
    same(first, expected, f"first of the phases {phases}")


def _refused(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the phases in which compiling finds errors."""
    try:
        ruleset.load([("rules.yaml", case["yaml"])])
    except ConfigError as error:
        for problem in error.problems:
            early = case["accepted"] and problem.fact.startswith("unknown template field")
            if problem.state is State.FAILURE and not early:
                yield re.split(r"[.\[]", problem.where.path)[0]


def _unknown_kinds(parsed: config.Config, kinds: Kinds) -> Iterator[str]:
    """Yield the phases that name a kind which the cluster does not have."""
    resource_rules = parsed.resource_rules
    for phase, mappings in (
        ("rules", [rule.resources for rule in parsed.rules]),
        ("externalRules", [rule.resources for rule in parsed.external_rules]),
        (
            "resourceRules",
            [resource_rules.cpu.resources, resource_rules.memory.resources]
            if resource_rules
            else [],
        ),
    ):
        for resources in mappings:
            try:
                bound = mapping.compile(resources).bind(kinds)
            except RulesError:
                continue
            if bound.unknown:
                yield phase


def _document(parsed: config.Config) -> dict[str, Any]:
    """Return the configuration in the original's structure, without empty values."""
    document: dict[str, Any] = {
        "rules": [_rule(rule) for rule in parsed.rules],
        "externalRules": [_rule(rule) for rule in parsed.external_rules],
    }
    if parsed.resource_rules is not None:
        document["resourceRules"] = {
            "cpu": _resource_rule(parsed.resource_rules.cpu),
            "memory": _resource_rule(parsed.resource_rules.memory),
            "window": parsed.resource_rules.window_ns,
        }
    return _tidy(document)


def _expected(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a case, with its window in nanoseconds."""
    document = copy.deepcopy(document)
    if rules := document.get("resourceRules"):
        rules["window"] = quantity.prometheus_duration(rules["window"])
    return _tidy(document)


def _rule(rule: config.Rule) -> dict[str, Any]:
    return {
        "seriesQuery": rule.series_query,
        "seriesFilters": [{"is": each.is_, "isNot": each.is_not} for each in rule.series_filters],
        "resources": _resources(rule.resources),
        "name": {"matches": rule.name.matches, "as": rule.name.as_},
        "metricsQuery": rule.metrics_query,
    }


def _resource_rule(rule: config.ResourceRule) -> dict[str, Any]:
    return {
        "containerQuery": rule.container_query,
        "nodeQuery": rule.node_query,
        "resources": _resources(rule.resources),
        "containerLabel": rule.container_label,
    }


def _resources(resources: config.ResourceMapping) -> dict[str, Any]:
    return {
        "template": resources.template,
        "overrides": {
            each.label: {"group": each.group, "resource": each.resource}
            for each in resources.overrides
        }
        or None,
        "namespaced": resources.namespaced,
    }


def _tidy(value: Any) -> Any:
    """Return a document without empty values, which the original omits only in some places."""
    if isinstance(value, dict):
        tidied = {key: _tidy(each) for key, each in value.items()}
        return {key: each for key, each in tidied.items() if key and each not in ("", None, [], {})}
    if isinstance(value, list):
        return [_tidy(each) for each in value]
    return value
