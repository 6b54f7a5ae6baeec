"""Parser of the discovery documents of a Kubernetes API server. Pure.

It reads aggregated discovery and the older form with one document per group and version. The
functions raise one of `MALFORMED` for malformed documents.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.kinds import ApiGroup, ApiResource

MALFORMED = (AttributeError, IndexError, KeyError, TypeError)
AGGREGATED = "as=APIGroupDiscoveryList"
"""Part of the Content-Type of aggregated discovery."""
ACCEPT = ",".join(
    (
        f"application/json;g=apidiscovery.k8s.io;v=v2;{AGGREGATED}",
        f"application/json;g=apidiscovery.k8s.io;v=v2beta1;{AGGREGATED}",
        "application/json",
    )
)
"""Accept header for /api and /apis, which prefers aggregated discovery."""


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
            groups.append(group(item["metadata"].get("name", ""), resources))
    return groups


def legacy_groups(document: Any) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Parse an APIVersions (/api) or an APIGroupList (/apis).

    Yields the name of each group, its preferred version, and the path of the APIResourceList of
    each version.
    """
    if document["kind"] == "APIVersions":
        versions = document["versions"]
        yield "", versions[0], {version: f"/api/{version}" for version in versions}
        return
    for item in document["groups"] or ():
        name = item["name"]
        versions = [each["version"] for each in item["versions"]]
        paths = {version: f"/apis/{name}/{version}" for version in versions}
        yield name, item["preferredVersion"]["version"], paths


def legacy_resources(document: Any) -> tuple[ApiResource, ...]:
    """Parse the APIResourceList of one version."""
    return tuple(
        _resource(item["name"], item.get("singularName"), item["kind"], item["namespaced"])
        for item in document["resources"] or ()
    )


def group(
    name: str, resources: Mapping[str, tuple[ApiResource, ...]], preferred: str = ""
) -> ApiGroup:
    """Build a group from the resources of its versions, of which there is at least one."""
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
    texts = {"name": name, "singular": singular or "", "kind": kind}
    "".join(texts.values())  # raises TypeError if one is not a string
    return ApiResource(**texts, namespaced=bool(namespaced))
