"""Counter and histogram of plain numbers, for what is counted with each request.

What is counted, and its names, are in `telemetry`.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5, 10, 15, 30, 60)


class Counts(Collector):
    """Counter of plain numbers: one of prometheus_client takes a lock, which each request would.

    An `UnknownMetricFamily` has a name that does not end in `_total`. `values` of the only label
    are shown from the beginning.
    """

    def __init__(
        self,
        family: type[CounterMetricFamily | UnknownMetricFamily],
        name: str,
        help_: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        values: Iterable[str] = (),
    ) -> None:
        self._new = functools.partial(family, name, help_, labels=labels)
        self._counts: dict[tuple[str, ...], int] = {(each,): 0 for each in values}
        registry.register(self)

    def inc(self, *labels: str) -> None:
        """Count one more."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = self._new()
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Durations(Collector):
    """Histogram of seconds in `_BUCKETS`, of plain numbers as `Counts`."""

    def __init__(
        self, name: str, help_: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._new = functools.partial(HistogramMetricFamily, name, help_, labels=labels)
        self._counts: dict[tuple[str, ...], list[float]] = {}
        """Of each bucket, and the sum of the seconds."""
        registry.register(self)

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        """Count one more, which took `seconds`."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(_BUCKETS) + 1) + [0.0]
        counts[bisect.bisect_left(_BUCKETS, seconds)] += 1
        counts[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = self._new()
        bounds = (*map(str, map(float, _BUCKETS)), "+Inf")
        for labels, (*counts, total) in self._counts.items():
            buckets = list(zip(bounds, itertools.accumulate(counts), strict=True))
            family.add_metric(labels, buckets, total)
        yield family
