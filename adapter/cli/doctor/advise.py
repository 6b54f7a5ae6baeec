"""`advise hpa`: reads the past of an autoscaler, and finds the target that keeps an objective."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adapter.cli.doctor import history
from adapter.cli.doctor import replay as doctor_replay
from adapter.cli.doctor.client import EXTERNAL_RESOURCE, ApiClient
from adapter.cli.doctor.history import NOT_OF_RULES, Past, Progress
from adapter.cli.doctor.replay import WEEK
from adapter.clients.prometheus import Prometheus
from rules.hpa import (
    advice,
    advice_refusal,
    advice_report,
    objective,
    past_findings,
    reading,
    replay,
    replay_report,
)
from rules.hpa.advice import WINDOW, Curve
from rules.hpa.advice_report import Advice, Variant
from rules.hpa.autoscaler import SYNC, Autoscaler, MetricSpec
from rules.hpa.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions:
    """What to advise on. Times are in seconds."""

    objective: str
    """METRIC < LIMIT."""
    since: float = WEEK
    window: float = WINDOW
    startup: float | None = None
    """Until a new pod has a value; None if the past must tell."""
    step: float = SYNC


async def run(
    client: ApiClient,
    prometheus: Prometheus,
    namespace: str,
    name: str,
    wanted: AdviseOptions,
    progress: Progress = lambda _: None,
) -> Advice:
    """Return what the past of an HPA says of an objective.

    Raises UnreadableError with the cause and what to do if the past cannot be read.
    """
    document = await client.run(reading.document(namespace, name))
    hpa = reading.parsed(document)
    left_out = [each.name for each in hpa.metrics if each.type in NOT_OF_RULES]
    of_rules = tuple(each for each in hpa.metrics if each.type not in NOT_OF_RULES)
    hpa = replace(hpa, metrics=of_rules)
    served = await client.metrics()
    aim = objective.read(wanted.objective, served)
    past = await history.read(
        client,
        prometheus,
        hpa,
        now=time.time(),
        since=wanted.since,
        step=wanted.step,
        objective=list(_choices(hpa, aim, served[aim.metric])),
        loads=[each for each in _loads(hpa) if "pods" in served.get(each.name, ())],
        progress=progress,
    )
    # In a thread, because a week takes seconds.
    return await asyncio.to_thread(_advise, past, document, aim, wanted, left_out)


def _choices(hpa: Autoscaler, aim: Objective, kinds: Container[str]) -> Iterator[MetricSpec]:
    """Yield the ways to request an objective: of the workload, of its pods, or external."""
    name, limit = aim.metric, aim.limit
    yield MetricSpec(type="Object", name=name, target="Value", value=limit, described=hpa.target)
    if "pods" in kinds:
        yield MetricSpec(type="Pods", name=name, target="AverageValue", value=limit)
    if EXTERNAL_RESOURCE in kinds:
        yield MetricSpec(type="External", name=name, target="Value", value=limit)


def _loads(hpa: Autoscaler) -> Iterator[MetricSpec]:
    """Yield the metrics of load that the HPA does not have."""
    own = {each.name for each in hpa.metrics if each.type == "Pods"}
    for name in advice.LOADS:
        if name not in own:
            yield MetricSpec(type="Pods", name=name, target="AverageValue", value=1)


def _advise(
    past: Past,
    document: Mapping[str, Any],
    aim: Objective,
    wanted: AdviseOptions,
    left_out: Sequence[str],
) -> Advice:
    """Return the advice. `left_out` are the metrics of the HPA that have no past."""
    own = range(len(past.hpa.metrics))
    length = max(wanted.window, past.delays[len(own)])
    windows = advice.windows(past.history, len(own), length)
    loads = {
        index: metric
        for index, metric in enumerate(past.metrics)
        if metric.type == "Pods" and index != len(own)
    }
    curves = advice.curves(loads, windows, aim, past.hpa.tolerances[1])
    problem = advice_refusal.problem(curves, windows, aim, length=length)
    chosen = None if problem else advice.choose(curves)
    startup, source = doctor_replay.startup(past, wanted.startup)
    before, totals = advice.only(past.history, own), [past.totals[each] for each in own]
    was = replay.recorded(past.hpa, before, step=wanted.step, totals=totals)
    variants = [Variant(result=was, above=advice.above(windows, aim, length))]
    manifest = dict[str, Any]()
    if chosen is not None:
        variants += _variants(past, chosen, startup, wanted.step, length, whole=not left_out)
        manifest = advice_report.manifest(document, chosen)
    # The metrics that are left out may have needed the minimum.
    judged = replace(past.hpa, minimum=0) if left_out else past.hpa
    findings = past_findings.findings(
        judged, before, startup=startup, step=wanted.step, totals=totals
    )
    shown = dict.fromkeys([*own, *([chosen.index] if chosen else [])])
    return Advice(
        hpa=past.hpa,
        objective=aim,
        history=past.history,
        windows=tuple(windows),
        length=length,
        curves=tuple(curves),
        problem=problem,
        chosen=chosen,
        manifest=manifest,
        variants=tuple(variants),
        findings=tuple(findings),
        notes=(
            *doctor_replay.notes(past, list(shown), source, was.saturated),
            *_changed(past.hpa, chosen, left_out),
            *_lengthened(aim, wanted.window, length),
        ),
    )


def _variants(
    past: Past, chosen: Curve, startup: float, step: float, length: float, *, whole: bool
) -> Iterator[Variant]:
    """Replay the present settings, if they are the `whole` HPA, and the advised ones."""
    metrics = past.hpa.metrics
    others = [index for index, each in enumerate(metrics) if each.type != "Pods"]
    target = replace(chosen.metric, value=chosen.milli)
    advised = replace(past.hpa, metrics=(target, *(metrics[each] for each in others)))
    settings: list[tuple[str, Autoscaler, Sequence[int]]] = [
        ("present settings", past.hpa, range(len(metrics))),
        (f"target {target.readable(target.value)}", advised, [chosen.index, *others]),
    ]
    for title, hpa, positions in settings if whole else settings[1:]:
        result = replay.simulate(
            title,
            hpa,
            advice.only(past.history, positions),
            startup=startup,
            step=step,
            totals=[past.totals[each] for each in positions],
        )
        above = advice.expected_above(
            chosen, past.history, result, startup=startup, step=step, length=length
        )
        yield Variant(result=result, above=above)


def _changed(hpa: Autoscaler, chosen: Curve | None, left_out: Sequence[str]) -> Iterator[str]:
    """Yield which metrics the advised one replaces, and which stay without a replay."""
    others = [each.name for each in hpa.metrics if each.type == "Pods"]
    if chosen is not None and others and others != [chosen.metric.name]:
        yield (
            f"{chosen.metric.name} replaces the metrics of pods that the HPA has now "
            f"({', '.join(others)}): the metric that wants most pods decides"
        )
    if left_out:
        yield (
            f"Not replayed, because it comes from metrics.k8s.io: {', '.join(left_out)}. It stays "
            "in the HPA, and decides whenever it wants more pods"
        )


def _lengthened(aim: Objective, wanted: float, length: float) -> Iterator[str]:
    """Yield why windows are longer than wanted: else several would have the same samples."""
    if length > wanted:
        yield (
            f"Windows have {replay_report.duration(length)} instead of "
            f"{replay_report.duration(wanted)}: the query of {aim.metric} covers so much"
        )
