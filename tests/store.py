"""Fake storage of an API server on aiohttp: resourceVersions, conflicts, merge patches.

    store = Store()
    store.put("/apis/apiregistration.k8s.io/v1/apiservices/v1.x", {...})
    server = await aiohttp_server(store.app())

Objects are stored by path. `writes` records every accepted write in order.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from aiohttp import web

REGISTRATION = "/apis/apiregistration.k8s.io/v1/apiservices/"


class Store:
    """API server that stores whole documents by path, with resourceVersions."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.writes: list[tuple[str, str, Any]] = []
        self.refuse: Callable[[str, str], int] = lambda method, path: 0
        """Returns the error status for a method and a path; 0 means to serve the request."""
        self.delay = 0.0
        """Seconds that every request takes, so that others can interleave."""

    def put(self, path: str, document: dict[str, Any]) -> None:
        """Store a document with the next resourceVersion."""
        self.version += 1
        metadata = {**document.get("metadata", {}), "resourceVersion": str(self.version)}
        metadata.setdefault("name", path.rsplit("/", 1)[-1])
        self.objects[path] = {**copy.deepcopy(document), "metadata": metadata}

    def register(self, name: str, service: str, namespace: str, **spec: Any) -> str:
        """Store an APIService that is not available; return its path."""
        path = REGISTRATION + name
        named = {"name": service, "namespace": namespace, "port": 443}
        self.put(path, {"kind": "APIService", "spec": {"service": named, **spec}, "status": {}})
        return path

    def app(self) -> web.Application:
        """Return the application that serves the documents."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        document: Any = await request.json() if request.can_read_body else None
        await asyncio.sleep(self.delay)
        status = self.refuse(request.method, request.path)
        if not status:
            status = getattr(self, f"_{request.method.lower()}")(request.path, document)
        if status >= 400:
            return web.json_response({"kind": "Status", "message": "refused"}, status=status)
        if request.method == "POST":
            path = f"{request.path}/{document['metadata']['name']}"
        else:
            path = request.path
        if request.method != "GET":
            self.writes.append((request.method, path, document))
        return web.json_response(self.objects[path], status=status)

    def _get(self, path: str, _document: Any) -> int:
        return 200 if path in self.objects else 404

    def _post(self, path: str, document: Any) -> int:
        name = f"{path}/{document['metadata']['name']}"
        if name in self.objects:
            return 409
        self.put(name, document)
        return 201

    def _put(self, path: str, document: Any) -> int:
        if path not in self.objects:
            return 404
        if self._conflicts(path, document):
            return 409
        self.put(path, document)
        return 200

    def _patch(self, path: str, document: Any) -> int:
        if path not in self.objects:
            return 404
        if self._conflicts(path, document):
            return 409
        patched = _merged(self.objects[path], document)
        spec = patched.get("spec", {})
        if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
            return 422
        self.put(path, patched)
        return 200

    def _conflicts(self, path: str, document: Any) -> bool:
        sent = document.get("metadata", {}).get("resourceVersion")
        return sent not in (None, self.objects[path]["metadata"]["resourceVersion"])


def _merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
