"""Random rules and HPAs with a past: pods that come and go, and their samples, step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adapter.cli.local_prometheus.remote_write import STALE, Labels, Samples
from tools import documents

STEP = 15
LAG = 3
"""Seconds between a scrape and the sync that reads it."""
HASH = "bcdfghjklmnpqrstvwxz2456789"
KINDS = ("pods", "workloads", "object", "namespace", "external")
NAN = float("nan")
_SECOND = 10_000
"""Is added to the number of a case for its second metric."""


@dataclass(kw_only=True)
class PastPod:
    """A pod, from one step to another."""

    name: str
    set: str
    begin: int
    ready: int
    """Step from which it is Ready."""
    deleted: int
    """Step from which it is being deleted."""
    end: int
    last: str
    """Phase in its last two steps."""

    def phase(self, step: int) -> str:
        """Return the phase at a step."""
        if step >= self.end - 2:
            return self.last
        return "Pending" if step < self.ready else "Running"

    def is_ready(self, step: int) -> bool:
        """Return whether the pod is Ready at a step."""
        return step >= self.ready and self.phase(step) == "Running"


@dataclass(kw_only=True)
class Case:
    """One HPA with its rules, its pods, and series by step."""

    number: int
    kind: str
    begin: int
    """Unix seconds of the first sync."""
    steps: int
    known: bool
    """Whether kube-state-metrics is scraped."""
    rules: str = ""
    external: str = ""
    metric: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    pods: list[PastPod] = field(default_factory=list)
    series: list[tuple[Labels, Mapping[int, float]]] = field(default_factory=list)
    other: Case | None = None
    """The second metric of the HPA, as a case with the same pods."""

    @property
    def each(self) -> tuple[Case, ...]:
        """The metrics of the HPA."""
        return (self, self.other) if self.other else (self,)

    @property
    def namespace(self) -> str:
        """The namespace of the case."""
        return f"n{self.number % _SECOND}"

    @property
    def average(self) -> bool:
        """Whether it is an external metric whose target is an AverageValue."""
        of = self.metric.get("external")
        return of is not None and of["target"]["type"] == "AverageValue"

    @property
    def hpa(self) -> dict[str, Any]:
        """The HPA, as the API server has it."""
        return {
            "metadata": {"name": "web", "namespace": self.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metrics": [each.metric for each in self.each],
                **self.spec,
            },
        }

    def time(self, step: int) -> int:
        """Return the Unix seconds of a step."""
        return self.begin + STEP * step

    def there(self, step: int) -> list[PastPod]:
        """Return the pods that exist at a step."""
        return [each for each in self.pods if each.begin <= step < each.end]

    def live(self, step: int) -> list[str]:
        """Return the names of the pods that have not finished."""
        there = self.there(step)
        return sorted(
            each.name for each in there if each.phase(step) not in {"Succeeded", "Failed"}
        )

    def ready_since(self, step: int) -> dict[str, float]:
        """Return since when pods are Ready, in Unix seconds."""
        return {
            each.name: float(self.time(each.ready) - LAG)
            for each in self.there(step)
            if each.is_ready(step)
        }

    def written(self) -> Iterator[tuple[Labels, Samples]]:
        """Yield all series, those of kube-state-metrics included."""
        own = [series for each in self.each for series in each.series]
        for labels, values in [*own, *(self._states() if self.known else ())]:
            points = []
            for step in range(self.steps):
                at = (self.time(step) - LAG) * 1000
                if step in values:
                    points.append((at, values[step]))
                elif step - 1 in values:
                    points.append((at, STALE))
            if points:
                yield labels, points

    def _states(self) -> Iterator[tuple[Labels, Mapping[int, float]]]:
        exported = self.number % 2
        place = {"exported_namespace" if exported else "namespace": self.namespace}
        label = "exported_pod" if exported else "pod"
        other = {"namespace": "monitoring", "pod": "ksm"} if exported else {}

        def of(name: str, **labels: str) -> Labels:
            return {"__name__": name, **other, **place, **labels}

        def ones(steps: Sequence[int]) -> Mapping[int, float]:
            return dict.fromkeys(steps, 1.0)

        for replica_set in {each.set for each in self.pods}:
            owner = {"owner_kind": "Deployment", "owner_name": "web", "replicaset": replica_set}
            yield of("kube_replicaset_owner", **owner), ones(range(self.steps))
        replicas = {step: float(len(self.there(step))) for step in range(self.steps)}
        yield of("kube_deployment_spec_replicas", deployment="web"), replicas
        for pod in self.pods:
            name = {label: pod.name}
            steps = range(pod.begin, pod.end)
            owner = {"owner_kind": "ReplicaSet", "owner_name": pod.set}
            yield of("kube_pod_owner", **name, **owner), ones(steps)
            for phase in ("Pending", "Running", "Succeeded", "Failed"):
                values = {step: float(pod.phase(step) == phase) for step in steps}
                yield of("kube_pod_status_phase", **name, phase=phase), values
            ready = {step: float(pod.is_ready(step)) for step in steps}
            yield of("kube_pod_status_ready", **name, condition="true"), ready
            since = {s: float(self.time(pod.ready) - LAG) for s in steps if pod.is_ready(s)}
            yield of("kube_pod_status_ready_time", **name), since
            deleted = [step for step in steps if step >= pod.deleted]
            yield of("kube_pod_deletion_timestamp", **name), ones(deleted)


def case(number: int, seed: int, *, begin: int, steps: int) -> Case:
    """Return the case with this number."""
    draw = random.Random(f"{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    # Without kube-state-metrics, the replicas of other kinds are not known, which is refused.
    known = draw.random() < 0.75 or kind not in {"pods", "workloads"}
    made = Case(number=number, kind=kind, begin=begin, steps=steps, known=known)
    made.pods = list(_pods(draw, steps))
    if not made.known:  # names say nothing of phases, nor of pods without a sample
        for pod in made.pods:
            pod.ready, pod.deleted, pod.last = pod.begin, pod.end, "Running"
    low = draw.choice([1, 2] if made.kind == "pods" else [0, 1, 2])
    made.spec = {"minReplicas": low, "maxReplicas": draw.choice([4, 8, 20])}
    if not low or draw.random() < 0.5:
        made.spec["behavior"] = _behavior(draw)
    _fill(draw, made)
    if draw.random() < 0.25:
        kind = draw.choice(KINDS if made.known else ["pods", "workloads"])
        made.other = replace(made, number=number + _SECOND, kind=kind, metric={}, series=[])
        made.other.rules = made.other.external = ""
        _fill(draw, made.other)
    if not low:  # for a while, there is nothing to do
        made.spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
        begin = draw.randint(2, steps // 2)
        idle = range(begin, begin + 6)
        for of in made.each:
            of.series = [
                (labels, {step: 0.0 if step in idle else each for step, each in values.items()})
                for labels, values in of.series
            ]
    return made


def _fill(draw: random.Random, made: Case) -> None:
    """Add the rules, the metric and the series of a kind."""
    {
        "pods": _of_pods,
        "workloads": _of_workloads,
        "object": _of_object,
        "namespace": _of_object,
        "external": _external,
    }[made.kind](draw, made)


def _pods(draw: random.Random, steps: int) -> Iterator[PastPod]:
    def word(length: int) -> str:
        return "".join(draw.choice(HASH) for _ in range(length))

    sets = [f"web-{word(9)}", f"web-{word(10)}"]
    for _ in range(draw.randint(2, 7)):
        begin = draw.choice([0, 0, draw.randint(1, steps - 8)])
        end = draw.choice([steps + 5, draw.randint(begin + 6, steps)])
        of = draw.choice(sets)
        yield PastPod(
            name=f"{of}-{word(5)}",
            set=of,
            begin=begin,
            ready=begin + draw.choice([0, 1, 3]),
            deleted=draw.choice([end, end - 2]),
            end=end,
            last=draw.choice(["Running", "Running", "Succeeded", "Failed"]),
        )


def _number(draw: random.Random) -> float:
    """Return a value; some are not finite, negative, huge, or not whole thousandths."""
    kind = draw.random()
    if kind < 0.05:
        return draw.choice([NAN, float("inf"), float("-inf")])
    if kind < 0.1:
        return draw.choice([-1.0, 1.0]) * draw.uniform(0, 100)
    if kind < 0.12:
        return draw.uniform(1e12, 1e17)
    return draw.choice([float(draw.randint(0, 200)), draw.uniform(0, 100), draw.random()])


def _values(
    draw: random.Random, begin: int, end: int, steps: int, *, gaps: bool = True
) -> Mapping[int, float]:
    """Return values from one step to another, perhaps with a gap."""
    gap = draw.randint(begin, end), draw.choice([0, 0, 1, 3, 8]) if gaps else 0
    return {
        step: _number(draw)
        for step in range(begin, min(end, steps))
        if not gap[0] <= step < gap[0] + gap[1]
    }


_RULE = """
- seriesQuery: '{series}'
  resources: {{overrides: {{{overrides}}}}}
  name: {{as: {metric}}}
  metricsQuery: '{query}'
  {more}
