"""Discovery: `/apis` and the documents below it, built from the API groups and the catalog.

If discovery of one group fails, Kubernetes finalizes no namespace in the whole cluster. Therefore
discovery never waits for Prometheus or the API server. Each document is encoded once per catalog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from aiohttp import hdrs

from adapter.server.api import groups as api_groups
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.groups import external
from adapter.server.api.groups.group import AnyGroup, Content, Resource
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.negotiation import Accepted, Transform
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer
from adapter.server.series.generation import Generation
from rules.query.catalog import Catalog

_ROOT = "/apis"
_AGGREGATED = tuple(
    Transform(kind="APIGroupDiscoveryList", group="apidiscovery.k8s.io", version=version)
    for version in ("v2", "v2beta1")
)
"""Forms in which all groups are sent at `/apis`, the preferred one first."""
_NO_KIND = {"group": "", "version": "", "kind": ""}


class Discovery:
    """The discovery documents of each generation."""

    def __init__(
        self, *, secure_port: int, elsewhere: Callable[[], tuple[str, ...]] = tuple
    ) -> None:
        self._port = secure_port
        self._elsewhere = elsewhere
        """Returns the external metrics of another server."""
        self._present: Documents | None = None
        self.encoded = EncodedAnswers()
        """With a thread of its own: discovery does not wait until large lists are encoded."""

    def of(self, generation: Generation) -> Documents:
        """Return the documents of a generation, the same object if they are the same."""
        served, catalog = api_groups.served(generation), generation.catalog
        elsewhere = self._elsewhere()
        present = self._present
        if (
            present is None
            or present.catalog is not catalog
            or present.served != served
            or present.elsewhere is not elsewhere
        ):
            present = self._present = Documents(
                served, catalog, elsewhere, port=self._port, encoded=self.encoded
            )
        return present


class Documents:
    """The discovery documents of API groups and of their metrics."""

    def __init__(
        self,
        served: Sequence[AnyGroup],
        catalog: Catalog,
        elsewhere: tuple[str, ...] = (),
        *,
        port: int,
        encoded: EncodedAnswers,
    ) -> None:
        self.served = served
        self.catalog = catalog
        self.elsewhere = elsewhere
        self._encoded = encoded
        self._static: dict[str, encoding.Document] = {_ROOT: _group_list(served, port)}
        self._resource_lists: dict[str, tuple[AnyGroup, str]] = {}
        for group in served:
            document = {"kind": "APIGroup", "apiVersion": "v1", **_versions(group)}
            self._static[f"/apis/{group.API.name}"] = document
            for version in group.API.versions:
                self._resource_lists[group.API.path(version)] = (group, version)
        self._etag = ""
        """The ETag of aggregated discovery, the same for each version; empty until requested."""

    @property
    def paths(self) -> Sequence[str]:
        """All paths with a discovery document."""
        return (*self._static, *self._resource_lists)

    def has(self, path: str) -> bool:
        """Return whether a path has a discovery document."""
        return path in self._static or path in self._resource_lists

    async def answer(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Return the document of one of `paths`. Raises ApiError (406).

        At `/apis` this is aggregated discovery, if the Accept header requests it.
        """
        if info.path == _ROOT:
            accepted = negotiation.negotiate(headers.get(hdrs.ACCEPT, ""), frozenset(_AGGREGATED))
            if accepted is not None:
                return await self._aggregated(
                    negotiation.with_layout(accepted, info, headers), headers
                )
        return await self._encode(info.path, negotiation.of_request(info, headers))

    async def _aggregated(self, accepted: Accepted, request_headers: Mapping[str, str]) -> Answer:
        """Return an APIGroupDiscoveryList, or 304 if the client has it."""
        if not self._etag:
            plain = Accepted(encoding=encoding.JSON, transform=_AGGREGATED[0])
            body = (await self._encode(_ROOT, plain)).body
            self._etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers: dict[str, str] = {
            hdrs.ETAG: self._etag,
            hdrs.VARY: hdrs.ACCEPT,
            hdrs.CACHE_CONTROL: "public",
        }
        if request_headers.get(hdrs.IF_NONE_MATCH) == self._etag:
            return Answer(status=304, body=b"", content_type="", headers=headers)
        kind, group, version = accepted.transform
        content_type = f"{accepted.encoding};g={group};v={version};as={kind}"
        encoded = await self._encode(_ROOT, accepted)
        return replace(encoded, content_type=content_type, headers=headers)

    async def _encode(self, path: str, accepted: Accepted) -> Answer:
        is_list = accepted.transform.version or path in self._resource_lists
        content = Content(
            sources=(self,),
            items=len(self.catalog.entries) + len(self.catalog.external) if is_list else 1,
            build=lambda form: self._document(path, form.version),
        )
        return await self._encoded.encode((path,), content, accepted)

    def _document(self, path: str, aggregated: str) -> encoding.Document:
        """Build a document, in version `aggregated` of aggregated discovery if that is set."""
        if aggregated:
            return _group_discovery_list(self.served, aggregated, self._resources)
        if path in self._static:
            return self._static[path]
        group, version = self._resource_lists[path]
        return _resource_list(group, version, self._resources(group))

    def _resources(self, group: AnyGroup) -> list[Resource]:
        """Return the entries of a group, those of the other server included, by name."""
        own = {each.name: each for each in group.resources(self.catalog)}
        more = external.entries(self.elsewhere) if group.API.name == external.API.name else ()
        return [each for _, each in sorted(({each.name: each for each in more} | own).items())]


