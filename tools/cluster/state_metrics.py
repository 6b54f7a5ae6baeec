"""Metrics of kube-state-metrics for the pods, ReplicaSets and Deployments of the cluster.

https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics. Of the pods' labels only
`app` is exported, as with `--metric-labels-allowlist=pods=[app]`.
"""

from __future__ import annotations

from collections.abc import Mapping

from adapter.cli.demo.series import label_set
from tools.cluster.kubelet import ClusterObjects, Object

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")


def render(objects: ClusterObjects) -> str:
    """Render the metrics in the text exposition format."""
    families: Mapping[str, list[tuple[Mapping[str, str], float]]] = {
        "kube_pod_info": [(_pod_info(pod), 1) for pod in objects.pods],
        "kube_pod_labels": [(_pod(pod) | _label(pod), 1) for pod in objects.pods],
        "kube_pod_status_phase": [
            (_pod(pod) | {"phase": phase}, pod["status"].get("phase") == phase)
            for pod in objects.pods
            for phase in PHASES
        ],
        "kube_replicaset_owner": [(_replica_set(each), 1) for each in objects.replica_sets],
        "kube_deployment_spec_replicas": [
            (_deployment(each), each["spec"]["replicas"]) for each in objects.deployments
        ],
        "kube_deployment_status_replicas_ready": [
            (_deployment(each), each["status"].get("readyReplicas", 0))
            for each in objects.deployments
        ],
    }
    lines = []
    for name, samples in families.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{label_set(labels)} {value:g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _pod(pod: Object) -> dict[str, str]:
    metadata = pod["metadata"]
    return {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}


def _pod_info(pod: Object) -> dict[str, str]:
    owner = _controller(pod)
    return _pod(pod) | {
        "host_ip": "",
        "pod_ip": "",
        "node": pod["spec"].get("nodeName", ""),
        "created_by_kind": owner.get("kind", ""),
        "created_by_name": owner.get("name", ""),
        "priority_class": pod["spec"].get("priorityClassName", ""),
        "host_network": str(pod["spec"].get("hostNetwork", False)).lower(),
    }


def _label(pod: Object) -> dict[str, str]:
    app = pod["metadata"].get("labels", {}).get("app")
    return {} if app is None else {"label_app": app}


def _replica_set(replica_set: Object) -> dict[str, str]:
    metadata, owner = replica_set["metadata"], _controller(replica_set)
    return {
        "namespace": metadata["namespace"],
        "replicaset": metadata["name"],
        "owner_kind": owner.get("kind", ""),
        "owner_name": owner.get("name", ""),
        "owner_is_controller": "true" if owner else "",
    }


def _deployment(deployment: Object) -> dict[str, str]:
    metadata = deployment["metadata"]
    return {"namespace": metadata["namespace"], "deployment": metadata["name"]}


def _controller(item: Object) -> Object:
    """Return the owner reference of the controller; empty if there is none."""
    owners = item["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})
