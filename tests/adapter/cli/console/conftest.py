"""Console in front of a fake cluster: an HPA and what the controller reads for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import test_utils, web

from adapter.background import Background
from adapter.cli.commands import rules_list
from adapter.cli.console import pages
from adapter.cli.console.guard import TokenGuard
from adapter.cli.console.reader import ClusterReader, ShownCluster
from adapter.cli.console.views import Views
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from rules.hpa.reading import ApiReply
from tests.rules.hpa import documents as hpa_documents
from tests.rules.hpa import test_reading
from tests.rules.hpa.documents import pods_metric
from tools.fakes import kubernetes

HPAS = kubernetes.HPAS
EVERY = NamespaceSettings()
VALUES = test_reading.VALUES
Start = Callable[..., Any]


class World:
    """Fake cluster; `documents` are answers by path, which go before its objects."""

    def __init__(self) -> None:
        self.cluster = kubernetes.Cluster()
        self.cluster.resources.append(HPAS)
        self.documents: dict[str, Any] = {}
        self.requests: list[str] = []
        self.hangs = False
        """Whether requests get no response."""

    def add(self, namespace: str, name: str, *metrics: Any, **status: Any) -> None:
        """Add an HPA of the Deployment `serving`, with the values that its pods have."""
        for path, document in test_reading.documents(*metrics).items():
            if path != test_reading.HPA:
                self.documents[path.replace("/default/", f"/{namespace}/")] = document
        spec = hpa_documents.document(*metrics, minReplicas=1)["spec"]
        self.cluster.put(HPAS.name, namespace, name, spec=spec, status=status)

    def healthy(self, namespace: str = "default", name: str = "gpu-hpa") -> None:
        """Add an HPA whose metric has a value."""
        self.add(namespace, name, pods_metric(), **status("63"))

    def app(self) -> web.Application:
        """Return the API server."""
        app = self.cluster.app()
        app.middlewares.append(self._documents)
        return app

    @web.middleware
    async def _documents(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.hangs:
            await asyncio.sleep(3600)
        suffix = "?explain=true" if request.query.get("explain") == "true" else ""
        document = self.documents.get(request.path + suffix)
        if isinstance(document, ApiReply):
            body = {"kind": "Status", "message": document.message, **document.document}
            return web.json_response(body, status=document.status)
        if isinstance(document, str):
            return web.Response(text=document)
        return await handler(request) if document is None else web.json_response(document)


def status(value: str | None, **conditions: tuple[str, str, str]) -> dict[str, Any]:
    """Return the status of an HPA with one metric of pods."""
    given = {"ScalingActive": ("True", "ValidMetricFound", ""), **conditions}
    current = {"type": "Pods", "pods": {"current": {"averageValue": value}}} if value else {}
    return {
        "currentReplicas": 1,
        "desiredReplicas": 2,
        "currentMetrics": [current],
        "conditions": [
            {"type": kind, "status": state, "reason": reason, "message": message}
            for kind, (state, reason, message) in given.items()
        ],
    }


class Client(test_utils.TestClient[web.Request, web.Application]):
    """Client that has the token of the console."""

    guard: TokenGuard
    reader: ClusterReader


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def start(aiohttp_server: Any, tmp_path: Path) -> Any:
    """Start the console of a world; return a client that has its token."""
    running: list[Any] = []

    async def start(
        world: World,
        prefix: str = "",
        prometheus: Prometheus | None = None,
        namespaces: NamespaceSettings = EVERY,
    ) -> Client:
        kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(world.app()))
        flags = KubectlSettings(kubeconfig=kubeconfig)
        kube = await Kube.connect(kubeconfig, qps=1e6, burst=10**6)
        reader = ClusterReader(
            kube,
            ShownCluster(
                kubeconfig=flags,
                prometheus=None,
                namespaces=namespaces,
                rules=lambda: rules_list.read((), flags, None, ""),
            ),
            prometheus,
        )
        background = Background.running()
        tasks = await background.__aenter__()
        tasks.start("autoscalers", reader.autoscalers.run())
        tasks.start("probe", reader.api_server.run())
        guard = TokenGuard(f"{prefix}/")
        server = test_utils.TestServer(pages.application(Views(reader), guard, prefix))
        client = Client(server, headers={"Authorization": f"Bearer {guard.token}"})
        await client.start_server()
        client.guard, client.reader = guard, reader
        running.append((client, background, kube))
        return client

    yield start
    for client, background, kube in running:
        await client.close()
        await background.__aexit__(None, None, None)
        await kube.close()
