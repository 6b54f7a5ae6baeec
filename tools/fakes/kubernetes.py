"""Fake Kubernetes API server on aiohttp: discovery, lists, watches, failures on demand.

    cluster = kubernetes.Cluster()
    cluster.add("pods", "team-a", "web-1", labels={"app": "web"}, phase="Running")
    server = await aiohttp_server(cluster.app())
    path = kubernetes.kubeconfig(tmp_path, server)

Lists support labelSelector, fieldSelector, limit, continue and PartialObjectMetadata. Watches see
the changes of `put` and `remove`. Reviews are answered from `tokens` and `decide`.
`cluster.requests` records every request in order.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import test_utils, web

from rules.selectors import selectors
from tools import kubeconfig as kubeconfig_file

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Resource of one group and version, as in discovery."""

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

CONFIGMAPS = Resource(name="configmaps", kind="ConfigMap", singular="configmap")
HPAS = Resource(
    group="autoscaling",
    version="v2",
    name="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
    singular="horizontalpodautoscaler",
)
TRUST = ("configmaps", "kube-system", "extension-apiserver-authentication")
"""ConfigMap with the client CAs for extension API servers, as arguments of `put`."""
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(kw_only=True)
class Failure:
    """Failure of the next `times` requests whose path starts with `path`."""

    path: str
    status: int = 0
    """Respond with this status and a metav1.Status; 0 means one of the following failures."""
    message: str = "failure of the test"
    body: bytes | None = None
    """Respond with these bytes instead of a document."""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    """Abort the connection in the middle of a response."""
    delay: float = 0.0
    """Respond as usual after this many seconds."""
    until: asyncio.Event | None = None
    """Respond as usual once this is set."""
    times: int = 1
    watch: bool | None = None
    """Whether the failure is one of watches or of other requests; None means of both."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request that the server received."""

    path: str
    """As sent, with escapes."""
    query: dict[str, str]
    accept: str
    authorization: str | None
    method: str = "GET"
    content_type: str = ""
    document: Any = None
    """Parsed body."""


