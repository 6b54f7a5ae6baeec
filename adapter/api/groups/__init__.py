"""The API groups that are served: a module each, with its OpenAPI documents as JSON beside it."""

from __future__ import annotations

from adapter.api.groups import custom, external, resource
from adapter.api.groups.group import Group
from rules.ruleset import RuleSet

GROUPS: tuple[Group, ...] = (custom, external, resource)
"""In the order of discovery."""


def served(ruleset: RuleSet) -> tuple[Group, ...]:
    """Return the groups to serve: metrics.k8s.io only with `resourceRules`."""
    return tuple(each for each in GROUPS if each is not resource or ruleset.resource_rules)
