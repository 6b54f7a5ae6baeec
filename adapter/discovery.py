"""Which APIs there are: `/apis` and the documents below it, made from the groups and the catalog.

A discovery failure of one group blocks the deletion of namespaces in the whole cluster, so nothing
here asks anyone anything. Each document is encoded once per catalog snapshot and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from adapter import wire
from adapter.groups.group import Group
from rules.catalog import Catalog


class Discovery:
    """Knows the discovery documents of the served groups."""

    def __init__(
        self, groups: Sequence[Group], catalog: Callable[[], Catalog], *, secure_port: int
    ) -> None:
        self._groups = {group.NAME: group for group in groups}
        self._catalog = catalog
        self._fixed: dict[str, wire.Document] = {"/apis": _group_list(groups, secure_port)}
        self._listed: dict[str, tuple[Group, str]] = {}
        for group in groups:
            document = {"kind": "APIGroup", "apiVersion": "v1", **_versions(group)}
            self._fixed[f"/apis/{group.NAME}"] = document
            for version in group.VERSIONS:
                self._listed[f"/apis/{group.NAME}/{version}"] = (group, version)
        self._kept: tuple[Catalog | None, dict[tuple[str, bool], bytes]] = (None, {})

    @property
    def paths(self) -> Sequence[str]:
        """Every path that has a document."""
        return (*self._fixed, *self._listed)

    def group(self, path: str) -> Group | None:
        """The served group below which `path` lies."""
        if not path.startswith("/apis/"):
            return None
        return self._groups.get(path[len("/apis/") :].partition("/")[0])

    def encoded(self, path: str, *, pretty: bool) -> bytes:
        """The document at `path`, which is one of `paths`."""
        catalog = self._catalog()
        kept_for, kept = self._kept
        if kept_for is not catalog:
            kept = {}
            self._kept = (catalog, kept)
        body = kept.get((path, pretty))
        if body is None:
            body = kept[path, pretty] = wire.encode(self._document(path, catalog), pretty=pretty)
        return body

    def _document(self, path: str, catalog: Catalog) -> wire.Document:
        if path in self._fixed:
            return self._fixed[path]
        group, version = self._listed[path]
        return _resource_list(group, version, catalog)


def _group_list(groups: Sequence[Group], secure_port: int) -> wire.Document:
    """An APIGroupList; like the original's it has no apiVersion, and no host in its address."""
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": f":{secure_port}"}
    return {
        "kind": "APIGroupList",
        "groups": [
            {**_versions(group), "serverAddressByClientCIDRs": [address]} for group in groups
        ],
    }


def _versions(group: Group) -> Mapping[str, object]:
    versions = [
        {"groupVersion": f"{group.NAME}/{version}", "version": version}
        for version in group.VERSIONS
    ]
    return {"name": group.NAME, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: Group, version: str, catalog: Catalog) -> wire.Document:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group.NAME}/{version}",
        "resources": [
            {
                "name": resource.name,
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            for resource in sorted(group.resources(catalog), key=lambda each: each.name)
        ],
    }
