"""Metrics of kube-state-metrics for the pods, ReplicaSets and Deployments of the cluster.

https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics. Of the pods' labels only
`app` is exported, as with `--metric-labels-allowlist=pods=[app]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from adapter.cli.demo.series import label_set
from tools.cluster.kubelet import ClusterObjects, Object

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")

Samples = Iterator[tuple[Mapping[str, str], float]]


def render(objects: ClusterObjects) -> str:
    """Render the metrics in the text exposition format."""
    families: tuple[tuple[str, Callable[[Object], Samples], Iterable[Object]], ...] = (
        ("kube_pod_info", _pod_info, objects.pods),
        ("kube_pod_labels", _pod_labels, objects.pods),
        ("kube_pod_status_phase", _pod_phase, objects.pods),
        ("kube_replicaset_owner", _replica_set_owner, objects.replica_sets),
        ("kube_deployment_spec_replicas", _desired_replicas, objects.deployments),
        ("kube_deployment_status_replicas_ready", _ready_replicas, objects.deployments),
    )
    lines: list[str] = []
    for name, samples, items in families:
        lines.append(f"# TYPE {name} gauge")
        for item in items:
            lines.extend(f"{name}{label_set(labels)} {value:g}" for labels, value in samples(item))
    return "\n".join(lines) + "\n"


def _pod_identity(pod: Object) -> dict[str, str]:
    metadata = pod["metadata"]
    return {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}


def _pod_info(pod: Object) -> Samples:
    owner = _controller(pod)
    yield (
        _pod_identity(pod)
        | {
            "host_ip": "",
            "pod_ip": "",
            "node": pod["spec"].get("nodeName", ""),
            "created_by_kind": owner.get("kind", ""),
            "created_by_name": owner.get("name", ""),
            "priority_class": pod["spec"].get("priorityClassName", ""),
            "host_network": str(pod["spec"].get("hostNetwork", False)).lower(),
        },
        1,
    )


def _pod_labels(pod: Object) -> Samples:
    app = pod["metadata"].get("labels", {}).get("app")
    yield _pod_identity(pod) | ({} if app is None else {"label_app": app}), 1


def _pod_phase(pod: Object) -> Samples:
    for phase in PHASES:
        yield _pod_identity(pod) | {"phase": phase}, pod["status"].get("phase") == phase


def _replica_set_owner(replica_set: Object) -> Samples:
    metadata, owner = replica_set["metadata"], _controller(replica_set)
    yield (
        {
            "namespace": metadata["namespace"],
            "replicaset": metadata["name"],
            "owner_kind": owner.get("kind", ""),
            "owner_name": owner.get("name", ""),
            "owner_is_controller": "true" if owner else "",
        },
        1,
    )


def _deployment_identity(deployment: Object) -> dict[str, str]:
    metadata = deployment["metadata"]
    return {"namespace": metadata["namespace"], "deployment": metadata["name"]}


def _desired_replicas(deployment: Object) -> Samples:
    yield _deployment_identity(deployment), deployment["spec"]["replicas"]


def _ready_replicas(deployment: Object) -> Samples:
    yield _deployment_identity(deployment), deployment["status"].get("readyReplicas", 0)


def _controller(item: Object) -> Object:
    """Return the owner reference of the controller; empty if there is none."""
    owners = item["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})
