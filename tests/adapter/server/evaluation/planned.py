"""Entries and plans of one rule, for the tests of evaluations."""

from __future__ import annotations

import functools

from rules.kinds import PODS, GroupResource
from rules.query import catalog, label_binding, plan
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