def _group_list(groups: Sequence[AnyGroup], secure_port: int) -> encoding.Document:
    """Build the APIGroupList; like the original's, without apiVersion and without a host."""
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": f":{secure_port}"}
    return {
        "kind": "APIGroupList",
        "groups": [
            {**_versions(group), "serverAddressByClientCIDRs": [address]} for group in groups
        ],
    }


def _versions(group: AnyGroup) -> Mapping[str, object]:
    versions = [
        {"groupVersion": group.API.group_version(version), "version": version}
        for version in group.API.versions
    ]
    return {"name": group.API.name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(
    group: AnyGroup, version: str, resources: Iterable[Resource]
) -> encoding.Document:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group.API.group_version(version),
        "resources": [
            {
                "name": resource.name,
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": resource.verbs,
            }
            for resource in resources
        ],
    }


def _group_discovery_list(
    groups: Sequence[AnyGroup], aggregated: str, resources: Callable[[AnyGroup], Sequence[Resource]]
) -> encoding.Document:
    """Build the APIGroupDiscoveryList of version `aggregated` of apidiscovery.k8s.io.

    https://github.com/kubernetes/api/blob/master/apidiscovery/v2/types.go
    """
    items = [
        {
            "metadata": {"name": group.API.name},
            "versions": [
                {
                    "version": version,
                    "resources": _with_subresources(group, version, resources(group)),
                    "freshness": "Current",
                }
                for version in group.API.versions
            ],
        }
        for group in groups
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{aggregated}",
        "metadata": {},
        "items": items,
    }


def _with_subresources(
    group: AnyGroup, version: str, resources: Sequence[Resource]
) -> list[dict[str, object]]:
    """Nest subresources (`pods/METRIC`) into their resources, as Kubernetes converts a list.

    A resource that has only subresources gets no kind and no verbs; clients leave it out.
    Subresources share the scope of their resource: one namespaced entry makes it namespaced.
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
        kind = {"group": group.API.name, "version": version, "kind": resource.kind}
        if resource.namespaced:
            parent["scope"] = "Namespaced"
        if slash:
            subresources.setdefault(name, []).append(
                {"subresource": subresource, "responseKind": kind, "verbs": resource.verbs}
            )
        else:
            parent |= {"responseKind": kind, "verbs": resource.verbs}
    for name, nested in subresources.items():
        parents[name]["subresources"] = nested
    return list(parents.values())
