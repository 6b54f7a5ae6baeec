"""A plain API server in front of one adapter: documents of objects; metrics from the adapter."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tools import http_server, kubeconfig
from tools.certificates import INSECURE
from tools.http_server import Answer

_JSON = "application/json"
_VERSIONS = {
    "apps": "v1",
    "autoscaling": "v2",
    "custom.metrics.k8s.io": "v1beta1",
    "external.metrics.k8s.io": "v1beta1",
}
_KINDS = {
    "": {"pods": "Pod", "services": "Service"},
    "apps": {"deployments": "Deployment", "replicasets": "ReplicaSet"},
}
_OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=INSECURE)
)


@contextlib.contextmanager
def serving(
    folder: Path,
    adapter: str,
    *,
    hpas: Sequence[Mapping[str, Any]],
    objects: Sequence[Mapping[str, Any]],
    replicas: int,
) -> Iterator[Path]:
    """Serve until the context ends, and yield a kubeconfig."""

    def answer(path: str) -> tuple[int, Mapping[str, Any]]:
        url = urlsplit(path)
        query = dict(parse_qsl(url.query))
        if url.path == "/apis":
            return 200, {"kind": "APIGroupList", "groups": [*map(_group, _VERSIONS)]}
        if url.path == "/api/v1":
            return 200, _resources("")
        if found := re.fullmatch(r"/apis/([^/]+)/(v\w+)", url.path):
            return 200, _resources(found[1])
        for each in hpas:
            metadata = each["metadata"]
            below = f"/apis/autoscaling/v2/namespaces/{metadata['namespace']}"
            if url.path == f"{below}/horizontalpodautoscalers/{metadata['name']}":
                return 200, each
            target = each["spec"]["scaleTargetRef"]["name"]
            if url.path.endswith(f"/{target}/scale"):
                return 200, _scale(target, metadata["namespace"], replicas)
        if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods", url.path):
            wanted = dict(
                each.split("=", 1) for each in query.get("labelSelector", "").split(",") if each
            )
            matching = [
                each
                for each in objects
                if each["kind"] == "Pod"
                and each["metadata"]["namespace"] == found[1]
                and wanted.items() <= each["metadata"]["labels"].items()
            ]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": matching}
        return 404, {"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}

    def respond(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        if not request.path.startswith(("/apis/custom.metrics", "/apis/external.metrics")):
            status, document = answer(request.path)
            return status, _JSON, json.dumps(document).encode()
        try:
            with _OPENER.open(f"{adapter}{request.path}", timeout=60) as reply:
                return reply.status, _JSON, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, _JSON, error.read()

    with http_server.serving(respond) as port:
        yield kubeconfig.write(folder / "front", {"server": f"http://127.0.0.1:{port}"}, {})


def _group(name: str) -> Mapping[str, Any]:
    version = _VERSIONS[name]
    described = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [described], "preferredVersion": described}


def _resources(group: str) -> Mapping[str, Any]:
    resources = []
    for plural, kind in _KINDS.get(group, {}).items():
        resources += [
            {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": True},
            {"name": f"{plural}/scale", "singularName": "", "kind": "Scale", "namespaced": True},
        ]
    return {
        "kind": "APIResourceList",
        "groupVersion": f"{group}/{_VERSIONS[group]}" if group else "v1",
        "resources": [{**each, "verbs": ["get"]} for each in resources],
    }


def _scale(name: str, namespace: str, replicas: int) -> Mapping[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "selector": f"app={name}"},
    }
