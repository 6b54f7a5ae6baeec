"""Evidence that a run of `conformance` collects, as a document and as charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter import __version__
from adapter.background import utc
from adapter.cli import output
from adapter.cli.console import chart
from adapter.cli.console.autoscalers import ReplicaSample
from adapter.cli.console.chart import Chart
from rules.findings import Finding, State
from rules.hpa.autoscaler import Autoscaler

Document = Mapping[str, Any]

REQUIREMENT: Document = {
    "id": "pod_autoscaling",
    "level": "MUST",
    "description": (
        "If the platform supports the HorizontalPodAutoscaler, it must function correctly for pods "
        "utilizing accelerators. This includes the ability to scale these Pods based on custom "
        "metrics relevant to AI/ML workloads."
    ),
    "source": "https://github.com/cncf/k8s-ai-conformance",
}
"""Requirement of the checklists of Kubernetes 1.33 to 1.37; a run has the steps of the test
plan in KAR-0057 of kubernetes-sigs/ai-conformance."""
_PASSED, _REHEARSAL, _FAILED = "passed", "rehearsal", "failed"
_CLAIMS = {
    _PASSED: "The HPA scaled pods with accelerators out and in by their metric.",
    _REHEARSAL: (
        "This is a rehearsal and no evidence: the HPA scaled out and in, but no accelerator was "
        "seen in the pods. Do not submit this page."
    ),
}


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What a run has found so far."""

    run: str
    started: float
    """Unix seconds, as all times."""
    ended: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    nodes: list[Document] = field(default_factory=list)
    """Nodes with accelerators."""
    resource: str = ""
    """Extended resource of the accelerators; empty if the workload is a stand-in."""
    manifests: Sequence[Document] = ()
    findings: list[Finding] = field(default_factory=list)
    hpa: Autoscaler | None = None
    """As it was observed last."""
    loads: list[tuple[float, float]] = field(default_factory=list)
    """Time and level."""
    samples: list[ReplicaSample] = field(default_factory=list)
    conditions: list[Document] = field(default_factory=list)
    """Each change of a condition of the HPA, oldest first."""
    events: Sequence[Document] = ()
    """Events of the namespace, oldest first."""
    pods: Sequence[Document] = ()
    """Pods while the load was high, and the accelerators that each sees."""
    explanations: dict[str, Sequence[str]] = field(default_factory=dict)
    """Step -> lines of `explain hpa` when it was reached."""

    @property
    def outcome(self) -> str:
        """Whether the run passed, was a rehearsal, or failed."""
        if any(each.state is State.FAILURE for each in self.findings):
            return _FAILED
        shown = [bool(each["accelerators"]) for each in self.pods] if self.resource else []
        return _PASSED if shown and all(shown) else _REHEARSAL

    @property
    def failed(self) -> bool:
        """Whether a step failed."""
        return self.outcome == _FAILED

    @property
    def claim(self) -> str:
        """What the evidence shows, in a sentence; of what failed, the first failure."""
        failures = (each for each in self.findings if each.state is State.FAILURE)
        return _CLAIMS.get(self.outcome) or next(failures).sentence


def document(evidence: Evidence) -> Document:
    """Return the evidence as a document of JSON types."""
    return {
        "kind": "ConformanceEvidence",
        "apiVersion": "conformance.gpu-metrics-adapter/v1",
        "requirement": REQUIREMENT,
        "run": evidence.run,
        "outcome": evidence.outcome,
        "claim": evidence.claim,
        "started": utc(evidence.started),
        "ended": utc(evidence.ended),
        "versions": {**evidence.versions, "command": f"gpu-metrics-adapter {__version__}"},
        "resource": evidence.resource,
        "nodes": evidence.nodes,
        "findings": output.documents(evidence.findings),
        "pods": list(evidence.pods),
        "load": [{"time": round(time, 3), "level": value} for time, value in evidence.loads],
        "samples": [each.document() for each in evidence.samples],
        "conditions": evidence.conditions,
        "events": list(evidence.events),
        "explanations": {step: list(lines) for step, lines in evidence.explanations.items()},
        "manifests": list(evidence.manifests),
    }


def charts(evidence: Evidence) -> list[Chart]:
    """Return a chart of the load, one of the metric with its target, and one of replicas."""
    if evidence.hpa is None:
        return []
    points = [*evidence.loads, (evidence.samples[-1].time, evidence.loads[-1][1])]
    load = chart.draw("Load of each pod in %", {"load": points}, steps=True)
    found = chart.of_samples(evidence.hpa, evidence.samples)
    return [load, *found] if load else found


def changed(before: Sequence[Document], hpa: Autoscaler, now: float) -> list[dict[str, str]]:
    """Return the conditions of an HPA that differ from the last known ones."""
    last = {each["type"]: (each["status"], each["reason"], each["message"]) for each in before}
    return [
        {"time": utc(now), "type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in hpa.conditions.items()
        if last.get(kind) != (status, reason, message)
    ]


def title(evidence: Evidence) -> str:
    """Return the heading of the page."""
    stand_in = evidence.manifests and not evidence.resource
    workload = ", with a stand-in instead of an accelerator" if stand_in else ""
    return f"{REQUIREMENT['id']}: {evidence.outcome}{workload}"


FILE_NAME = REQUIREMENT["id"]
"""Name of the page and of the document, without suffix."""
