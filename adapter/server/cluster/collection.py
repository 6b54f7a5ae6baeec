"""Paths and parameters of the lists and watches of a kind, and the rights to them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import replace

from adapter.clients.rights import Right
from rules.kinds import NAMESPACES, NODES, PODS, WORKLOADS, GroupResource, Kind, Kinds
from rules.ruleset import RuleSet

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


def path(kind: Kind, namespace: str = "") -> str:
    """Return the path of a kind's collection: of a namespace, or of the whole cluster."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        root = f"{root}/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"{root}/{kind.resource}"


def params(kind: Kind, *, name: str = "", labels: str = "") -> Mapping[str, str]:
    """Return the field selector that leaves out finished pods, and objects not called `name`.

    To a watch with this selector, a pod that finishes is deleted. `labels` is a label selector.
    """
    terms = ([named(name)] if name else []) + ([_UNFINISHED] if kind.group_resource == PODS else [])
    return {
        **({"fieldSelector": ",".join(terms)} if terms else {}),
        **({"labelSelector": labels} if labels else {}),
    }


def named(name: str) -> str:
    """Return the field selector for one object.

    The value is escaped like k8s.io/apimachinery/pkg/fields.EscapeValue.
    """
    escaped = name.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    return f"metadata.name={escaped}"


def rights(ruleset: RuleSet, kinds: Kinds) -> Iterator[Right]:
    """Yield the rights to read the objects that overrides of rules map to."""
    resources = {PODS, NODES} if ruleset.resource_rules else {PODS}
    for rule in ruleset.rules:
        labels = [each.label for each in rule.config.resources.overrides]
        resources.update(rule.mapping.bind(kinds).associations(labels))
    yield from map(right, sorted(resources - {NAMESPACES}, key=str))
    if any(rule.config.workloads for rule in ruleset.rules):
        for resource in WORKLOADS:
            consequence = f"metrics of {resource} cannot be computed from their pods"
            yield replace(right(resource), consequence=consequence)


def right(resource: GroupResource) -> Right:
    """Return the right to read the objects of a resource."""
    return Right(
        group=resource.group,
        resource=resource.resource,
        verbs=("list", "watch"),
        consequence=f"metrics of {resource} cannot be selected by labels",
    )
