"""What one rule makes of one series, or a whole file of all that Prometheus lists."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rules import ruleset
from rules.errors import ConfigError
from rules.kinds import Kinds
from tests.vectors.checks import naming_config
from tests.vectors.expect import same

FILE = "naming.json"


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    if "config" in case:
        naming_config.check_config(case, clusters)
        return
    found = _found(case, naming_config.kinds_of(case, clusters))
    # Of answers that are random in the original, one is ours, and always the same.
    answers = [_contract(answer) for answer in case.get("any_of", [case])]
    same(found, found if found in answers else answers[0], "answer")


def _found(case: Mapping[str, Any], cluster: Kinds) -> dict[str, Any]:
    try:
        rule = ruleset.load([("rules.yaml", _file(case["rule"]))]).rules[0]
    except ConfigError as error:
        return {"error": True} if "error" in case else {"error": str(error)}
    mapping = rule.mapping.bind(cluster)
    if mapping.unknown:
        # The original refuses the whole file; here the rest of it works.
        return {"error": True} if "error" in case else {"error": f"unknown: {mapping.unknown}"}
    name = case["series"]["name"]
    metric = rule.namer.metric(name)
    found: dict[str, Any] = {
        "taken": rule.filters.accept(name) and metric is not None,
        "resources": [
            {"group": resource.group, "label": labels[0], "resource": resource.resource}
            for resource, labels in mapping.carried(case["series"]["labels"]).items()
        ],
    }
    return found if metric is None else found | {"metric": metric}


def _contract(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared: that there is an error, not its words; nor the original's `namespaced`."""
    if "error" in answer:
        return {"error": True}
    return {key: answer[key] for key in ("taken", "resources", "metric") if key in answer}


def _file(rule: str) -> str:
    """The text of a file with this rule alone."""
    return "rules:\n- " + textwrap.indent(rule, "  ").lstrip()
