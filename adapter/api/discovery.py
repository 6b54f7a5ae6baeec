"""Which APIs there are: `/apis` and the documents below it, made from the groups and the catalog.

A discovery failure of one group blocks the deletion of namespaces in the whole cluster, so nothing
here asks anyone anything. Each document is encoded once per catalog snapshot and kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from aiohttp import hdrs

from adapter.api.groups.group import Group, Resource
from adapter.http import encoding, responses
from adapter.http.request_info import RequestInfo
from rules.query.catalog import Catalog

_ROOT = "/apis"
_NO_KIND = {"group": "", "version": "", "kind": ""}


class Discovery:
    """Knows the discovery documents of the served groups."""

    def __init__(
        self, groups: Sequence[Group], catalog: Callable[[], Catalog], *, secure_port: int
    ) -> None:
        self._groups = {group.NAME: group for group in groups}
        self._catalog = catalog
        self._fixed: dict[str, encoding.Document] = {_ROOT: _group_list(groups, secure_port)}
        self._listed: dict[str, tuple[Group, str]] = {}
        for group in groups:
            document = {"kind": "APIGroup", "apiVersion": "v1", **_versions(group)}
            self._fixed[f"/apis/{group.NAME}"] = document
            for version in group.VERSIONS:
                self._listed[f"/apis/{group.NAME}/{version}"] = (group, version)
        self._kept = _Kept(Catalog.empty())

    @property
    def paths(self) -> Sequence[str]:
        """Every path that has a document."""
        return (*self._fixed, *self._listed)

    def group(self, path: str) -> Group | None:
        """The served group below which `path` lies."""
        if not path.startswith("/apis/"):
            return None
        return self._groups.get(path[len("/apis/") :].partition("/")[0])

    def answer(self, info: RequestInfo, headers: Mapping[str, str]) -> responses.Answer:
        """The document at the path of `info`, which is one of `paths`. Raises ApiError (406).

        At `/apis` it is the list of everything for who asks for that, as aggregators do.
        """
        if info.path == _ROOT:
            accepted = encoding.negotiate(headers.get(hdrs.ACCEPT, ""), aggregated=True)
            if accepted is not None:
                return self._everything(accepted, info, headers)
        pretty = responses.indented(info, headers)
        return responses.Answer(body=self.encoded(info.path, pretty=pretty))

    def encoded(self, path: str, *, pretty: bool) -> bytes:
        """The document at `path`, which is one of `paths`."""
        return self._encoded(self._current(), path, pretty=pretty)

    def _everything(
        self, accepted: encoding.Accepted, info: RequestInfo, asked: Mapping[str, str]
    ) -> responses.Answer:
        """An APIGroupDiscoveryList, or 304 for who has it already."""
        kept = self._current()
        if not kept.tag:
            body = self._encoded(kept, _ROOT, version=encoding.AGGREGATED[0])
            kept.tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers: dict[str, str] = {
            hdrs.ETAG: kept.tag,
            hdrs.VARY: hdrs.ACCEPT,
            hdrs.CACHE_CONTROL: "public",
        }
        if asked.get(hdrs.IF_NONE_MATCH) == kept.tag:
            return responses.Answer(status=304, body=b"", content_type="", headers=headers)
        pretty = responses.indents(accepted, info, asked)
        body = self._encoded(kept, _ROOT, version=accepted.aggregated, pretty=pretty)
        return responses.Answer(body=body, content_type=accepted.list_type, headers=headers)

    def _current(self) -> _Kept:
        catalog = self._catalog()
        if self._kept.catalog is not catalog:
            self._kept = _Kept(catalog)
        return self._kept

    def _encoded(self, kept: _Kept, path: str, *, version: str = "", pretty: bool = False) -> bytes:
        key = (path, version, pretty)
        body = kept.bodies.get(key)
        if body is None:
            document = self._document(path, version, kept.catalog)
            body = kept.bodies[key] = encoding.encode(document, pretty=pretty)
        return body

    def _document(self, path: str, aggregated: str, catalog: Catalog) -> encoding.Document:
        if aggregated:
            return _discovery_list(tuple(self._groups.values()), aggregated, catalog)
        if path in self._fixed:
            return self._fixed[path]
        group, version = self._listed[path]
        return _resource_list(group, version, catalog)


class _Kept:
    """What was encoded of one catalog."""

    __slots__ = ("bodies", "catalog", "tag")

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.bodies: dict[tuple[str, str, bool], bytes] = {}
        self.tag = ""
        """The ETag of the list of everything, the same in each of its versions."""


def _group_list(groups: Sequence[Group], secure_port: int) -> encoding.Document:
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


def _resource_list(group: Group, version: str, catalog: Catalog) -> encoding.Document:
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
            for resource in _sorted(group, catalog)
        ],
    }


def _discovery_list(groups: Sequence[Group], version: str, catalog: Catalog) -> encoding.Document:
    """An APIGroupDiscoveryList, which is the same in each version but for its own.

    https://github.com/kubernetes/api/blob/master/apidiscovery/v2/types.go
    """
    items = [
        {
            "metadata": {"name": group.NAME},
            "versions": [
                {
                    "version": each,
                    "resources": _discovered(group, each, _sorted(group, catalog)),
                    "freshness": "Current",
                }
                for each in group.VERSIONS
            ],
        }
        for group in groups
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _discovered(
    group: Group, version: str, resources: Sequence[Resource]
) -> list[dict[str, object]]:
    """The resources with their subresources, as Kubernetes itself reads an APIResourceList.

    One that exists for its subresources alone has no kind and no verbs; clients leave it out. A
    subresource has no scope but its parent's, so one namespaced entry makes all of them so.
    """
    parents: dict[str, dict[str, object]] = {}
    subresources: dict[str, list[dict[str, object]]] = {}
    for resource in resources:
        name, slash, subresource = resource.name.partition("/")
        parent = parents.setdefault(
            name,
            {
                "resource": name,
                "responseKind": _NO_KIND,
                "scope": "Cluster",
                "singularResource": "",
                "verbs": [],
            },
        )
        kind = {"group": group.NAME, "version": version, "kind": resource.kind}
        if resource.namespaced:
            parent["scope"] = "Namespaced"
        if slash:
            subresources.setdefault(name, []).append(
                {"subresource": subresource, "responseKind": kind, "verbs": list(resource.verbs)}
            )
        else:
            parent |= {"responseKind": kind, "verbs": list(resource.verbs)}
    for name, found in subresources.items():
        parents[name]["subresources"] = found
    return list(parents.values())


def _sorted(group: Group, catalog: Catalog) -> list[Resource]:
    return sorted(group.resources(catalog), key=lambda each: each.name)
