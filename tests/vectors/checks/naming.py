"""Check of naming.json: one rule with one series, or a whole file with all listed series."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rules import ruleset
from rules.errors import ConfigError
from rules.kinds import Kinds
from tests.vectors.checks import naming_config
from tests.vectors.expect import same


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    if "config" in case:
        naming_config.check_config(case, clusters)
        return
    answer = _answer(case, naming_config.kinds_of(case, clusters))
    allowed = [_contract(each) for each in case.get("any_of", [case])]
    same(answer, answer if answer in allowed else allowed[0], "answer")


def _answer(case: Mapping[str, Any], cluster: Kinds) -> dict[str, Any]:
    try:
        rule = ruleset.load([("rules.yaml", _file(case["rule"]))]).rules[0]
    except ConfigError as error:
        return {"error": True} if "error" in case else {"error": str(error)}
    mapping = rule.mapping.bind(cluster)
    if mapping.unknown:
        # The original refuses the whole file; this project uses the rest of it.
        return {"error": True} if "error" in case else {"error": f"unknown: {mapping.unknown}"}
    name = case["series"]["name"]
    metric = rule.namer.metric(name)
    answer: dict[str, Any] = {
        "taken": rule.accepts(name) and metric is not None,
        "resources": [
            {"group": resource.group, "label": labels[0], "resource": resource.resource}
            for resource, labels in mapping.associations(case["series"]["labels"]).items()
        ],
    }
    return answer if metric is None else answer | {"metric": metric}


def _contract(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is compared: not the words of an error, and not the original's `namespaced`."""
    if "error" in answer:
        return {"error": True}
    return {key: answer[key] for key in ("taken", "resources", "metric") if key in answer}


def _file(rule: str) -> str:
    """Return a rules file with this rule."""
    return "rules:\n- " + textwrap.indent(rule, "  ").lstrip()
