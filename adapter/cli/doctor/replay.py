"""`replay hpa`: reads the past of an autoscaler, and replays it with other settings."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.cli.doctor import history
from adapter.cli.doctor.client import ApiClient
from adapter.cli.doctor.history import Past, Progress
from adapter.clients.prometheus import Prometheus
from rules import quantity
from rules.document.ahead import Ahead
from rules.document.sources import DEFAULT, EMBEDDED, FILLING
from rules.errors import QuantityError, UnreadableError
from rules.hpa import reading, replay, replay_ahead, replay_report
from rules.hpa.autoscaler import SYNC, Autoscaler, MetricSpec
from rules.hpa.replay_ahead import Week
from rules.hpa.replay_report import Replay
from rules.query.ahead import Forecast
from rules.quoting import counted

MAX_TARGETS = 8
WEEK = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What to replay; None and empty mean as the HPA has it."""

    since: float = WEEK
    """Seconds."""
    targets: tuple[str, ...] = ()
    """Each makes one variant."""
    metric: str = ""
    """The metric that the targets are for, if the HPA has several."""
    behavior: Mapping[str, Any] | None = None
    minimum: int | None = None
    maximum: int | None = None
    startup: float | None = None
    """Seconds until a new pod has a value."""
    ahead: Ahead | None = None
    """A forecast, which makes one variant."""
    step: float = SYNC


async def run(
    client: ApiClient,
    prometheus: Prometheus,
    namespace: str,
    name: str,
    wanted: ReplayOptions,
    progress: Progress = lambda _: None,
) -> Replay:
    """Replay the past of an HPA. Raises UnreadableError with the cause and what to do."""
    _check_targets(wanted.targets)
    hpa = await client.run(reading.hpa(namespace, name))
    variants = [("present settings", hpa), *_variants(hpa, wanted)]
    past = await history.read(
        client,
        prometheus,
        hpa,
        now=time.time(),
        since=wanted.since,
        step=wanted.step,
        progress=progress,
    )
    # In a thread, because a week of one variant takes seconds.
    return await asyncio.to_thread(_replay, past, variants, wanted)


def _check_targets(targets: Sequence[str]) -> None:
    """Raise UnreadableError with 400 if a target is not a number above 0, or if there are many."""
    if len(targets) > MAX_TARGETS:
        raise UnreadableError(f"more than {MAX_TARGETS} targets; give fewer", status=400)
    for text in targets:
        try:
            above = quantity.milli_value(text) > 0
        except QuantityError as error:
            raise UnreadableError(f"target: {error}", status=400) from error
        if not above:
            raise UnreadableError(f"the target {text} is not above 0", status=400)


def _variants(hpa: Autoscaler, wanted: ReplayOptions) -> Iterator[tuple[str, Autoscaler]]:
    """Yield title and settings of the other variants. Raises UnreadableError."""
    vary = functools.partial(
        replay.variant,
        hpa,
        behavior=wanted.behavior,
        minimum=wanted.minimum,
        maximum=wanted.maximum,
    )
    words = [
        *(["other behavior"] if wanted.behavior is not None else []),
        *([f"min {wanted.minimum}"] if wanted.minimum is not None else []),
        *([f"max {wanted.maximum}"] if wanted.maximum is not None else []),
    ]
    if not wanted.targets:
        if words:
            yield ", ".join(words), vary()
        return
    index = _metric(hpa, wanted.metric)
    for text in wanted.targets:
        utilization = hpa.metrics[index].target == "Utilization"
        value = int(text) if utilization and text.isdecimal() else quantity.milli_value(text)
        yield ", ".join([f"target {text}", *words]), vary(target=(index, value))


def _metric(hpa: Autoscaler, name: str) -> int:
    """Return the position of the metric that targets are for. Raises UnreadableError."""
    found = [i for i, each in enumerate(hpa.metrics) if name in {"", each.name}]
    if len(found) != 1:
        names = ", ".join(each.name for each in hpa.metrics)
        raise UnreadableError(f"give one of the metrics {names} as --metric")
    return found[0]


