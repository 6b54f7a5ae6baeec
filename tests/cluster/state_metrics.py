"""What kube-state-metrics would say of the pods, ReplicaSets and Deployments that are there.

https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics; of the labels of pods only
`app`, as with `--metric-labels-allowlist=pods=[app]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from adapter.demo.exposition import label_set
from tests.cluster.kubelet import Object, View

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")

Samples = Iterator[tuple[Mapping[str, str], float]]


def render(view: View) -> str:
    """In the text exposition format."""
    families: tuple[tuple[str, Callable[[Object], Samples], Iterable[Object]], ...] = (
        ("kube_pod_info", _info, view.pods),
        ("kube_pod_labels", _labels, view.pods),
        ("kube_pod_status_phase", _phase, view.pods),
        ("kube_replicaset_owner", _owner, view.replica_sets),
        ("kube_deployment_spec_replicas", _wanted, view.deployments),
        ("kube_deployment_status_replicas_ready", _ready, view.deployments),
    )
    lines: list[str] = []
    for name, samples, objects in families:
        lines.append(f"# TYPE {name} gauge")
        for each in objects:
            lines.extend(f"{name}{label_set(labels)} {value:g}" for labels, value in samples(each))
    return "\n".join(lines) + "\n"


def _pod(pod: Object) -> dict[str, str]:
    metadata = pod["metadata"]
    return {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}


def _info(pod: Object) -> Samples:
    owner = _controller(pod)
    yield (
        _pod(pod)
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


def _labels(pod: Object) -> Samples:
    app = pod["metadata"].get("labels", {}).get("app")
    yield _pod(pod) | ({} if app is None else {"label_app": app}), 1


def _phase(pod: Object) -> Samples:
    for phase in PHASES:
        yield _pod(pod) | {"phase": phase}, pod["status"].get("phase") == phase


def _owner(replica_set: Object) -> Samples:
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


def _deployment(deployment: Object) -> dict[str, str]:
    metadata = deployment["metadata"]
    return {"namespace": metadata["namespace"], "deployment": metadata["name"]}


def _wanted(deployment: Object) -> Samples:
    yield _deployment(deployment), deployment["spec"]["replicas"]


def _ready(deployment: Object) -> Samples:
    yield _deployment(deployment), deployment["status"].get("readyReplicas", 0)


def _controller(found: Object) -> Object:
    owners = found["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})
