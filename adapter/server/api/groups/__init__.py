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
_BY_NAME = {each.API.name: each for each in GROUPS}


def served(generation: Generation) -> tuple[AnyGroup, ...]:
    """Return the groups to serve: metrics.k8s.io only with `resourceRules`."""
    return GROUPS if generation.resources else _OF_RULES


def of_path(generation: Generation, path: str) -> AnyGroup | None:
    """Return the served group to which a path belongs; None if it belongs to none."""
    if not path.startswith("/apis/"):
        return None
    group = _BY_NAME.get(path[len("/apis/") :].partition("/")[0])
    return None if group is _RESOURCE and not generation.resources else group
