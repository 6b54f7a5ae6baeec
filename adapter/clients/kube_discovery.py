"""Parser of the discovery documents of a Kubernetes API server. Pure.

It reads aggregated discovery and the older form with one document per group and version. The
functions raise KeyError, TypeError or AttributeError for malformed documents.

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
"""Accept header for /api and /apis, which prefers aggregated discovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyGroup:
    """API group of the older form, without the resources of its versions."""

    name: str
    preferred: str
    paths: Mapping[str, str]
    """Version -> path of its APIResourceList, in discovery order."""


def is_aggregated(media_type: str) -> bool:
    """Return whether a response with this Content-Type is aggregated discovery."""
    return _AGGREGATED in media_type


def aggregated_groups(document: Any) -> list[ApiGroup]:
    """Parse an APIGroupDiscoveryList; versions that the server marks as stale are left out."""
    groups: list[ApiGroup] = []
    for item in document["items"] or ():
        resources = {
            version["version"]: _aggregated_resources(version)
            for version in item.get("versions") or ()
            if version.get("freshness") != "Stale"
        }
        if resources:
            groups.append(_group(item["metadata"].get("name", ""), resources))
    return groups


def legacy_groups(document: Any) -> list[LegacyGroup]:
    """Parse an APIVersions (/api) or an APIGroupList (/apis)."""
    if document["kind"] == "APIVersions":
        versions = document["versions"]
        paths = {version: f"/api/{version}" for version in versions}
        return [LegacyGroup(name="", preferred=versions[0], paths=paths)]
    return [
        LegacyGroup(
            name=item["name"],
            preferred=item["preferredVersion"]["version"],
            paths={
                each["version"]: f"/apis/{item['name']}/{each['version']}"
                for each in item["versions"]
            },
        )
        for item in document["groups"] or ()
    ]


def legacy_group(group: LegacyGroup, documents: Mapping[str, Any]) -> ApiGroup:
    """Combine a group with its APIResourceLists by version; there must be at least one."""
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
        preferred=preferred if preferred in versions else versions[0],
        resources=resources,
    )


def _aggregated_resources(version: Mapping[str, Any]) -> tuple[ApiResource, ...]:
    """Parse the resources of a version; one without a kind only carries subresources."""
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
