"""The API groups that are served: a module each, with its OpenAPI documents as JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapter.server.api.groups import custom, external, resource
from adapter.server.api.groups.group import AnyGroup, Group
from adapter.server.evaluation.evaluation import Evaluated, Usages
from adapter.server.series.generation import Generation
from rules.query.aggregate import ExternalValue, Value
from rules.query.plan import ExternalPlan, Plan

_CUSTOM: Group[custom.RequestedMetric, Plan | None, Evaluated[Mapping[str, Value]]] = custom
_EXTERNAL: Group[
    external.RequestedExternal, ExternalPlan | None, Evaluated[tuple[ExternalValue, ...]]
]
_EXTERNAL = external
_RESOURCE: Group[resource.RequestedUsage, Sequence[Plan], Sequence[Usages]] = resource
_OF_RULES: tuple[AnyGroup, ...] = (_CUSTOM, _EXTERNAL)
GROUPS: tuple[AnyGroup, ...] = (*_OF_RULES, _RESOURCE)
"""In the order of discovery."""


def served(generation: Generation) -> tuple[AnyGroup, ...]:
    """Return the groups to serve: metrics.k8s.io only with `resourceRules`."""
    return GROUPS if generation.resources else _OF_RULES


def of_path(generation: Generation, path: str) -> AnyGroup | None:
    """Return the served group to which a path belongs; None if it belongs to none."""
    if not path.startswith("/apis/"):
        return None
    name = path[len("/apis/") :].partition("/")[0]
    return next((each for each in served(generation) if each.API.name == name), None)
