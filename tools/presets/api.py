"""The whole server on its own port, and a client for its custom metrics."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import aiohttp

from adapter import settings
from adapter.cli.local_prometheus.process import free_port
from adapter.clients import detection
from adapter.clients.prometheus import Prometheus
from adapter.server.app import server as app
from rules.exporters.detect import Detection
from tools import quantity
from tools.documents import new
from tools.waiting import until

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True)
class Api:
    """A running server."""

    url: str
    session: aiohttp.ClientSession

    async def relisted(self) -> bool:
        """Return whether the first relist has finished."""
        async with self.session.get(f"{self.url}/readyz/first-relist", ssl=False) as response:
            return response.status == 200

    async def get(self, path: str) -> tuple[int, Any]:
        """Return status and document."""
        async with self.session.get(self.url + path, ssl=False) as response:
            return response.status, json.loads(await response.read())

    async def warning(self, path: str) -> str:
        """Return the header `Warning` of an answer; empty without one."""
        async with self.session.get(self.url + path, ssl=False) as response:
            assert response.status == 200
            return response.headers.get("Warning", "")

    async def pods(self, namespace: str, metric: str, name: str = "*") -> dict[str, Fraction]:
        """Return pod -> value; empty for 404."""
        return await self._values(f"{GROUP}/namespaces/{namespace}/pods/{name}/{metric}")

    async def nodes(self, metric: str) -> dict[str, Fraction]:
        """Return node -> value; empty for 404."""
        return await self._values(f"{GROUP}/nodes/*/{metric}")

    async def _values(self, path: str) -> dict[str, Fraction]:
        status, document = await self.get(path)
        if status == 404:
            return {}
        assert status == 200, document
        names = [item["describedObject"]["name"] for item in document["items"]]
        assert len(names) == len(set(names)), names
        return {
            item["describedObject"]["name"]: quantity.parse(item["value"])
            for item in document["items"]
        }


def manifests(pods: Iterable[str], nodes: Iterable[str] = ()) -> str:
    """Return a List of running pods (`namespace/name`, with the label `app`) and of nodes."""
    items = [new("v1", "Node", node, "") for node in nodes]
    for pod in pods:
        namespace, name = pod.split("/")
        app_label = re.sub(r"-[0-9a-f]{8,10}-\w{5}$|-\d+$", "", name)
        items.append(new("v1", "Pod", name, namespace))
        items[-1]["metadata"]["labels"] = {"app": app_label}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


async def detected(url: str, *, unknown: bool = False) -> Detection:
    """Return what is detected in a Prometheus; `unknown` as in `detection.report`."""
    async with aiohttp.ClientSession() as session:
        return await detection.report(Prometheus(session, url), unknown=unknown)


@asynccontextmanager
async def serving(
    folder: Path, prometheus: str, objects: str, flags: Sequence[str] = (), *, rules: str = ""
) -> AsyncIterator[Api]:
    """Run a server with `prometheus` and the manifests `objects`, and wait for its first relist.

    An empty `prometheus` leaves out its flag. `rules` is the text of a rules file, in addition to
    `flags`.
    """
    file = folder / "objects.json"
    file.write_text(objects)
    if rules:
        config = folder / "rules.yaml"
        config.write_text(rules)
        flags = (*flags, f"--config={config}")
    arguments = (
        *([f"--prometheus-url={prometheus}"] if prometheus else ()),
        f"--objects={file}",
        f"--secure-port={free_port()}",
        *flags,
    )
    async with app.running(settings.parse(arguments)) as url, aiohttp.ClientSession() as session:
        api = Api(url, session)
        await until(api.relisted)
        yield api
