"""A Kubernetes API server as a small real aiohttp app: discovery, lists, failures on demand.

    cluster = kubernetes.Cluster()
    cluster.add("pods", "team-a", "web-1", labels={"app": "web"}, phase="Running")
    server = await aiohttp_server(cluster.app())
    path = kubernetes.kubeconfig(tmp_path, server)

Lists honour labelSelector, fieldSelector, limit and continue; metadata alone is given where it is
asked for. `cluster.requests` has every request in order.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import yaml
from aiohttp import test_utils, web

from rules import selectors

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of one group and version, as discovery tells it."""

    name: str
    kind: str
    group: str = ""
    version: str = "v1"
    singular: str = ""
    namespaced: bool = True
    stale: bool = False


BUILTIN = (
    Resource(name="namespaces", kind="Namespace", singular="namespace", namespaced=False),
    Resource(name="nodes", kind="Node", singular="node", namespaced=False),
    Resource(name="pods", kind="Pod", singular="pod"),
    Resource(name="services", kind="Service", singular="service"),
    Resource(group="apps", name="deployments", kind="Deployment", singular="deployment"),
    Resource(group="batch", name="jobs", kind="Job", singular="job"),
)


@dataclass(kw_only=True)
class Failure:
    """What goes wrong with the next `times` requests whose path begins with `path`."""

    path: str
    status: int = 0
    """Answer with this status and a Status document; 0 to use one of the others."""
    message: str = "as the test wants it"
    body: bytes | None = None
    """Answer with these bytes instead of a document."""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    """Break the connection off in the middle of an answer."""
    delay: float = 0.0
    """Wait before answering as usual, in seconds."""
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class Request:
    path: str
    """As it was sent, escapes and all."""
    query: dict[str, str]
    accept: str
    authorization: str | None


