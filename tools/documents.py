"""Kubernetes objects that programs and tests create, as documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]


def new(
    version: str, kind: str, name: str, namespace: str = "default", **content: object
) -> Document:
    """Return an object with these further fields; without `namespace`, one of the cluster."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def pod(
    name: str,
    namespace: str = "default",
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, object] | None = None,
    **spec: object,
) -> Document:
    """Return a pod of one container, with further fields of its `spec`."""
    container = {"name": "web", "image": "web"} | ({"resources": resources} if resources else {})
    document = new("v1", "Pod", name, namespace, spec={"containers": [container], **spec})
    if labels:
        document["metadata"]["labels"] = labels
    return document


def workload(
    kind: str, name: str, pod: Mapping[str, object], namespace: str = "default", **spec: object
) -> Document:
    """Return a workload whose pods have the label `app=NAME` and this `spec`."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    fields = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return new("apps/v1", kind, name, namespace, spec=fields)


def hpa(
    name: str,
    *metrics: Mapping[str, object],
    target: str = "",
    kind: str = "Deployment",
    namespace: str = "default",
    **spec: object,
) -> Document:
    """Return an HPA of a workload, by default of its own name, with at most ten replicas."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target or name}
    fields = {"scaleTargetRef": reference, "maxReplicas": 10, "metrics": [*metrics], **spec}
    return new("autoscaling/v2", "HorizontalPodAutoscaler", name, namespace, spec=fields)


def pods_metric(name: str, target: str, **selector: object) -> Document:
    """Return a metric of an HPA: the average of its pods; `selector` has `matchLabels`."""
    value = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": _metric(name, selector), "target": value}}


def object_metric(name: str, version: str, kind: str, of: str, target: str = "10") -> Document:
    """Return a metric of an HPA: the value of one object."""
    described = {"apiVersion": version, "kind": kind, "name": of}
    value = {"type": "Value", "value": target}
    source = {"metric": {"name": name}, "describedObject": described, "target": value}
    return {"type": "Object", "object": source}


def external_metric(name: str, target: str, kind: str = "AverageValue") -> Document:
    """Return an external metric of an HPA, whose target is an AverageValue or a Value."""
    value = {"type": kind, kind[0].lower() + kind[1:]: target}
    return {"type": "External", "external": {"metric": {"name": name}, "target": value}}


def _metric(name: str, selector: Mapping[str, object]) -> Document:
    return {"name": name} | ({"selector": selector} if selector else {})
