"""Stand-in for kube-apiserver that counts requests.

    python -m tools.bench.api_server FOLDER SIZE [PORT]

Lists of pods are encoded once, so that this process needs little of the CPU. Discovery, the
ConfigMap with the trusted CAs and all other kinds come from the fake of the tests, and every access
is allowed. A watch has bookmarks only. GET /counts returns the number of requests by verb and
resource. With a port, each pod has an exporter there.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import test_utils, web

from tools.bench import exporters, processes, workload
from tools.bench.workload import Size
from tools.fakes import kubernetes

COUNTS = "/counts"
OPEN_WATCHES = "open watches of pods"
"""Entry among the counts that also goes down."""

_BOOKMARK_SECONDS = 10.0
_JSON = "application/json"
_VERSION = "1000"
_FORBIDDEN_WATCH = "sendInitialEvents is forbidden for watch unless WatchList is enabled"


class ApiServer:
    """Answers for the pods of one size, and the counts of all requests."""

    def __init__(self, size: Size, port: int | None = None) -> None:
        self._counts: Counter[str] = Counter()
        names = ((*app, name) for app in size.apps() for name in size.pod_names(app[1]))
        pods = [workload.pod(*each, number) for number, each in enumerate(names)]
        for number, each in enumerate(pods):
            if port:
                exporters.attach(each, number, port)
        pods.sort(key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
        self._pods: dict[str, list[dict[str, Any]]] = {"": pods}
        """Pods by the value of the label that selectors compare; all without a selector."""
        for pod in pods:
            self._pods.setdefault(pod["metadata"]["labels"][workload.LABEL], []).append(pod)

    async def handle(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Count a request, and respond to those that a benchmark causes often."""
        if request.path == COUNTS:
            return web.json_response(self._counts)
        *_, resource = request.path.rsplit("/", 1)
        watching = request.query.get("watch") in ("true", "1")
        if request.method == "POST":
            verb = "create"
        elif "watch" in request.query:
            verb = "watch"
        else:
            verb = "list" if resource in ("pods", "configmaps") else "get"
        self._counts[f"{verb} {resource}"] += 1
        if request.path == kubernetes.ACCESS_REVIEWS:
            document = await request.json()
            return web.json_response({**document, "status": {"allowed": True}}, status=201)
        if resource == "pods":
            return await self._watch(request) if watching else self._list(request)
        response: web.StreamResponse = await handler(request)
        return response

    def _list(self, request: web.Request) -> web.Response:
        _, _, after = request.path.partition("/namespaces/")
        query = request.query
        body = self._page(
            after.split("/")[0] if after else "",
            query.get("labelSelector", ""),
            int(query.get("continue", 0)),
            int(query.get("limit", 0)),
            partial="as=PartialObjectMetadataList" in request.headers.get("Accept", ""),
        )
        return web.Response(body=body, content_type=_JSON)

    @functools.lru_cache(maxsize=20_000)  # noqa: B019 - one server for the whole process
    def _page(
        self, namespace: str, selector: str, start: int, limit: int, *, partial: bool
    ) -> bytes:
        """Encode one page; a selector compares the label of the autoscalers, or is empty."""
        label, _, app = selector.partition("=")
        if label not in ("", workload.LABEL):
            raise web.HTTPBadRequest(text=f"labelSelector={selector} is not supported here")
        pods = self._pods.get(app, [])
        if namespace:
            pods = [each for each in pods if each["metadata"]["namespace"] == namespace]
        end = start + limit if limit else len(pods)
        kind = "PartialObjectMetadata" if partial else "Pod"
        version = "meta.k8s.io/v1" if partial else "v1"
        items: list[Any] = pods[start:end]
        if partial:
            items = [{"metadata": each["metadata"]} for each in items]
        metadata = {"resourceVersion": _VERSION}
        if end < len(pods):
            metadata["continue"] = str(end)
        document = {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata}
        return json.dumps({**document, "items": items}).encode()

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            raise web.HTTPUnprocessableEntity(text=_FORBIDDEN_WATCH)
        partial = "as=PartialObjectMetadata;" in request.headers.get("Accept", "")
        kind = {
            "kind": "PartialObjectMetadata" if partial else "Pod",
            "apiVersion": "meta.k8s.io/v1" if partial else "v1",
        }
        document = kind | {"metadata": {"resourceVersion": _VERSION}}
        bookmark = json.dumps({"type": "BOOKMARK", "object": document}).encode() + b"\n"
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        seconds = float(request.query.get("timeoutSeconds", 1800))
        self._counts[OPEN_WATCHES] += 1
        ends = time.monotonic() + seconds
        try:
            while time.monotonic() < ends:
                await asyncio.sleep(_BOOKMARK_SECONDS)
                await response.write(bookmark)
        finally:
            self._counts[OPEN_WATCHES] -= 1
        return response


async def main(folder: Path, size: Size, port: int | None = None) -> None:
    """Serve until the process ends; write the kubeconfig and the port into the folder."""
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    data = processes.trust(folder)
    cluster.put(*kubernetes.TRUST, kind="ConfigMap", apiVersion="v1", data=data)
    app = cluster.app()
    api_server = ApiServer(size, port)

    @web.middleware
    async def handle(request: web.Request, handler: Any) -> web.StreamResponse:
        return await api_server.handle(request, handler)

    app.middlewares.append(handle)
    server = test_utils.TestServer(app)
    await server.start_server()
    kubernetes.kubeconfig(folder, server)
    processes.write_result(folder, "kubernetes", server.port or 0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Size.parse(sys.argv[2]), *map(int, sys.argv[3:])))
