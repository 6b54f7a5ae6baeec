"""The API groups that are served: a module each, with its OpenAPI documents as JSON beside it."""

from __future__ import annotations

from adapter.api.groups import custom, external, resource
from adapter.api.groups.group import Group
from adapter.series.generation import Generation

_OF_RULES: tuple[Group, ...] = (custom, external)
GROUPS: tuple[Group, ...] = (*_OF_RULES, resource)
"""In the order of discovery."""


def served(generation: Generation) -> tuple[Group, ...]:
    """Return the groups to serve: metrics.k8s.io only with `resourceRules`."""
    return GROUPS if generation.resources else _OF_RULES
