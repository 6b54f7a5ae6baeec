"""Looks at a live Prometheus for GPU exporters: what `rules.detect` judges.

Only names are asked for: of series, and of the labels that they carry. Whose pod a bare `pod` is
Prometheus itself tells, by comparing it with `up`, the one series that carries a target's own
labels and nothing else; no label's value ever leaves it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from adapter.background import gather_or_cancel
from adapter.clients.prometheus import Prometheus
from adapter.metrics.lister import Lister
from rules import promql
from rules.exporters import detect, generations

BEFORE = 2 * 3600.0
"""Seconds for which labels are remembered while no pod has a GPU: what is still in memory there."""

_SELECTOR = f"{{{promql.matcher('__name__', '=~', '|'.join(generations.SERIES))}}}"
_ANYTHING = '{__name__!=""}'
_OF_A_POD = promql.with_matchers(_SELECTOR, ('pod!=""',))
_TARGET = "on (job, instance, namespace, pod)"
_FOREIGN = f"({_OF_A_POD} unless {_TARGET} up)"
_OF_POD_TARGETS = 'on (job, instance) up{pod!=""}'
_FOREIGN_BEFORE = (
    f"last_over_time({_OF_A_POD}[{BEFORE:.0f}s]) unless {_TARGET} last_over_time(up[{BEFORE:.0f}s])"
)
# Grouped first: several pods of one GPU would become one series twice.
_NAMED_AFTER_EXPORTER = (
    "label_replace(group by (__name__, job, instance, {label}) ({selector}),"
    ' "pod", "$1", "{label}", "(.+)") and on (job, instance, pod) up'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The presets for a Prometheus, and why."""

    presets: tuple[str, ...]
    """In the order in which they are to be given; none if nothing fits."""
    findings: tuple[str, ...]
    """In words, for the log."""
    provisional: bool
    """Whether the choice may be another once a pod has a GPU: choose again then."""


async def choose(prometheus: Prometheus) -> Choice:
    """The presets to use where none are named. Raises BackendError subclasses."""
    report = detect.judge(await look(prometheus))
    return Choice(presets=report.presets, findings=report.sentences, provisional=report.provisional)


async def look(
    prometheus: Prometheus, *, clock: Callable[[], float] = time.time
) -> detect.Observations:
    """What there is now, by two or three dozen small questions. Raises BackendError subclasses."""
    lister = Lister(prometheus, max_age=BEFORE, clock=clock)
    targets, down = await gather_or_cancel(
        _count(prometheus, query) for query in ("count(up)", "count(up == 0)")
    )
    indexed = await lister.index(_SELECTOR, generations.LABELS)
    if not indexed.names:
        now = clock()
        anything = await prometheus.names(_ANYTHING, now - BEFORE, now)
        return detect.Observations(targets=targets, down=down, anything=bool(anything))
    present = frozenset[str]().union(*indexed.names.values())
    labels = [label for label in generations.LABELS if label in present]
    hosts = [label for label in ("Hostname", "hostname") if label in present]
    live, honored, direct, foreign_before = await gather_or_cancel(
        _names(prometheus, query)
        for query in (
            f"({_SELECTOR})",
            f"{_FOREIGN} and {_OF_POD_TARGETS}",
            f"{_FOREIGN} unless {_OF_POD_TARGETS}",
            _FOREIGN_BEFORE,
        )
    )
    carriers = await gather_or_cancel(
        lister.live(_SELECTOR, (promql.matcher(label, "!=", ""),)) for label in labels
    )
    named_after_exporter = await gather_or_cancel(
        _names(prometheus, _NAMED_AFTER_EXPORTER.format(label=label, selector=_SELECTOR))
        for label in hosts
    )
    return detect.Observations(
        names={
            name: frozenset(
                label for label, names in zip(labels, carriers, strict=True) if name in names
            )
            for name in live
        },
        before={name: carried & present for name, carried in indexed.names.items()},
        honored=honored,
        direct=direct,
        foreign_before=foreign_before,
        named_after_exporter=frozenset[str]().union(*named_after_exporter),
        targets=targets,
        down=down,
        anything=True,
    )


async def _names(prometheus: Prometheus, vector: str) -> frozenset[str]:
    """The names of the series that `vector` gives."""
    result = await prometheus.query(f"group by (__name__) ({vector})")
    return frozenset(sample.labels.get("__name__", "") for sample in result.samples)


async def _count(prometheus: Prometheus, query: str) -> int:
    result = await prometheus.query(query)
    return int(result.samples[0].value) if result.samples else 0
