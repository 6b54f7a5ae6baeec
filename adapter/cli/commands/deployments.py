"""Reads the Deployments of adapters, and the ConfigMaps that they mount."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rules.document import manifests
from rules.hpa import reading
from rules.hpa.reading import Steps

_OURS = "gpu-metrics-adapter"


def read(*, ours: bool, namespace: str = "") -> Steps[list[Mapping[str, Any]]]:
    """Return the manifests of this adapter, or of prometheus-adapter, and of their ConfigMaps.

    Without a namespace, those of the whole cluster. Raises UnreadableError.
    """
    found: list[Mapping[str, Any]] = []
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    for item in (yield from reading.get(f"/apis/apps/v1{within}/deployments"))["items"] or ():
        document = {"apiVersion": "apps/v1", "kind": "Deployment", **item}
        inside = manifests.find(json.dumps(document).encode(), file="cluster")
        is_ours = _OURS in json.dumps(item["spec"])
        if inside is None or not inside.arguments or is_ours is not ours:
            continue
        found.append(document)
        names = {name for each in inside.arguments for name, _ in each.mounts.values()}
        for name in sorted(names):
            path = f"/api/v1/namespaces/{quote(item['metadata']['namespace'])}/configmaps/"
            config_map = yield from reading.get(f"{path}{quote(name)}")
            found.append({"apiVersion": "v1", "kind": "ConfigMap", **config_map})
    return found
