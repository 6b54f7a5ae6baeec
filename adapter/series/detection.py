"""Detection of GPU exporters and model servers in a live Prometheus.

`rules.exporters.detect` draws conclusions. Queries return only names of series and labels, never
label values. Whether a `pod` is the target's own is decided in PromQL, by a comparison with `up`,
which has only target labels.
"""

from __future__ import annotations

import time

from adapter.background import gather_or_cancel
from adapter.clients.prometheus import Prometheus
from adapter.series.lister import Lister
from rules import promql
from rules.exporters import detect, generations

_LOOKBACK = 2 * 3600.0
"""Seconds. Prometheus still has them in memory, and GPUs that are idle now may have had a pod."""

_SELECTOR = f"{{{promql.matcher('__name__', '=~', '|'.join(generations.SERIES))}}}"
_ANY_SERIES = '{__name__!=""}'
_WITH_POD = promql.with_matchers(_SELECTOR, ('pod!=""',))
_SAME_TARGET = "on (job, instance, namespace, pod)"
_FOREIGN = f"({_WITH_POD} unless {_SAME_TARGET} up)"
"""Series whose `pod` is not that of their target."""
_TARGETS_WITH_POD = 'on (job, instance) up{pod!=""}'
_RECENTLY_FOREIGN = (
    f"last_over_time({_WITH_POD}[{_LOOKBACK:.0f}s])"
    f" unless {_SAME_TARGET} last_over_time(up[{_LOOKBACK:.0f}s])"
)
# Grouped first: with several pods on one GPU, label_replace would yield duplicate series.
_HOSTNAME_IS_POD = (
    "label_replace(group by (__name__, job, instance, {label}) ({selector}),"
    ' "pod", "$1", "{label}", "(.+)") and on (job, instance, pod) up'
)


async def report(prometheus: Prometheus) -> detect.Report:
    """Query Prometheus; return the exporters and the presets that fit. Raises BackendError."""
    return detect.analyze(await _observe(prometheus))


async def _observe(prometheus: Prometheus) -> detect.Observations:
    """Query the present series and labels, in a dozen cheap queries."""
    lister = Lister(prometheus, max_age=_LOOKBACK)
    targets, down = await gather_or_cancel(
        _count(prometheus, query) for query in ("count(up)", "count(up == 0)")
    )
    indexed = await lister.index(_SELECTOR, generations.LABELS)
    if not indexed.names:
        now = time.time()
        names = await prometheus.names(_ANY_SERIES, now - _LOOKBACK, now)
        return detect.Observations(targets=targets, down=down, anything=bool(names.content))
    present = frozenset[str]().union(*indexed.names.values())
    labels = [label for label in generations.LABELS if label in present]
    hostnames = [label for label in ("Hostname", "hostname") if label in present]
    names_in = await lister.names_in(
        [
            _SELECTOR,
            f"{_FOREIGN} and {_TARGETS_WITH_POD}",
            f"{_FOREIGN} unless {_TARGETS_WITH_POD}",
            _RECENTLY_FOREIGN,
            *(_HOSTNAME_IS_POD.format(label=label, selector=_SELECTOR) for label in hostnames),
        ]
    )
    live, honored, direct, recently_foreign, *hostname_is_pod = names_in.content
    carriers = await lister.live(
        _SELECTOR, [(promql.matcher(label, "!=", ""),) for label in labels]
    )
    return detect.Observations(
        live={
            name: frozenset(
                label
                for label, names in zip(labels, carriers.content, strict=True)
                if name in names
            )
            for name in live
        },
        indexed=indexed.names,
        honored=honored,
        direct=direct,
        recently_foreign=recently_foreign,
        hostname_is_pod=frozenset[str]().union(*hostname_is_pod),
        targets=targets,
        down=down,
        anything=True,
    )


async def _count(prometheus: Prometheus, query: str) -> int:
    result = await prometheus.query(query)
    return int(result.samples[0].value) if result.samples else 0