"""
_OF_PODS = "namespace: {resource: namespace}, pod: {resource: pod}"


def _more(draw: random.Random, case: Case, *keys: str) -> str:
    """Return some optional keys of a rule."""
    found = []
    if draw.random() < 0.5:
        # Without kube-state-metrics, a pod without a sample is not known.
        missing = ["error", "{value: 7.5}", "{lastKnown: 1m}", "{lastKnown: 45s}"]
        found.append(f"onMissing: {draw.choice(missing if case.known else missing[:1])}")
    if draw.random() < 0.4:
        found.append("onNaN: zero")
    if draw.random() < 0.2:
        found.append(f"maxSampleAge: {draw.choice(['10s', '40s'])}")
    if case.known and case.kind in {"pods", "workloads"} and draw.random() < 0.3:
        found.append(f"minPodAge: {draw.choice(['20s', '1m', '2m'])}")
    found.append(f"aggregate: {draw.choice(['avg', 'max', 'min', 'sum', 'sum', 'error'])}")
    return "\n  ".join([*found, *keys])


_QUERIES = (
    "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "<<.Series>>{<<.LabelMatchers>>}",
    "<<.Series>>{<<.LabelMatchers>>} * 2",
    "max_over_time(<<.Series>>{<<.LabelMatchers>>}[45s])",
    "topk(2, <<.Series>>{<<.LabelMatchers>>})",
)
"""The last one depends on which pods are requested together."""


def _series_of_pods(draw: random.Random, case: Case, series: str) -> None:
    gpus = draw.choice([1, 1, 2, 3])
    place = {"__name__": series, "namespace": case.namespace}
    for pod in case.pods:
        for gpu in range(gpus):
            values = _values(draw, pod.begin, pod.end, case.steps, gaps=case.known)
            case.series.append(({**place, "pod": pod.name, "gpu": str(gpu)}, values))
    # Pods of a Job, of another Deployment, and of another namespace.
    for name in ("web-train-x8k2p", "web-api-6f7c9d5b4-x8k2p", "web-bcdfg-hjklm-x8k2p"):
        case.series.append(({**place, "pod": name}, dict.fromkeys(range(case.steps), 1e6)))
    elsewhere = {**place, "namespace": "elsewhere", "pod": case.pods[0].name}
    case.series.append((elsewhere, dict.fromkeys(range(case.steps), 1e6)))


def _rules_of_pods(draw: random.Random, case: Case, *keys: str) -> str:
    metric = f"m{case.number}"
    several = ["a", "b"] if draw.random() < 0.3 else ["a"]
    merge = ("merge: true",) if len(several) > 1 else ()
    more = _more(draw, case, *keys, *merge)
    texts = []
    for each in several:
        series = f"{metric}_{each}"
        _series_of_pods(draw, case, series)
        texts.append(
            _RULE.format(
                series=series,
                overrides=_OF_PODS,
                metric=metric,
                query=draw.choice(_QUERIES),
                more=more,
            )
        )
    return "".join(texts)


def _of_pods(draw: random.Random, case: Case) -> None:
    case.rules = _rules_of_pods(draw, case)
    target = draw.choice(["1", "30", "50", "500m"])
    case.metric = documents.pods_metric(f"m{case.number}", target)


def _described(case: Case, draw: random.Random, kind: str, name: str, version: str) -> None:
    case.metric = {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": version, "kind": kind, "name": name},
            "metric": {"name": f"m{case.number}"},
            "target": _target(draw),
        },
    }


def _target(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["Value", "AverageValue"])
    return {"type": kind, kind[0].lower() + kind[1:]: draw.choice(["1", "10", "40", "100"])}


def _of_workloads(draw: random.Random, case: Case) -> None:
    how = draw.choice(["avg", "max", "min", "sum"])
    case.rules = _rules_of_pods(draw, case, f"workloads: {how}")
    _described(case, draw, "Deployment", "web", "apps/v1")


def _of_object(draw: random.Random, case: Case) -> None:
    of_namespace = case.kind == "namespace"
    labels = {} if of_namespace else {"service": "web"}
    overrides = "namespace: {resource: namespace}"
    if not of_namespace:
        overrides += ", service: {resource: service}"
    series = f"m{case.number}"
    for index in range(draw.choice([1, 1, 3])):
        place = {"__name__": series, "namespace": case.namespace, "shard": str(index)}
        values = _values(draw, draw.choice([0, 0, 5]), case.steps, case.steps)
        case.series.append(({**place, **labels}, values))
        case.series.append(({**place, "service": "web-api"}, values)) if labels else None
    case.rules = _RULE.format(
        series=series,
        overrides=overrides,
        metric=series,
        query=draw.choice(_QUERIES[:-1]),
        more=_more(draw, case),
    )
    kind, name = ("Namespace", case.namespace) if of_namespace else ("Service", "web")
    _described(case, draw, kind, name, "v1")


def _external(draw: random.Random, case: Case) -> None:
    series = f"m{case.number}"
    everywhere = draw.random() < 0.3
    for index in range(draw.choice([1, 2, 4])):
        place = {"__name__": series, "queue": f"q{index}"}
        place["namespace"] = "elsewhere" if everywhere else case.namespace
        values = _values(draw, 0, case.steps, case.steps)
        case.series.append((place, values))
    query = draw.choice(
        [
            "<<.Series>>{<<.LabelMatchers>>}",
            "sum(<<.Series>>{<<.LabelMatchers>>})",
            "scalar(sum(<<.Series>>{<<.LabelMatchers>>}))",
            "max by (queue) (<<.Series>>{<<.LabelMatchers>>})",
        ]
    )
    overrides = "namespace: {resource: namespace}"
    text = _RULE.format(
        series=series,
        overrides=overrides,
        metric=series,
        query=query,
        more=draw.choice(["onNaN: zero", "onNaN: missing"]),
    )
    if everywhere:
        text = text.replace("resources: {", "resources: {namespaced: false, ")
    case.external = text
    metric: dict[str, Any] = {"name": series}
    if draw.random() < 0.4:
        metric["selector"] = {"matchLabels": {"queue": draw.choice(["q0", "q1"])}}
    case.metric = {"type": "External", "external": {"metric": metric, "target": _target(draw)}}


def _behavior(draw: random.Random) -> dict[str, Any]:
    def rules(window: int) -> dict[str, Any]:
        return {
            "stabilizationWindowSeconds": window,
            "selectPolicy": draw.choice(["Max", "Min"]),
            "policies": [
                {
                    "type": draw.choice(["Pods", "Percent"]),
                    "value": draw.choice([1, 2, 50, 100]),
                    "periodSeconds": draw.choice([15, 30, 90]),
                }
                for _ in range(draw.choice([1, 2]))
            ],
        }

    return {
        "scaleUp": rules(draw.choice([0, 0, 30])),
        "scaleDown": rules(draw.choice([0, 30, 60, 300])),
    }
