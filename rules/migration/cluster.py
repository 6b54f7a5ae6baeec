"""Reads the installation and the ScaledObjects of a cluster, without I/O of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rules.document import manifests
from rules.errors import UnreadableError
from rules.hpa import reading
from rules.hpa.reading import Request, Steps

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_SCALED = "/apis/keda.sh/v1alpha1/scaledobjects"
_OURS = "gpu-metrics-adapter"


def documents() -> Steps[list[Mapping[str, Any]]]:
    """Return Deployments of prometheus-adapter, their ConfigMaps, and all ScaledObjects.

    Raises UnreadableError.
    """
    found: list[Mapping[str, Any]] = []
    for item in (yield from _list(_DEPLOYMENTS)):
        document = {"apiVersion": "apps/v1", "kind": "Deployment", **item}
        inside = manifests.find(json.dumps(document).encode(), file="cluster")
        if inside is None or not inside.arguments or _OURS in json.dumps(item["spec"]):
            continue
        found.append(document)
        namespace = quote(item["metadata"]["namespace"])
        names = {name for each in inside.arguments for name, _ in each.mounts.values()}
        for name in sorted(names):
            path = f"/api/v1/namespaces/{namespace}/configmaps/{quote(name)}"
            config_map = yield from reading.get(path)
            found.append({"apiVersion": "v1", "kind": "ConfigMap", **config_map})
    scaled = yield from _list(_SCALED, optional=True)
    kind = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    return [*found, *({**kind, **item} for item in scaled)]


def _list(path: str, *, optional: bool = False) -> Steps[list[Mapping[str, Any]]]:
    reply = yield Request(path=path)
    if reply.failed:
        if optional and reply.status == 404:
            return []  # KEDA is not installed
        raise UnreadableError(reply.message, status=reply.status)
    return reply.document["items"] or []
