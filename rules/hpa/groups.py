"""Selectors of workloads whose replicas are groups of pods.

The HPA controller counts the pods that a scale selects as replicas, so these scales select one pod,
the leader, of each group.
"""

from __future__ import annotations

from rules.selectors.selectors import Selector

LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
"""Label of all pods of a LeaderWorkerSet, leaders included; its value is the name of the set."""
_LEADERS = frozenset(
    {
        "leaderworkerset.sigs.k8s.io/worker-index",
        "modelserving.volcano.sh/entry",
        "modelserving.volcano.sh/role",
        "modelserving.volcano.sh/role-id",
        "rbg.workloads.x-k8s.io/component-index",
    }
)
"""Labels by which scales select one pod of each group.

https://github.com/kubernetes-sigs/lws/blob/main/pkg/controllers/leaderworkerset_controller.go
https://github.com/volcano-sh/kthena/blob/main/pkg/apis/workload/v1alpha1/labels.go
https://github.com/sgl-project/rbg/blob/main/api/workloads/constants/label.go"""


def all_pods(selector: Selector) -> Selector:
    """Return the selector of all pods of the groups; `selector` itself if it has no such label.

    A selector that has no other label is returned unchanged: without requirements, it would select
    all pods of the namespace.
    """
    kept = tuple(each for each in selector.requirements if each.key not in _LEADERS)
    same = not kept or len(kept) == len(selector.requirements)
    return selector if same else Selector(requirements=kept)