class Cluster:
    """Objects, their history for watches, and the requests received."""

    def __init__(self) -> None:
        self.aggregated = True
        self.metadata_only = True
        """Whether PartialObjectMetadata is supported."""
        self.resources: list[Resource] = list(BUILTIN)
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.failures: deque[Failure] = deque()
        self.requests: list[Request] = []
        self.tokens: dict[str, dict[str, Any]] = {}
        """Token -> status of its TokenReview; other tokens are not authenticated."""
        self.decide: Callable[[dict[str, Any]], dict[str, Any]] = lambda spec: {"allowed": True}
        """Returns the status of a SubjectAccessReview for its spec."""
        self.version = 1
        self.oldest = 1
        """Oldest resourceVersion that a watch may start from."""
        self.silent = False
        """Whether watches stay open without a line."""
        self._history: list[tuple[int, str, Any, dict[str, Any]]] = []
        """Version, resource, object before the change (None if it is new), object."""
        self._watches: list[asyncio.Queue[bool]] = []

    def add(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        phase: str | None = None,
    ) -> None:
        """Create an object; watches see it."""
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

    def put(self, resource: str, namespace: str, name: str, **content: Any) -> None:
        """Create or replace an object and notify watches; `labels` go to its metadata."""
        item = self._find(resource, namespace, name)
        previous = json.loads(json.dumps(item))
        if item is None:
            self.add(resource, namespace, name)
            item = self._find(resource, namespace, name)
            assert item is not None
        if "labels" in content:
            item["metadata"]["labels"] = content.pop("labels")
        item.update(content)
        self._record(resource, previous, item)

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object; watches see it."""
        item = self._find(resource, namespace, name)
        assert item is not None
        self.objects[resource].remove(item)
        self._record(resource, item, item, deleted=True)

    def end_watches(self) -> None:
        """End all watches, as the API server does from time to time."""
        for queue in self._watches:
            queue.put_nowait(False)

    def forget(self) -> None:
        """Expire all resourceVersions so far."""
        self.version += 1
        self.oldest = self.version
        self._history.clear()

    @property
    def watching(self) -> int:
        """Number of open watches."""
        return len(self._watches)

    def _find(self, resource: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        for item in self.objects.get(resource, []):
            metadata = item["metadata"]
            if (metadata.get("namespace"), metadata["name"]) == (namespace or None, name):
                return item
        return None

    def _record(
        self, resource: str, previous: Any, item: dict[str, Any], *, deleted: bool = False
    ) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        current = {**json.loads(json.dumps(item)), "deleted": deleted}
        self._history.append((self.version, resource, previous, current))
        for queue in self._watches:
            queue.put_nowait(True)

    def fail(self, path: str, **how: Any) -> None:
        """Let the next request for `path` fail; `how` are fields of Failure."""
        self.failures.append(Failure(path=path, **how))

    def requests_to(self, prefix: str = "/") -> list[Request]:
        """Return the requests whose path starts with `prefix`."""
        return [request for request in self.requests if request.path.startswith(prefix)]

    def app(self) -> web.Application:
        """Return the application that serves the objects."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_shutdown.append(self._on_shutdown)
        return app

    async def _on_shutdown(self, _app: web.Application) -> None:
        self.end_watches()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(
            Request(
                path=request.raw_path.partition("?")[0],
                query=dict(request.query),
                accept=request.headers.get("Accept", ""),
                authorization=request.headers.get("Authorization"),
                method=request.method,
                content_type=request.content_type if request.can_read_body else "",
                document=_parse(await request.text()) if request.can_read_body else None,
            )
        )
        failure = self._failure(request.path, watch=request.query.get("watch") == "true")
        if failure is not None:
            if failure.status:
                return _status(failure.status, failure.message, failure.headers)
            if failure.body is not None:
                return web.Response(body=failure.body, content_type="application/json")
            if failure.drop:
                return await _abort(request)
            await asyncio.sleep(failure.delay)
            if failure.until is not None:
                await failure.until.wait()
        if request.query.get("watch") == "true":
            return await self._watch(request)
        if request.method != "GET":
            return self._write(request.method, request.path, self.requests[-1].document)
        return self._respond(request)

    def _write(self, method: str, path: str, document: Any) -> web.Response:
        if method == "POST" and path == TOKEN_REVIEWS:
            status = self.tokens.get(document["spec"]["token"], {"authenticated": False})
            return web.json_response({**document, "status": status}, status=201)
        if method == "POST" and path == ACCESS_REVIEWS:
            return web.json_response(
                {**document, "status": self.decide(document["spec"])}, status=201
            )
        return web.json_response(document, status=201 if method == "POST" else 200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        seen = int(request.query["resourceVersion"])
        if seen < self.oldest:
            return _status(410, "The resourceVersion for the provided watch is too old.")
        resource = request.path.rsplit("/", 1)[-1]
        fields = request.query.get("fieldSelector", "")
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        partial = self.metadata_only and "as=PartialObjectMetadata;" in request.headers["Accept"]
        queue: asyncio.Queue[bool] = asyncio.Queue()
        self._watches.append(queue)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            running = True
            while running:
                for version, changed, previous, item in list(self._history):
                    if version > seen and changed == resource and not self.silent:
                        event = _event(fields, previous, item, partial=partial)
                        await response.write(event)
                    seen = max(seen, version)
                if self.version > seen and bookmarks and not self.silent:
                    seen = self.version
                    metadata = {"resourceVersion": str(seen)}
                    bookmark = {"type": "BOOKMARK", "object": {"metadata": metadata}}
                    await response.write(json.dumps(bookmark).encode() + b"\n")
                running = await queue.get()
        finally:
            self._watches.remove(queue)
        return response

    def _failure(self, path: str, *, watch: bool) -> Failure | None:
        for failure in list(self.failures):
            if path.startswith(failure.path) and failure.watch in (None, watch):
                failure.times -= 1
                if failure.times <= 0:
                    self.failures.remove(failure)
                return failure
        return None

    def _respond(self, request: web.Request) -> web.Response:
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
        if rest[0] == "namespaces" and len(rest) == 4:
            item = self._find(rest[2], rest[1], rest[3])
            if item is None:
                return _status(404, f'{rest[2]} "{rest[3]}" not found')
            return web.json_response(item)
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
        metadata = {"resourceVersion": str(self.version), **({"continue": more} if more else {})}
        # The real API server, too, writes null for an empty list of metadata.
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

    def _resources(self, group: str, version: str) -> list[Resource]:
        return [each for each in self.resources if (each.group, each.version) == (group, version)]

    def _aggregated_group(self, group: str) -> dict[str, Any]:
        versions = []
        for version in self._versions(group):
            resources = self._resources(group, version)
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
        for each in self._resources(group, version):
            shared = {"kind": each.kind, "namespaced": each.namespaced, "verbs": ["get", "list"]}
            documents.append({"name": each.name, "singularName": each.singular, **shared})
            documents.append({"name": f"{each.name}/status", "singularName": "", **shared})
        if not documents:
            return _status(404, "the server could not find the requested resource")
        return web.json_response({"kind": "APIResourceList", "resources": documents})


def kubeconfig(folder: pathlib.Path, server: test_utils.BaseTestServer, **user: Any) -> str:
    """Write a kubeconfig for the server; `user` has the user's fields (token, tokenFile, exec)."""
    cluster = {"server": str(server.make_url("/"))}
    return str(kubeconfig_file.write(folder / "kubeconfig", cluster, user))


def _parse(text: str) -> Any:
    """Parse JSON like Go, which replaces lone surrogates."""
    return json.loads(re.sub(r"\\ud[89a-f][0-9a-f]{2}", r"\\ufffd", text))


def _fields_match(selector: str, item: dict[str, Any]) -> bool:
    fields = {
        "metadata.name": item["metadata"]["name"],
        "metadata.namespace": item["metadata"].get("namespace", ""),
        "status.phase": item.get("status", {}).get("phase", ""),
    }
    for requirement in filter(None, selector.split(",")):
        name, negated, value = requirement.partition("!=")
        if not negated:
            name, _, value = requirement.partition("=")
        if (fields[name] == value) is bool(negated):
            return False
    return True


def _event(fields: str, previous: Any, item: dict[str, Any], *, partial: bool) -> bytes:
    """Return the line of a watch with a field selector; empty if it sees no change."""
    before = previous is not None and _fields_match(fields, previous)
    after = not item["deleted"] and _fields_match(fields, item)
    kind = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}
    if (before, after) not in kind:
        return b""
    document = {key: value for key, value in item.items() if key == "metadata" or not partial}
    return json.dumps({"type": kind[before, after], "object": document}).encode() + b"\n"


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return web.json_response({**document, "code": code}, status=code, headers=headers)


async def _abort(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"kind":')
    assert request.transport is not None
    request.transport.abort()
    return response