def _replay(
    past: Past, variants: Sequence[tuple[str, Autoscaler]], wanted: ReplayOptions
) -> Replay:
    starting, note = startup(past, wanted.startup)
    simulate = functools.partial(
        replay.simulate,
        history=past.history,
        startup=starting,
        step=wanted.step,
        totals=past.totals,
    )
    results = [simulate(title, hpa) for title, hpa in variants]
    weeks: tuple[Week, ...] = ()
    more: tuple[str, ...] = ()
    if wanted.ahead is not None:
        horizon = wanted.ahead.horizon or starting
        factors, made = replay_ahead.forecasts(
            past.hpa,
            past.history,
            season=wanted.ahead.season,
            horizon=horizon,
            totals=past.totals,
        )
        results.append(simulate("ahead", past.hpa, factors=factors))
        weeks = tuple(replay_ahead.weeks(past.history, wanted.step, made, results[0], results[-1]))
        more = (_ahead_note(wanted.ahead.season, horizon, made),)
    was = replay.recorded(past.hpa, past.history, step=wanted.step, totals=past.totals)
    decided = list(replay.decisions(past.hpa, past.history))
    return Replay(
        hpa=past.hpa,
        history=past.history,
        step=wanted.step,
        results=(was, *results),
        decided=tuple(decided),
        fit=replay.fit(decided, past.history),
        weeks=weeks,
        notes=(*notes(past, range(len(past.metrics)), note, was.saturated), *more),
    )


def _ahead_note(season: float, horizon: float, made: Sequence[Forecast]) -> str:
    """Return what the row `ahead` is."""
    return (
        f"Row `ahead`: the present settings, with a forecast for {horizon:g} s later, from the "
        f"load of {replay_report.duration(season)} before. At the end, {made[-1].sentence}"
    )


def startup(past: Past, given: float | None) -> tuple[float, str]:
    """Return the seconds until a new pod has a value, and where they are from."""
    if given is not None:
        return given, f"{given:g} s, as given"
    for index, metric in enumerate(past.hpa.metrics):
        if metric.type == "Pods" and past.replicas_known:
            measured = replay.startup(past.history, index)
            if measured:
                seconds, count = measured
                return seconds, f"{seconds:g} s, the median of {counted(count, 'scale-up')}"
    assumed = f"{replay.STARTUP:g} s, an assumption that --startup replaces"
    return replay.STARTUP, assumed


def _model(metric: MetricSpec, *, total: bool) -> str:
    """Return how a metric follows other replicas than those of the past."""
    if total:
        return f"{metric.name} is the load, which was what it was, whatever the replicas"
    if metric.type == "Pods":
        return (
            f"{metric.name} of all pods together was what it was, and each started pod gets an "
            "equal part of it, however many there are"
        )
    return f"{metric.name} times replicas was what it was, and is divided by the started pods"


def notes(past: Past, positions: Sequence[int], startup: str, saturated: float) -> Iterator[str]:
    """Yield where the past is from, the model, and what is not known.

    `positions` are those of the metrics that decide. `startup` says when a new pod has a value, and
    `saturated` for how many seconds the pods were.
    """
    names = ", ".join(past.metrics[each].name for each in positions)
    of = (
        "the replicas are those that kube-state-metrics recorded"
        if past.replicas_known
        else "the replicas are the pods that existed, because Prometheus has no series of "
        "kube-state-metrics"
    )
    values = (
        f"the values of {names}, by the present rules, from Prometheus ({past.queries} range "
        "queries), and what the controller decides from them; "
    )
    yield f"Facts: {values if names else ''}{of}; {past.pods}"
    for source in past.sources:
        if source in {EMBEDDED, FILLING}:
            yield (
                "Rules read the Prometheus in the adapter's pod, which keeps 30 minutes: "
                "--prometheus-url must have the same series for longer"
            )
        elif source != DEFAULT:
            yield f"A rule queries the source {source}: --prometheus-url must be this Prometheus"
    if past.partial:
        yield f"Responses of Prometheus were partial, so values may lack samples: {past.partial}"
    if past.late:
        yield (
            "The history begins later than requested: before, Prometheus has no values, because of "
            "its retention, or because the series had another name or other labels"
        )
    models = (_model(past.metrics[each], total=past.totals[each]) for each in positions)
    if names:
        yield (
            f"Model, in the time of the column `model`, while the replicas differ from those: "
            f"{'; '.join(dict.fromkeys(models))}"
        )
    yield f"A new pod has a value after {startup}"
    if saturated:
        yield (
            f"For {replay_report.duration(saturated)} the pods were saturated: the load was then "
            "at least what is counted, so more replicas may have been needed than shown"
        )
