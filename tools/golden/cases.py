"""What is recorded: the faults of series, rules and Prometheus, and cases from public reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adapter.cli.local_prometheus.remote_write import STALE, Labels
from tools import documents
from tools.documents import Document
from tools.faults import seeds, testbed
from tools.faults.gate import Mode
from tools.faults.seeds import AGO, Fault
from tools.real import prometheus

_REPORTS = Path(__file__).parents[2] / "tests" / "golden" / "reports"
"""A YAML file for each case from a public report, with the right answer."""
_STEP, _BEHIND, _AHEAD = 15, 1800.0, 600.0
_LINE = re.compile(r"(?P<sample>[^#\s][^{\s]*(?:\{.*\})?\s+\S+)(?P<options>(?:\s+\S+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: what exists, and what a user does."""

    title: str
    series: tuple[str, ...] = ()
    """Samples in the text format, each with options: `+SLOPE` per second, `from=-SECONDS`,
    `to=-SECONDS` (by default, from half an hour ago until 10 minutes later); a series that ends
    before now has a staleness marker. `at=-SECONDS,...` are single samples instead."""
    rules: str = ""
    flags: tuple[str, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    """Pods and workloads."""
    hpas: tuple[Mapping[str, Any], ...] = ()
    replicas: int = 1
    requests: tuple[str, ...] = ()
    """Paths below the adapter."""
    explained: tuple[tuple[str, ...], ...] = ()
    """Arguments of `explain`."""
    commands: tuple[tuple[str, ...], ...] = ()
    """`PROMETHEUS` stands for the flag with its URL; the command `SHOW` prints a file."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the commands by their names."""
    histograms: tuple[Mapping[str, Any], ...] = ()
    """Native histograms: labels, buckets and sum of what each grows by in 15 s."""
    gate: Mode = ""
    serves: bool = True
    """Whether an adapter runs."""

    def samples(self, now: float) -> Iterator[tuple[Labels, list[tuple[int, float]]]]:
        """Yield the series, each with its samples (Unix milliseconds, value)."""
        for line in self.series:
            if line.startswith("#"):
                continue
            found = _LINE.fullmatch(line.strip())
            assert found is not None, line
            options = {"from": -_BEHIND, "to": _AHEAD, "slope": 0.0}
            single: list[float] = []
            for word in found["options"].split():
                name, _, number = word.partition("=")
                if name == "at":
                    single = [*map(float, number.split(","))]
                else:
                    options["slope" if word[0] == "+" else name] = float(number or word)
            ((labels, value),) = prometheus.samples([found["sample"]])
            times = [now + at for at in single] or [
                now - now % _STEP + at
                for at in range(int(-_BEHIND), int(_AHEAD), _STEP)
                if options["from"] <= at <= options["to"]
            ]
            points = [
                (int(at * 1000), value + options["slope"] * (at - now + _BEHIND)) for at in times
            ]
            if options["to"] < 0 and not single:
                points.append((int((times[-1] + 5) * 1000), STALE))
            yield labels, points


def pod(namespace: str, name: str, app: str) -> Document:
    """Return a pod that has been Ready for long."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:01:00Z"}
    status = {"phase": "Running", "startTime": "2025-01-01T00:00:00Z", "conditions": [ready]}
    return documents.pod(name, namespace, labels={"app": app}) | {"status": status}


def hpa(
    namespace: str,
    name: str,
    metric: Mapping[str, Any],
    *,
    target: str,
    kind: str = "Deployment",
    low: int = 1,
    replicas: int = 1,
) -> Document:
    """Return an HPA of the workload `target` with one metric; it has scaled to 0 `replicas`."""
    asleep = [{"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"}]
    status = {
        "currentReplicas": replicas,
        "desiredReplicas": replicas,
        "conditions": [] if replicas else asleep,
    }
    document = documents.hpa(
        name, metric, target=target, kind=kind, namespace=namespace, minReplicas=low
    )
    document["metadata"]["uid"] = name
    return document | {"status": status}


def _of_fault(fault: Fault) -> Case:
    metric = fault.spec
    name = fault.metric
    series = [*seeds.HEALTHY]
    if fault.age:
        series += [f"{each} at=-{fault.age}" for each in fault.live]
    else:
        series += [each for each in fault.live if each not in series]
    series += [f"{each} to=-{AGO}" for each in fault.ended]
    series += [f"{each} at=-930,-630,-330" for each in fault.rare]
    replicas = 1 if fault.minimum else 0
    autoscaler = hpa(
        *("default", "web", metric),
        target=fault.target,
        kind="ReplicaSet",
        low=fault.minimum,
        replicas=replicas,
    )
    return Case(
        title=f"fault: {fault.title}",
        series=tuple(series),
        rules=seeds.rules(fault.metric),
        flags=(
            *("--preset=gpu-dcgm", "--metrics-relist-interval=5s", "--metrics-max-age=1h"),
            *(("--prometheus-timeout=2s",) if fault.gate == "hangs" else ()),
        ),
        objects=(pod("default", "web-0", "web"), testbed.replica_set(fault.target)),
        hpas=(autoscaler,),
        replicas=replicas,
        requests=(_path(metric, name),),
        explained=(("hpa", "default/web"),),
        gate=fault.gate,
    )


def _path(metric: Mapping[str, Any], name: str) -> str:
    if metric["type"] == "External":
        name = metric["external"]["metric"]["name"]
        return f"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{name}"
    root = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"
    if metric["type"] == "Object":
        described = metric["object"]["describedObject"]
        metric_name = metric["object"]["metric"]["name"]
        group = described["apiVersion"].rpartition("/")[0]
        resource = f"{described['kind'].lower()}s" + (f".{group}" if group else "")
        return f"{root}/{resource}/{described['name']}/{metric_name}"
    return f"{root}/pods/*/{name}?labelSelector=app%3Dweb"


_ELSEWHERE = frozenset(("selector that matches nothing", "scaleTargetRef missing"))
"""Faults of objects that only a whole cluster has."""


def faults() -> Iterable[Case]:
    """Return the faults that need no cluster."""
    for each in seeds.FAULTS:
        cpu = each.hpa is not None and each.hpa["type"] == "Resource"
        if (not each.place or each.place == "restarted") and each.title not in _ELSEWHERE | {
            "cpu without metrics.k8s.io"
        }:
            assert not cpu, each.title
            yield _of_fault(each)


def _of_report(name: str, document: Mapping[str, Any]) -> Case:
    pods = tuple(
        pod(namespace, *rest.split(" "))
        for namespace, _, rest in (each.partition("/") for each in document.get("pods", ()))
    )
    return Case(
        title=f"report: {name}",
        series=tuple(document.get("series", "").splitlines()),
        rules=document.get("rules", ""),
        flags=(*document.get("flags", ()), "--metrics-relist-interval=1m"),
        objects=pods,
        hpas=tuple(
            hpa(each["namespace"], each["name"], each["metric"], target=each["target"])
            for each in document.get("hpas", ())
        ),
        replicas=document.get("replicas", 1),
        requests=tuple(document.get("requests", ())),
        explained=_words(document.get("explain", ())),
        commands=_words(document.get("commands", ())),
        files=document.get("files", {}),
        histograms=tuple(document.get("histograms", ())),
        serves=document.get("serves", True),
    )


def _words(lines: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(each) for each in lines)


def reports() -> Iterator[Case]:
    """Yield the cases from public reports."""
    for path in sorted(_REPORTS.glob("*.yaml")):
        yield _of_report(path.stem, yaml.safe_load(path.read_text()))


CASES: Mapping[str, Case] = {each.title: each for each in (*faults(), *reports())}
