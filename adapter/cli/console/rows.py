"""Row of an autoscaler in the list: from its document, and from the last look at its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rules import quantity
from rules.errors import QuantityError, UnreadableError
from rules.findings import Finding, State
from rules.hpa import judgement, reading
from rules.hpa.autoscaler import Autoscaler, MetricSpec

Document = Mapping[str, Any]

STATES = (State.FAILURE, State.WARNING, State.SKIPPED, State.OK)
"""States of autoscalers, worst first."""
_KEYS = {
    "AverageValue": "averageValue",
    "Value": "value",
    "Utilization": "averageUtilization",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the requests for the metrics of an autoscaler were answered."""

    at: float
    """Unix seconds."""
    stamps: tuple[float | None, ...] = ()
    """Time of the oldest value of each metric; None without a value."""
    findings: tuple[Finding, ...] = ()
    denied: str = ""
    """Which right the user lacks to read a metric, and what grants it."""


NEVER = Look(at=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCell:
    """A metric of an autoscaler, as of the last sync of the controller."""

    metric: MetricSpec
    current: int | None
    """In the unit of the target; None if the controller has no value."""
    stamp: float | None
    """Time of the oldest value, in Unix seconds; None if it is not known."""

    @property
    def ratio(self) -> float:
        """The value divided by the target; 0 without a value."""
        return self.current / self.metric.value if self.current and self.metric.value else 0.0

    def doubt(self) -> Finding | None:
        """Return why target and value have different units; None if they have not."""
        if self.current is None:
            return None
        return judgement.doubt(self.metric, self.current, self.ratio)

    def document(self, now: float) -> Document:
        """Return the metric for clients; ages are in seconds."""
        current = self.current
        return {
            "type": self.metric.type,
            "name": self.metric.name,
            "targetType": self.metric.target,
            "target": self.metric.written(self.metric.value),
            "current": None if current is None else self.metric.written(current),
            "text": self.metric.readable_of_target(current),
            "age": None if self.stamp is None else max(0, round(now - self.stamp)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the list shows of an autoscaler."""

    namespace: str
    name: str
    target: str = ""
    minimum: int = 0
    maximum: int = 0
    present: int | None = None
    wanted: int | None = None
    """Replicas; None if the controller did not read the scale."""
    values: tuple[MetricCell, ...] = ()
    state: State
    sentence: str
    """Cause and cure; empty if nothing is wrong."""
    denied: str = ""
    """As in a look."""

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ratio(self) -> float:
        """Highest of its values divided by their targets."""
        return max((each.ratio for each in self.values), default=0.0)

    @property
    def label(self) -> str:
        """State, as pages show it."""
        return label(self.state)

    @property
    def order(self) -> tuple[int, str, str]:
        """Key that sorts errors first."""
        return STATES.index(self.state), self.namespace, self.name

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether each word, in lower case, is part of what the row says."""
        names = " ".join(each.metric.name for each in self.values)
        text = f"{self.key} {self.target} {names} {self.label} {self.sentence}".lower()
        return all(word in text for word in words)

    def document(self, now: float) -> Document:
        """Return the row for clients."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "target": self.target,
            "minReplicas": self.minimum,
            "maxReplicas": self.maximum,
            "currentReplicas": self.present,
            "desiredReplicas": self.wanted,
            "metrics": [each.document(now) for each in self.values],
            "state": self.label,
            "sentence": self.sentence,
        }


def label(state: State) -> str:
    """Return the state of an autoscaler, as pages show it: `unknown` if nobody can tell."""
    return "unknown" if state is State.SKIPPED else str(state)


def row(document: Document, look: Look = NEVER) -> Row:
    """Return the row of an HPA of autoscaling/v2."""
    metadata = document["metadata"]
    try:
        hpa = reading.parsed(document)
    except UnreadableError as error:
        return Row(
            namespace=metadata["namespace"],
            name=metadata["name"],
            state=State.SKIPPED,
            sentence=str(error),
        )
    values = tuple(_values(hpa, document, look))
    state, sentence = _judge(hpa, values, look)
    known = hpa.conditions and (
        hpa.current or hpa.conditions.get("AbleToScale", ("",))[0] != "False"
    )
    # A controller that never had a value writes 0.
    wanted = hpa.desired or hpa.current if state is State.FAILURE else hpa.desired
    return Row(
        namespace=hpa.namespace,
        name=hpa.name,
        target=str(hpa.target),
        minimum=hpa.minimum,
        maximum=hpa.maximum,
        present=hpa.current if known else None,
        wanted=wanted if known else None,
        values=values,
        state=state,
        sentence=sentence,
        denied=look.denied,
    )


def _values(hpa: Autoscaler, document: Document, look: Look) -> Iterator[MetricCell]:
    """Yield the metrics; their values have the same positions in the status, as for kubectl."""
    current = (document.get("status") or {}).get("currentMetrics") or ()
    for index, metric in enumerate(hpa.metrics):
        source = current[index] if index < len(current) else {}
        kind = metric.type[0].lower() + metric.type[1:]
        text = ((source.get(kind) or {}).get("current") or {}).get(_KEYS[metric.target])
        yield MetricCell(
            metric=metric,
            current=_number(metric, text),
            stamp=look.stamps[index] if index < len(look.stamps) else None,
        )


def _number(metric: MetricSpec, text: object) -> int | None:
    if text is None:
        return None
    try:
        return int(str(text)) if metric.target == "Utilization" else quantity.milli_value(str(text))
    except (ValueError, QuantityError):
        return None


def _judge(hpa: Autoscaler, values: Sequence[MetricCell], look: Look) -> tuple[State, str]:
    """Return what is most wrong, and a sentence about it.

    What the adapter says about a metric is shorter than the condition of the controller.
    """
    failed = [
        (kind, reason, message)
        for kind in ("AbleToScale", "ScalingActive")
        for status, reason, message in [hpa.conditions.get(kind, ("", "", ""))]
        if status == "False" and reason != "ScalingDisabled"
    ]
    worst = min(look.findings, key=lambda each: STATES.index(each.state), default=None)
    if failed:
        kind, reason, message = failed[0]
        if kind == "ScalingActive" and worst is not None:
            return State.FAILURE, _sentence(worst)
        cure = judgement.cure_of(kind, reason, message)
        return State.FAILURE, f"{reason}: {message.rstrip('.')}. {cure}"
    if worst is not None and worst.state is not State.OK:
        return worst.state, _sentence(worst)
    if not hpa.conditions:
        return State.WARNING, "the controller has not synced it. Wait 15 s"
    lacking = [str(each.metric) for each in values if each.current is None]
    if lacking and hpa.conditions.get("ScalingActive", ("",))[0] == "True":
        return State.WARNING, f"{lacking[0]} has no value and is ignored"
    if doubt := next(filter(None, map(MetricCell.doubt, values)), None):
        return State.WARNING, doubt.sentence
    limited, reason, _ = hpa.conditions.get("ScalingLimited", ("", "", ""))
    if limited == "True" and reason == "TooManyReplicas":
        ratio = max((each.ratio for each in values), default=0.0)
        recommended = math.ceil(ratio * hpa.current)
        fact = f"limited by maxReplicas: the metrics recommend about {recommended}"
        return State.WARNING, f"{fact}. {judgement.advice(hpa, reason, recommended)}"
    return State.OK, ""


def _sentence(finding: Finding) -> str:
    return replace(finding, subject="").sentence
