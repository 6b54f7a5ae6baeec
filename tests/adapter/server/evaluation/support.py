"""Entries and plans of one rule, and clients of Prometheus, for the tests of evaluations."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult, Reduce
from rules.kinds import PODS, GroupResource
from rules.query import catalog, label_binding, plan
from rules.query.aggregate import Sample
from rules.query.plan import Plan
from rules.selectors import selectors
from tests import world

SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


@functools.cache
def entry_of(
    series: str = "used",
    query: str = SUM,
    more: str = "",
    resource: GroupResource = PODS,
    labels: tuple[str, ...] = ("pod",),
) -> catalog.Entry:
    """Return the entry of `series`, whose live series carry `labels`, the first first."""
    text = f"""
rules:
- seriesQuery: '{series}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, node: {{resource: node}},
    exported_pod: {{resource: pod}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{query}'
  {more}
"""
    live = {(series, PODS): tuple(label_binding.Choice(labels, ("namespace",)))}
    listing = world.listing(f"{series} namespace node {' '.join(labels)}", live=live)
    entry = world.generation(text, listing).catalog.entry(resource, series)
    assert entry
    return entry


USED = entry_of()


def pods(
    *names: str, namespace: str = "a", selector: str = "", entry: catalog.Entry = USED
) -> Plan:
    """Return the plan of a request for pods."""
    return plan.custom(entry, namespace=namespace, names=names, selector=selectors.parse(selector))


def vector(samples: Iterable[Sample], reduce: Reduce | None, **more) -> QueryResult:
    """Return the result of a query; `reduce` gets the samples, as from the real client."""
    found = tuple(samples)
    if reduce is not None:
        reduce(found)
        found = ()
    return QueryResult(kind="vector", samples=found, **more)


class Counting:
    """Client that records the queries; `gate` holds them back, and `failure` replaces results."""

    def __init__(self, client: Prometheus) -> None:
        self.client = client
        self.queries: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Callable[[str], errors.BackendError | None] = lambda _: None

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        self.queries.append(promql)
        await self.gate.wait()
        if (failure := self.failure(promql)) is not None:
            raise failure
        return await self.client.query(promql, reduce)
