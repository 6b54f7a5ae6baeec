"""The advised target of an HPA as a manifest, as a document and as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rules import findings, quantity
from rules.findings import Finding
from rules.hpa import isotonic, replay_report
from rules.hpa.advice import Curve, Window
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.objective import Objective
from rules.hpa.replay import Result, Sync
from rules.hpa.replay_report import percent
from rules.quoting import counted

KIND, API_VERSION = "Advice", "advice.gpu-metrics-adapter/v1"
CURVES = ("target", "highest load", "near the target", "broken above", "separation")
COLUMNS = (*replay_report.COLUMNS, "above objective")
_ROWS, _BAR = 10, 20
_LATE = "It hardly rises above this target, so that the controller adds pods late"
_DEEP = (
    "It grows faster than the throughput, so that the controller removes too many pods at a low "
    "load: allow it one in 5 minutes by scaleDown.policies"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Settings that were replayed, or what was."""

    result: Result
    above: float
    """Seconds for which the objective was, or would have been, broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Everything that the past says of an objective. Times are in seconds."""

    hpa: Autoscaler
    objective: Objective
    history: tuple[Sync, ...]
    windows: tuple[Window, ...]
    length: float
    """Of a window."""
    curves: tuple[Curve, ...]
    """Of each metric with values."""
    problem: str
    """Why no target follows, and what to do; empty if one does."""
    chosen: Curve | None
    """The curve of the advised target; None without one."""
    manifest: Mapping[str, Any]
    """The HPA with the target; empty without one."""
    variants: tuple[Variant, ...]
    """What was, then the present settings, then the advised ones, if there are some."""
    findings: tuple[Finding, ...]
    """What is wrong with the present settings."""
    notes: tuple[str, ...]
    """Where the history comes from, the model, and what is not known."""

    @property
    def title(self) -> str:
        """The HPA, the period and the objective."""
        kept = sum(each.objective < self.objective.limit for each in self.windows)
        return (
            f"{replay_report.period(self.hpa, self.history)}: {self.objective} in {kept} of "
            f"{counted(len(self.windows), 'window')} of {replay_report.duration(self.length)}"
        )

    @property
    def verdict(self) -> str:
        """The target and its evidence, or why there is none."""
        of = self.chosen
        if of is None:
            return f"No target follows from the past: {self.problem}"
        share = isotonic.value_at(of.steps, of.target or 0.0)
        doubt = "" if of.rises else f". {_LATE}"
        doubt = doubt if of.proportional else f". {_DEEP}"
        return (
            f"{of.metric.name} with the target {of.readable(of.target or 0.0)} for each pod keeps "
            f"the objective: it held in {percent(share)} of the {of.near} windows with about this "
            f"load, and was broken in {counted(of.broken_above, 'window')} with more{doubt}"
        )


def manifest(document: Mapping[str, Any], of: Curve) -> dict[str, Any]:
    """Return an HPA as a document to apply, whose only metric of pods is this one with its target.

    Metrics of other types stay.
    """
    metrics = document["spec"].get("metrics") or ()
    own = [each["pods"]["metric"] for each in metrics if each["type"] == "Pods"]
    named = [each for each in own if each["name"] == of.metric.name]
    entry = {
        "type": "Pods",
        "pods": {
            "metric": named[0] if named else {"name": of.metric.name},
            "target": {"type": "AverageValue", "averageValue": quantity.decimal(of.milli)},
        },
    }
    others = [each for each in metrics if each["type"] != "Pods"]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {name: document["metadata"][name] for name in ("name", "namespace")},
        "spec": {**document["spec"], "metrics": [entry, *others]},
    }


def curve_cells(of: Curve) -> tuple[str, ...]:
    """Return the cells of a row, in the order of CURVES."""
    target, highest = of.readable(of.target or 0.0), of.readable(of.high)
    if not of.reached:
        return ("none", highest, "", "", "")
    return (target, highest, str(of.near), str(of.broken_above), percent(of.separation))


def result_rows(found: Advice) -> list[tuple[str, ...]]:
    """Return title and cells of each result, in the order of COLUMNS."""
    return [
        (each.result.title, *replay_report.cells(each.result), replay_report.duration(each.above))
        for each in found.variants
    ]


def document(found: Advice) -> dict[str, Any]:
    """Return the document for clients; times are in seconds."""
    of = found.chosen
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "summary": found.title,
        "namespace": found.hpa.namespace,
        "name": found.hpa.name,
        "objective": {
            "metric": found.objective.metric,
            "below": quantity.decimal(found.objective.limit),
        },
        "windowSeconds": found.length,
        "windows": len(found.windows),
        "metric": None if of is None else of.metric.name,
        "target": None if of is None else quantity.decimal(of.milli),
        "metrics": [_curve(each) for each in found.curves],
        "variants": [
            {**replay_report.variant(each.result), "aboveObjectiveSeconds": round(each.above)}
            for each in found.variants
        ],
        "findings": [findings.document(each) for each in found.findings],
        "notes": list(found.notes),
        "hpa": dict(found.manifest) or None,
        "verdict": found.verdict,
    }


def _curve(of: Curve) -> dict[str, Any]:
    return {
        "name": of.metric.name,
        "target": quantity.decimal(of.milli) if of.reached else None,
        "lowest": of.low,
        "highest": of.high,
        "windows": of.windows,
        "near": of.near,
        "brokenAbove": of.broken_above,
        "separation": round(of.separation, 3),
        "curve": [
            {"upTo": each.until, "kept": round(each.value, 4), "windows": each.count}
            for each in of.steps
        ],
    }


def lines(found: Advice) -> Iterator[str]:
    """Yield the lines of the text; the last one is the verdict."""
    yield found.title
    for note in found.notes:
        yield f"* {note}"
    yield ""
    yield from replay_report.table(
        [("", *CURVES), *((each.metric.name, *curve_cells(each)) for each in found.curves)]
    )
    if (of := found.chosen) is not None:
        yield ""
        yield f"Windows that kept the objective, by {of.metric.name} for each pod:"
        yield from _drawn(of)
    yield ""
    yield from replay_report.table([("", *COLUMNS), *result_rows(found)])
    yield ""
    for each in found.findings:
        yield f"{each.state}: {each.sentence}"
    yield found.verdict


def _drawn(of: Curve) -> Iterator[str]:
    """Draw a curve: a bar for each part of the loads, from the lowest to the highest."""
    edges = [of.low + (of.high - of.low) * number / _ROWS for number in range(1, _ROWS + 1)]
    texts = list(map(of.readable, edges))
    width = max(map(len, texts))
    for text, edge in zip(texts, edges, strict=True):
        share = isotonic.value_at(of.steps, edge)
        yield f"  {text:>{width}}  {'█' * round(_BAR * share):<{_BAR}}  {percent(share)}"
