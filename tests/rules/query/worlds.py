"""Small worlds of series on a real Prometheus, and queries about them, alone and shared.

Each world has its own metrics (`a3`, `b3`), so that one Prometheus holds them all. Labels have few
values, so that series collide in every combination of namespace, pod, node and zone.
"""

from __future__ import annotations

import http.client
import json
import random
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rules.query import plan
from rules.query.catalog import Step
from rules.query.label_binding import LabelBinding
from rules.query.plan import SelectedObjects
from rules.query.scope import Scope
from rules.selectors.selectors import Selector
from tools.real.prometheus import Prometheus

NAMESPACES = ("n1", "n2", "n3")
PODS = ("p1", "p2", "p3")
NODES = ("x", "y")
ZONES = ("u", "v")
WORLDS = 24
STEP = 30
"""Seconds between two samples of a series."""
SAMPLES = 4

Answer = dict[tuple[str, str], list[str]] | None
"""Values by namespace and name, sorted; None after an error of Prometheus."""


def series_of(world: int) -> list[dict[str, str]]:
    """Return the series of a world: a, b, c of pods; n of nodes, q of pods' names, h histograms.

    In every second world each pod has one series of a metric, else up to two.
    """
    choice = random.Random(world)
    series = set()

    def add(metric: str, **labels: str) -> None:
        present = {name: value for name, value in labels.items() if value}
        series.add(tuple({"__name__": f"{metric}{world}", **present}.items()))

    nodes = {(namespace, pod): choice.choice(NODES) for namespace in NAMESPACES for pod in PODS}
    for metric in "abc":
        for (namespace, pod), own in nodes.items():
            for _ in range(1 if world % 2 else choice.choice((0, 1, 2))):
                node = own if world % 3 else choice.choice((*NODES, ""))
                add(
                    metric,
                    namespace=namespace,
                    pod=pod,
                    node=node,
                    zone=choice.choice((*ZONES, "")),
                )
        if world % 4 == 0:  # series of a node, of a namespace or of a pod alone
            for labels in ({"node": "x"}, {"namespace": "n1"}, {"pod": "p1", "zone": "u"}):
                add(metric, **labels)
    for node in NODES:
        add("n", node=node, zone=choice.choice(ZONES))
    for pod in PODS:
        add("q", pod=pod, zone=choice.choice(ZONES))
    for namespace, pod in nodes:
        for bound in ("1", "5", "+Inf"):
            add("h", namespace=namespace, pod=pod, le=bound)
    return [dict(labels) for labels in sorted(series)]


def write(prometheus: Prometheus, series: Iterable[dict[str, str]], *, end: float) -> None:
    """Write samples of these series, the last ones at `end` (Unix seconds)."""
    choice = random.Random(0)
    values = {tuple(labels.items()): float(choice.randrange(8)) for labels in series}
    for step in reversed(range(SAMPLES)):
        # Increments of eighths are exact in any order of addition.
        values = {key: value + choice.randrange(1, 9) / 8 for key, value in values.items()}
        samples = [(dict(key), value) for key, value in values.items()]
        prometheus.write(samples, at=end - step * STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Objects of one request: names in one namespace, or in none."""

    namespace: str
    names: tuple[str, ...]


class Client:
    """Evaluates queries at one time, over one connection."""

    def __init__(self, prometheus: Prometheus, *, time: float) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", prometheus.port, timeout=60)
        self._time = time
        self.count = Counter[str]()
        """How many queries were sent, shared ones failed, and answers were compared."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def query(self, promql: str) -> list[dict] | None:
        """Return the samples of the result; None if Prometheus refuses the query or fails."""
        self.count["queries"] += 1
        body = urllib.parse.urlencode({"query": promql, "time": self._time})
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", "/api/v1/query", body, headers)
        answer = json.load(self._connection.getresponse())
        if answer["status"] != "success":
            assert answer["errorType"] in {"execution", "bad_data"}, answer
            return None
        return answer["data"]["result"] if answer["data"]["resultType"] == "vector" else []

    def alone(self, step: Step, q: Question, selector: Selector) -> Answer:
        """Answer one question with its own query."""
        objects = SelectedObjects(namespaces=(q.namespace,) if q.namespace else (), names=q.names)
        samples = self.query(plan.render(step, objects, selector))
        return _by_object(samples, step.binding.resource, "", q.namespace)

    def shared(
        self, step: Step, scope: Scope, objects: SelectedObjects, selector: Selector
    ) -> Answer:
        """Answer all questions about `objects` with one query."""
        binding = step.binding
        across = scope == Scope.CLUSTER and bool(binding.namespace)
        text = plan.render(step, objects, selector, by_namespace=across)
        namespace = binding.namespace if across else ""
        own = objects.namespaces[0] if objects.namespaces and not across else ""
        return _by_object(self.query(text), binding.resource, namespace, own)


def _by_object(
    samples: Sequence[dict] | None, resource: str, namespace: str, default: str
) -> Answer:
    if samples is None:
        return None
    found: dict[tuple[str, str], list[str]] = {}
    for sample in samples:
        labels = sample["metric"]
        key = labels.get(namespace, "") if namespace else default, labels.get(resource, "")
        # In subqueries, the order of samples varies, and with it the last digit of `avg`.
        found.setdefault(key, []).append(f"{float(sample['value'][1]):.12g}")
    return {key: sorted(values) for key, values in found.items()}


def differences(
    client: Client, step: Step, scope: Scope, questions: Sequence[Question], selector: Selector
) -> Iterator[str]:
    """Yield where shared answers differ from those alone.

    A shared query that fails is no difference: its questions are then answered alone.
    """
    alone = {each: client.alone(step, each, selector) for each in questions}
    for merged in _merged(step.binding, scope, questions):
        client.count["shared queries"] += 1
        shared = client.shared(step, scope, merged, selector)
        if shared is None:
            client.count["shared queries that failed"] += 1
            continue
        for question in questions:
            if merged.namespaces and question.namespace not in merged.namespaces:
                continue
            own = alone[question]
            for name in question.names:
                key = question.namespace, name
                client.count["answers"] += 1
                client.count["answers with values"] += key in shared
                if own is None or own.get(key) != shared.get(key):
                    yield f"{key} alone {own and own.get(key)}, of {merged} {shared.get(key)}"


def _merged(
    binding: LabelBinding, scope: Scope, questions: Sequence[Question]
) -> Iterator[SelectedObjects]:
    """Yield the objects of queries that cover the questions: few, more than asked for, and all."""
    names = tuple(sorted({name for question in questions for name in question.names}))
    if not binding.namespace:
        spaces: list[tuple[str, ...] | None] = [()]
    elif scope == Scope.NAMESPACE:
        spaces = [(each,) for each in sorted({question.namespace for question in questions})]
    else:
        spaces = [tuple(sorted({question.namespace for question in questions})), None]
    for namespaces in spaces:
        yield SelectedObjects(namespaces=namespaces, names=names)
        yield SelectedObjects(namespaces=namespaces, names=None)