class Cluster:
    def __init__(self, *, aggregated: bool = True) -> None:
        self.aggregated = aggregated
        self.metadata_only = True
        """Whether PartialObjectMetadata is known here."""
        self.resources: list[Resource] = list(BUILTIN)
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.failures: deque[Failure] = deque()
        self.requests: list[Request] = []

    def add(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        phase: str | None = None,
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": labels or {}}
        if namespace:
            metadata["namespace"] = namespace
        item: dict[str, Any] = {"metadata": metadata, "spec": {"big": "x" * 100}}
        if phase is not None:
            item["status"] = {"phase": phase}
        items = self.objects.setdefault(resource, [])
        items.append(item)
        items.sort(
            key=lambda each: (each["metadata"].get("namespace", ""), each["metadata"]["name"])
        )

    def fail(self, path: str, **how: Any) -> None:
        self.failures.append(Failure(path=path, **how))

    def asked(self, prefix: str = "/") -> list[Request]:
        return [request for request in self.requests if request.path.startswith(prefix)]

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("GET", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(
            Request(
                path=request.raw_path.partition("?")[0],
                query=dict(request.query),
                accept=request.headers.get("Accept", ""),
                authorization=request.headers.get("Authorization"),
            )
        )
        failure = self._failure(request.path)
        if failure is not None:
            if failure.status:
                return _status(failure.status, failure.message, failure.headers)
            if failure.body is not None:
                return web.Response(body=failure.body, content_type="application/json")
            if failure.drop:
                return await _broken_off(request)
            await asyncio.sleep(failure.delay)
        return self._answer(request)

    def _failure(self, path: str) -> Failure | None:
        for failure in list(self.failures):
            if path.startswith(failure.path):
                failure.times -= 1
                if failure.times <= 0:
                    self.failures.remove(failure)
                return failure
        return None

    def _answer(self, request: web.Request) -> web.Response:
        parts = request.path.strip("/").split("/")
        if parts in (["api"], ["apis"]):
            return self._discovery(parts[0], request)
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 2:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return _status(404, "the server could not find the requested resource")
        if not rest:
            return self._legacy_resources(group, version)
        namespace = rest[1] if rest[0] == "namespaces" and len(rest) == 3 else None
        for resource in self.resources:
            if (resource.group, resource.version, resource.name) == (group, version, rest[-1]):
                return self._list(resource, namespace, request)
        return _status(404, "the server could not find the requested resource")

    def _list(
        self, resource: Resource, namespace: str | None, request: web.Request
    ) -> web.Response:
        selector = selectors.parse(request.query.get("labelSelector", ""))
        fields = request.query.get("fieldSelector", "")
        items = [
            item
            for item in self.objects.get(resource.name, [])
            if namespace in (None, item["metadata"].get("namespace"))
            and selector.matches(item["metadata"]["labels"])
            and _fields_match(fields, item)
        ]
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(items)
        page = items[start : start + limit]
        more = str(start + limit) if start + limit < len(items) else ""
        partial = self.metadata_only and "as=PartialObjectMetadataList" in request.headers["Accept"]
        if partial:
            page = [{"metadata": item["metadata"]} for item in page]
        kind = "PartialObjectMetadataList" if partial else f"{resource.kind}List"
        metadata = {"resourceVersion": "1", **({"continue": more} if more else {})}
        # As the real one: an empty list of metadata is null.
        return web.json_response({"kind": kind, "metadata": metadata, "items": page or None})

    def _discovery(self, root: str, request: web.Request) -> web.Response:
        groups = [group for group in self._groups() if (group == "") == (root == "api")]
        if self.aggregated and "as=APIGroupDiscoveryList" in request.headers["Accept"]:
            document = {
                "kind": "APIGroupDiscoveryList",
                "items": [self._aggregated_group(group) for group in groups],
            }
            return web.Response(
                body=json.dumps(document).encode(), headers={"Content-Type": AGGREGATED}
            )
        if root == "api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        listed = []
        for group in groups:
            versions = [
                {"groupVersion": f"{group}/{version}", "version": version}
                for version in self._versions(group)
            ]
            listed.append({"name": group, "versions": versions, "preferredVersion": versions[0]})
        return web.json_response({"kind": "APIGroupList", "groups": listed})

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(resource.group for resource in self.resources))

    def _versions(self, group: str) -> list[str]:
        return list(dict.fromkeys(each.version for each in self.resources if each.group == group))

    def _of(self, group: str, version: str) -> list[Resource]:
        return [each for each in self.resources if (each.group, each.version) == (group, version)]

    def _aggregated_group(self, group: str) -> dict[str, Any]:
        versions = []
        for version in self._versions(group):
            resources = self._of(group, version)
            documents = [
                {
                    "resource": each.name,
                    "responseKind": {"group": group, "version": version, "kind": each.kind},
                    "scope": "Namespaced" if each.namespaced else "Cluster",
                    "singularResource": each.singular,
                    "verbs": ["get", "list", "watch"],
                    "subresources": [{"subresource": "status", "verbs": ["get"]}],
                }
                for each in resources
            ]
            freshness = "Stale" if any(each.stale for each in resources) else "Current"
            versions.append({"version": version, "resources": documents, "freshness": freshness})
        return {"metadata": {"name": group} if group else {}, "versions": versions}

    def _legacy_resources(self, group: str, version: str) -> web.Response:
        documents = []
        for each in self._of(group, version):
            shared = {"kind": each.kind, "namespaced": each.namespaced, "verbs": ["get", "list"]}
            documents.append({"name": each.name, "singularName": each.singular, **shared})
            documents.append({"name": f"{each.name}/status", "singularName": "", **shared})
        if not documents:
            return _status(404, "the server could not find the requested resource")
        return web.json_response({"kind": "APIResourceList", "resources": documents})


def kubeconfig(folder: pathlib.Path, server: test_utils.TestServer, **user: Any) -> str:
    """A kubeconfig for the server; `user` has what it says of its user (token, tokenFile, exec)."""
    path = folder / "kubeconfig"
    context = {"cluster": "fake", "user": "fake"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": str(server.make_url("/"))}}],
        "users": [{"name": "fake", "user": user}],
        "contexts": [{"name": "fake", "context": context}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def _fields_match(selector: str, item: dict[str, Any]) -> bool:
    known = {
        "metadata.name": item["metadata"]["name"],
        "metadata.namespace": item["metadata"].get("namespace", ""),
        "status.phase": item.get("status", {}).get("phase", ""),
    }
    for requirement in filter(None, selector.split(",")):
        name, negated, value = requirement.partition("!=")
        if not negated:
            name, _, value = requirement.partition("=")
        if (known[name] == value) is bool(negated):
            return False
    return True


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return web.json_response({**document, "code": code}, status=code, headers=headers)


async def _broken_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"kind":')
    assert request.transport is not None
    request.transport.abort()
    return response
