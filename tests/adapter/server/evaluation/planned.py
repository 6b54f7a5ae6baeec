"""Entries and plans of one rule, for the tests of evaluations."""

from __future__ import annotations

import functools

from rules import kinds, ruleset
from rules.kinds import PODS, GroupResource
from rules.query import catalog, label_binding, plan
from rules.query.catalog import Listing, Series
from rules.query.plan import Plan
from rules.selectors import selectors

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
    compiled = ruleset.load([("rules.yaml", text)])
    listing = Listing(
        series=(Series(name=series, labels=frozenset({"namespace", "node", *labels})),),
        live={(series, PODS): tuple(label_binding.Choice(labels, ("namespace",)))},
    )
    entry = catalog.build(compiled, {0: listing}, kinds.Kinds.builtin()).entry(resource, series)
    assert entry
    return entry


USED = entry_of()


def pods(
    *names: str, namespace: str = "a", selector: str = "", entry: catalog.Entry = USED
) -> Plan:
    """Return the plan of a request for pods."""
    return plan.custom(entry, namespace=namespace, names=names, selector=selectors.parse(selector))
