"""Pods of a workload at times of the past, by the series of kube-state-metrics or by their names.

Pure: returns queries, and interprets the points of their results.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rules import promql
from rules.errors import UnreadableError
from rules.hpa import groups
from rules.hpa.autoscaler import Pod, Reference
from rules.query import plan
from rules.query.catalog import Step
from rules.query.plan import SelectedObjects, escape
from rules.selectors.selectors import Selector

_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""Alphabet of the random parts of names. It has no vowels, so no word is made of it.
https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go"""
_OF_DEPLOYMENT = f"-{_HASH}{{1,10}}-{_HASH}{{5}}"
_SUFFIXES = {
    "Deployment": _OF_DEPLOYMENT,
    "Rollout": _OF_DEPLOYMENT,
    "ReplicaSet": f"-{_HASH}{{5}}",
    "StatefulSet": "-[0-9]+",
    "LeaderWorkerSet": "-[0-9]+(-[0-9]+)?",
}
"""What follows the name of a workload in those of its pods."""
_SETS = "(-[0-9]+)?"
"""What follows the name of a LeaderWorkerSet in those of its StatefulSets, the leaders' first."""
_LONGEST = 46
"""Characters of a name to which a hash can be added without cutting it off."""
_PODS = ("exported_pod", "pod")
_FINISHED = ("Succeeded", "Failed")
_SPEC = {
    "Deployment": ("kube_deployment_spec_replicas", "deployment"),
    "StatefulSet": ("kube_statefulset_replicas", "statefulset"),
    "ReplicaSet": ("kube_replicaset_spec_replicas", "replicaset"),
    "Rollout": ("rollout_info_replicas_desired", "name"),
}
"""Kind -> series with its replicas, and their label with its name; of Rollouts, Argo's own."""
Points = Iterable[tuple[Mapping[str, str], int, float]]
"""Labels, time in Unix milliseconds, and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPods:
    """The pods of a workload at one time."""

    pods: tuple[Pod, ...] = ()
    """Sorted by name."""
    ready_since: Mapping[str, float] = field(default_factory=dict)
    """Of Ready pods, in Unix seconds."""

    @property
    def live(self) -> tuple[str, ...]:
        """Names of the pods that had not finished."""
        return tuple(each.name for each in self.pods if each.phase not in _FINISHED)

    @property
    def active(self) -> int:
        """Number of pods that workloads count as their replicas."""
        return sum(each.phase not in _FINISHED and not each.deleted for each in self.pods)

    @property
    def ready(self) -> int:
        """Number of pods that count for a target of type Value."""
        return sum(each.phase == "Running" and each.ready == "True" for each in self.pods)


NONE = PastPods()


def of_scale(target: Reference, selector: Selector) -> Reference:
    """Return the workload of the pods that a scale selects.

    Those of a LeaderWorkerSet, the leaders, belong to a StatefulSet. Raises UnreadableError for
    other targets of which the scale selects one pod of each group.
    """
    if groups.all_pods(selector) is selector:
        return target
    for each in selector.requirements:
        if each.key == groups.LEADER_WORKER_SET:
            return Reference(api_version="apps/v1", kind="StatefulSet", name=each.values[0])
    raise UnreadableError(
        f"the past pods of {target} are not certain: its scale selects one pod of each group"
    )


def owned(namespace: str, workload: Reference) -> str:
    """Return the query for the names of a workload's pods, by kube-state-metrics.

    Each sample has a label `pod`. Pods may belong to a ReplicaSet of the workload.
    """
    if workload.kind == "LeaderWorkerSet":
        sets = promql.matcher("owner_name", "=~", f"{escape(workload.name)}{_SETS}")
        of_sets = promql.matcher("owner_kind", "=", "StatefulSet"), sets
        return f"group by (pod) ({_of('kube_pod_owner', namespace, *of_sets)})"
    owner = (
        promql.matcher("owner_kind", "=", workload.kind),
        promql.matcher("owner_name", "=", workload.name),
    )
    sets = f"group by (replicaset) ({_of('kube_replicaset_owner', namespace, *owner)})"
    renamed = f'label_replace({sets}, "owner_name", "$1", "replicaset", "(.+)")'
    of_set = _of("kube_pod_owner", namespace, promql.matcher("owner_kind", "=", "ReplicaSet"))
    return (
        f"group by (pod) ({_of('kube_pod_owner', namespace, *owner)} "
        f"or {of_set} and on (owner_name) {renamed})"
    )


def states(namespace: str, names: Iterable[str], *, ages: bool) -> str:
    """Return the query for the states of pods, and of others whose names begin alike.

    Pods that are Running and Ready have no sample, except, with `ages`, since when they are Ready.
    """
    pods = f"{escape(posixpath.commonprefix([*names]))}.*"
    running, ready = (
        promql.matcher("phase", "!=", "Running"),
        promql.matcher("condition", "=", "true"),
    )
    phase = _of("kube_pod_status_phase", namespace, running, pods=pods)
    unready = _of("kube_pod_status_ready", namespace, ready, pods=pods)
    parts = {
        "phase": f"max by (pod, phase) ({phase} == 1)",
        "unready": f"max by (pod) ({unready} == 0)",
        "deleted": f"max by (pod) ({_of('kube_pod_deletion_timestamp', namespace, pods=pods)})",
    }
    if ages:
        since = _of("kube_pod_status_ready_time", namespace, pods=pods)
        parts["since"] = f"max by (pod) ({since})"
    return " or ".join(
        f'label_replace({text}, "of", "{part}", "", "")' for part, text in parts.items()
    )


def replicas(namespace: str, target: Reference) -> str:
    """Return the query for `spec.replicas`; empty for kinds that kube-state-metrics lacks."""
    if target.kind not in _SPEC:
        return ""
    series, label = _SPEC[target.kind]
    return f"max({_of(series, namespace, promql.matcher(label, '=', target.name))})"


def named(namespace: str, workload: Reference, steps: Iterable[Step]) -> str:
    """Return the query for the names of a workload's pods, by the names in the series of a metric.

    Each sample has a label `pod`. Raises UnreadableError for a workload whose pods have no names
    that are certain.
    """
    try:
        pattern = names_of(workload)
    except UnreadableError as error:
        raise UnreadableError(
            f"{error}: let Prometheus scrape kube-state-metrics, which has kube_pod_owner"
        ) from error
    texts = []
    for step in steps:
        binding = step.binding
        matchers = [
            promql.matcher("__name__", "=", step.series),
            *(promql.matcher(label, "=", "") for label in binding.absent),
            promql.matcher(binding.resource, "=~", pattern),
        ]
        if binding.namespace:
            matchers.append(promql.matcher(binding.namespace, "=", namespace))
        label = promql.label(binding.resource)
        found = f"group by ({label}) ({{{','.join(matchers)}}})"
        texts.append(f'label_replace({found}, "pod", "$1", "{binding.resource}", "(.+)")')
    return f"group by (pod) ({' or '.join(texts)})"


def names_of(workload: Reference) -> str:
    """Return the regular expression of the names of a workload's pods.

    Raises UnreadableError for a workload whose pods have no names that are certain.
    """
    suffix = _SUFFIXES.get(workload.kind)
    if suffix is None or len(workload.name) > _LONGEST:
        raise UnreadableError(f"the names of the past pods of {workload} are not certain")
    return f"{escape(workload.name)}{suffix}"


def total(namespace: str, workload: Reference, steps: Sequence[Step], selector: Selector) -> str:
    """Return the query for the sum of a metric's values over all pods of a workload.

    They are the pods with its names, whether there are any now or were in the past. `selector` is
    the metric selector. Raises UnreadableError as `names_of`, and PlanError.
    """
    objects = SelectedObjects(namespaces=(namespace,), names=None, pattern=names_of(workload))
    return f"sum({' or on (pod) '.join(_by_pod(each, objects, selector) for each in steps)})"


def _by_pod(step: Step, objects: SelectedObjects, selector: Selector) -> str:
    """Return the query for one finite value of each pod, as `rules.query.aggregate` makes it."""
    label, how = step.binding.resource, step.rule.config.aggregate
    text = plan.render(step, objects, selector)
    function = "avg" if how == "error" else how
    value = f"{function} by ({promql.label(label)}) (({text}\n) > -Inf < Inf)"
    return value if label == "pod" else f'label_replace({value}, "pod", "$1", "{label}", "(.+)")'


class States:
    """Collects the pods of a workload, time by time."""

    def __init__(self) -> None:
        self._ready: dict[str, float] = {}
        """Since when pods are Ready, as far as their series say."""
        self._before: tuple[object, PastPods] = ((), NONE)

    def read(self, names: Points, states: Points, times: Sequence[int]) -> list[PastPods]:
        """Return the pods at each of `times` (Unix milliseconds), in ascending order.

        Pods without a state are Running and Ready.
        """
        present: dict[int, set[str]] = {}
        for labels, time, _ in names:
            present.setdefault(time, set()).add(labels["pod"])
        found: dict[int, dict[tuple[str, str], tuple[str, float]]] = {}
        for labels, time, value in states:
            key = labels["pod"], labels["of"]
            found.setdefault(time, {})[key] = labels.get("phase", ""), value
        return [self._at(time, present.get(time, set()), found.get(time, {})) for time in times]

    def _at(
        self, time: int, names: set[str], states: Mapping[tuple[str, str], tuple[str, float]]
    ) -> PastPods:
        ready = {
            name
            for name in names
            if (name, "phase") not in states and (name, "unready") not in states
        }
        self._ready = since = {
            name: states.get((name, "since"), ("", self._ready.get(name, time / 1000)))[1]
            for name in ready
        }
        pods = tuple(
            _pod(
                name,
                states.get((name, "phase"), ("Running", 0.0))[0],
                (name, "deleted") in states,
                name in ready,
            )
            for name in sorted(names)
        )
        key = pods, since
        if self._before[0] != key:  # most times are as the one before
            self._before = key, PastPods(pods=pods, ready_since=since)
        return self._before[1]


@functools.lru_cache(maxsize=100_000)
def _pod(name: str, phase: str, deleted: bool, ready: bool) -> Pod:
    return Pod(name=name, phase=phase, deleted=deleted, ready="True" if ready else "False")


def _of(series: str, namespace: str, *matchers: str, pods: str = "") -> str:
    """Return a selector of kube-state-metrics, whose samples have the pod in the label `pod`.

    If it is scraped without honor_labels, its own labels have the prefix `exported_`.
    """
    name, own = promql.matcher("__name__", "=", series), "".join(f",{each}" for each in matchers)
    of = {label: f",{promql.matcher(label, '=~', pods)}" if pods else "" for label in _PODS}
    exported = f"{promql.matcher('exported_namespace', '=', namespace)}{own}{of['exported_pod']}"
    plain = f"{promql.matcher('namespace', '=', namespace)}{own}{of['pod']}"
    return (
        f'(label_replace({{{name},{exported}}}, "pod", "$1", "exported_pod", "(.+)") '
        f'or {{{name},{plain},exported_namespace=""}})'
    )
