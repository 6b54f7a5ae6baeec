"""Manifests of the fleet's Kubernetes objects, for `--objects`."""

from __future__ import annotations

from typing import Any

from adapter.cli.demo.fleet import Fleet, Pod


def document(fleet: Fleet) -> dict[str, Any]:
    """Return a List of namespaces, nodes, Deployments and pods, in this order."""
    namespaces = sorted({pod.namespace for pod in fleet.pods})
    apps = sorted({(pod.namespace, pod.app) for pod in fleet.pods})
    items = [
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in namespaces
        ),
        *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in fleet.nodes),
        *(_deployment(namespace, app) for namespace, app in apps),
        *(_pod(pod) for pod in fleet.pods),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _deployment(namespace: str, app: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": app, "labels": {"app": app}},
        "spec": {"selector": {"matchLabels": {"app": app}}},
    }


def _pod(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "labels": {"app": pod.app}},
        "spec": {"nodeName": pod.node, "containers": [{"name": pod.container}]},
        "status": {"phase": "Running"},
    }
