"""What the past of an HPA says of its targets and its bounds. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rules.findings import Finding, warning
from rules.hpa import replay
from rules.hpa.autoscaler import DOWNSCALE_WINDOW, Autoscaler, MetricSpec
from rules.hpa.replay import Sync

_STEP, _SCALE_UPS = 1.25, 5
"""Factor by which a scale-up adds pods, and number of them, from which on one can tell whether a
metric falls."""


def findings(
    hpa: Autoscaler, history: Sequence[Sync], *, startup: float, step: float, totals: Sequence[bool]
) -> Iterator[Finding]:
    """Yield what is wrong with the settings, by the readings of the HPA's metrics.

    `startup`, `step` and `totals` are as in `replay.simulate`.
    """
    for index, (metric, total) in enumerate(zip(hpa.metrics, totals, strict=True)):
        yield from _of_target(metric, index, history)
        if not total:
            yield from _of_sharing(metric, index, history, startup)
    if hpa.minimum > 1 and hpa.maximum <= replay.MAX_REPLICAS:
        yield from _of_minimum(hpa, history, startup, step, totals)


def _of_target(metric: MetricSpec, index: int, history: Sequence[Sync]) -> Iterator[Finding]:
    """Yield a target that the past never reached, or never fell to."""
    values = [
        1000 * replay.comparable(metric, value, each.present)
        for each in history
        if (value := each.readings[index].value) is not None
    ]
    if not values:
        return
    name, given = metric.name, metric.readable(metric.value)
    if max(values) < metric.value:
        yield warning(
            name,
            f"its target {given} was never reached: {metric.readable(round(max(values)))} was the "
            "highest value",
            cure="Lower the target; until then, this metric adds no pods",
        )
    if min(values) > metric.value:
        yield warning(
            name,
            f"its target {given} is below the value without load: "
            f"{metric.readable(round(min(values)))} was the lowest value",
            cure="Raise the target; until then, this metric removes no pods",
        )


def _of_sharing(
    metric: MetricSpec, index: int, history: Sequence[Sync], startup: float
) -> Iterator[Finding]:
    """Yield a metric that does not fall when pods are added."""
    fell = number = 0
    for position, (before, after) in enumerate(itertools.pairwise(history)):
        if not before.replicas or (after.replicas or 0) < _STEP * before.replicas:
            continue
        rest = itertools.islice(history, position + 1, None)
        later = next((each for each in rest if each.time >= after.time + startup), after)
        old, new = (each.readings[index].value for each in (before, later))
        if later.replicas == after.replicas and old is not None and new is not None:
            number += 1
            fell += new < old
    if number >= _SCALE_UPS and 2 * fell < number:
        yield warning(
            metric.name,
            f"after {number - fell} of {number} scale-ups it had not fallen once the new pods had "
            "started",
            cure="Choose a metric of which new pods take a part, such as requests_active_current",
        )


def _of_minimum(
    hpa: Autoscaler, history: Sequence[Sync], startup: float, step: float, totals: Sequence[bool]
) -> Iterator[Finding]:
    """Yield a minimum that the metrics never needed."""
    free = replay.variant(hpa, minimum=1)
    needed = replay.simulate("", free, history, startup=startup, step=step, totals=totals).replicas
    # The first replicas are those that there were.
    most = max(needed[round(2 * DOWNSCALE_WINDOW / step) :], default=hpa.minimum)
    if most < hpa.minimum:
        yield warning(
            "minReplicas",
            f"{hpa.minimum} replicas were never needed: the metrics need at most {most}",
            cure=f"Lower minReplicas to {most}, unless the others are there for failures",
        )
