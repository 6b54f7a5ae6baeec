"""What a Kubernetes API server says it serves: its discovery documents as ApiGroup values. Pure.

Both forms are read: aggregated discovery, and the older one with a document for each group and
version. A malformed document raises KeyError, TypeError or AttributeError, for the caller to name.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rules.kinds import ApiGroup, ApiResource

_AGGREGATED = "as=APIGroupDiscoveryList"
ACCEPT = ",".join(
    (
        f"application/json;g=apidiscovery.k8s.io;v=v2;{_AGGREGATED}",
        f"application/json;g=apidiscovery.k8s.io;v=v2beta1;{_AGGREGATED}",
        "application/json",
    )
)
"""What to accept at /api and /apis: the newest form first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A group of the older form, of which only the versions are known yet."""

    name: str
    preferred: str
    paths: Mapping[str, str]
    """Where each version's resources are listed, in the group's order of versions."""


def is_aggregated(media_type: str) -> bool:
    return _AGGREGATED in media_type


def aggregated(document: Any) -> list[ApiGroup]:
    """The groups of an APIGroupDiscoveryList; a version that is stale there is left out."""
    groups: list[ApiGroup] = []
    for item in document["items"] or ():
        resources = {
            version["version"]: _resources(version)
            for version in item.get("versions") or ()
            if version.get("freshness") != "Stale"
        }
        if resources:
            groups.append(_group(item["metadata"].get("name", ""), resources))
    return groups


def listed(document: Any) -> list[Listed]:
    """The groups of an APIVersions (/api) or an APIGroupList (/apis)."""
    if document["kind"] == "APIVersions":
        versions = document["versions"]
        paths = {version: f"/api/{version}" for version in versions}
        return [Listed(name="", preferred=versions[0], paths=paths)]
    return [
        Listed(
            name=item["name"],
            preferred=item["preferredVersion"]["version"],
            paths={
                each["version"]: f"/apis/{item['name']}/{each['version']}"
                for each in item["versions"]
            },
        )
        for item in document["groups"] or ()
    ]


def group(group: Listed, documents: Mapping[str, Any]) -> ApiGroup:
    """A group of the older form with its APIResourceLists; a version without one is left out."""
    resources = {
        version: tuple(
            _resource(item["name"], item.get("singularName"), item["kind"], item["namespaced"])
            for item in documents[version]["resources"] or ()
        )
        for version in group.paths
        if version in documents
    }
    return _group(group.name, resources, group.preferred)


def _group(
    name: str, resources: Mapping[str, tuple[ApiResource, ...]], preferred: str = ""
) -> ApiGroup:
    versions = tuple(resources)
    return ApiGroup(
        name=name,
        versions=versions,
        preferred=preferred if preferred in versions else next(iter(versions), ""),
        resources=resources,
    )


def _resources(version: Mapping[str, Any]) -> tuple[ApiResource, ...]:
    """Without those that only carry subresources: they have no kind of their own."""
    return tuple(
        _resource(
            item["resource"],
            item.get("singularResource"),
            item["responseKind"]["kind"],
            item["scope"] == "Namespaced",
        )
        for item in version.get("resources") or ()
        if (item.get("responseKind") or {}).get("kind")
    )


def _resource(name: str, singular: str | None, kind: str, namespaced: bool) -> ApiResource:
    return ApiResource(name=name, singular=singular or "", kind=kind, namespaced=namespaced)
