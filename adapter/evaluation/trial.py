"""Trial requests: what the adapter would answer for a metric of objects that have series now.

For commands, which have no cluster: names of objects come from the labels of the series.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adapter.clients.prometheus import Prometheus
from rules import promql
from rules.kinds import GroupResource
from rules.query import aggregate, plan
from rules.query.aggregate import SamplesByObject
from rules.query.catalog import Entry, ExternalEntry, Source, Step
from rules.query.label_binding import LabelBinding
from rules.query.plan import StepQueries
from rules.selectors.selectors import Selector

_MAX_OBJECTS = 100
"""Objects of one trial; enough for a typical duration."""
_ANY = Selector(requirements=())


Clients = Mapping[str, Prometheus]
"""Client of the Prometheus that a rule names, by the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Result of one request."""

    metric: str
    resource: GroupResource | None
    """None for an external metric."""
    namespace: str
    """The namespace with the most series; empty if the request has none."""
    objects: int
    """Number of requested objects."""
    values: int
    """Number of objects with a value; for an external metric, number of values."""
    samples: int
    """Largest number of samples of one object."""
    seconds: float
    """Duration of all queries of the request."""


async def custom(
    clients: Clients, entry: Entry, *, clock: Callable[[], float] = time.perf_counter
) -> Trial | None:
    """Request a metric of up to 100 objects of one namespace; None if no series names an object.

    Raises BackendError if Prometheus refuses a query, and RulesError if one cannot be rendered.
    """
    source, binding = entry.sources[0], entry.sources[0].bindings[0]
    prometheus = clients[source.rule.config.source]
    namespace = ""
    if entry.namespaced:
        # Without a label for namespaces, every request fails, whatever its namespace.
        namespace = await _largest(prometheus, source, binding.namespace, binding) or "default"
    names = await _names(prometheus, source, binding, namespace)
    if not names:
        return None
    planned = plan.custom(entry, namespace=namespace, names=names, selector=_ANY)
    started = clock()
    samples = [
        await _samples(clients[step.rule.config.source], step, queries)
        for step, queries in zip(planned.steps, planned.queries(), strict=True)
    ]
    seconds = clock() - started
    values = aggregate.custom(planned, samples)
    found = [each for each in values.values() if each.samples]
    return Trial(
        metric=entry.metric,
        resource=entry.resource,
        namespace=namespace,
        objects=len(names),
        values=len(found),
        samples=max((each.samples for each in found), default=0),
        seconds=seconds,
    )


async def external(
    clients: Clients, entry: ExternalEntry, *, clock: Callable[[], float] = time.perf_counter
) -> Trial:
    """Request an external metric in the namespace with the most series. Raises as `custom`."""
    (binding,) = entry.source.bindings
    prometheus = clients[entry.source.rule.config.source]
    namespace = ""
    if entry.namespaced:
        # As for custom metrics: without a label for namespaces, every request fails.
        largest = await _largest(prometheus, entry.source, binding.namespace, binding)
        namespace = largest or "default"
    planned = plan.external(entry, namespace=namespace, selector=_ANY)
    started = clock()
    result = await prometheus.query(planned.promql())
    seconds = clock() - started
    scalar = result.kind == "scalar"
    return Trial(
        metric=entry.metric,
        resource=None,
        namespace=namespace,
        objects=0,
        values=len(aggregate.external(planned, result.samples, scalar=scalar)),
        samples=1,
        seconds=seconds,
    )


async def _samples(prometheus: Prometheus, step: Step, queries: StepQueries) -> SamplesByObject:
    values = (await prometheus.query(queries.values)).samples
    recent = (await prometheus.query(queries.recent)).samples if queries.recent else None
    return aggregate.by_object(step, values, recent=recent).get("", {})


async def _largest(
    prometheus: Prometheus, source: Source, label: str, binding: LabelBinding
) -> str:
    """Return the value of `label` that most series have; empty if none has it."""
    if not label:
        return ""
    series = _selector(source, (label, binding.resource))
    result = await prometheus.query(f"topk(1, count by ({promql.label(label)}) ({series}))")
    return result.samples[0].labels.get(label, "") if result.samples else ""


async def _names(
    prometheus: Prometheus, source: Source, binding: LabelBinding, namespace: str
) -> Sequence[str]:
    label = binding.resource
    more = [promql.matcher(binding.namespace, "=", namespace)] if binding.namespace else []
    series = _selector(source, (label,), more)
    result = await prometheus.query(f"group by ({promql.label(label)}) ({series})")
    return sorted(each.labels.get(label, "") for each in result.samples)[:_MAX_OBJECTS]


def _selector(source: Source, labels: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return the selector of the source's series that carry all `labels`."""
    matchers = [promql.matcher("__name__", "=", source.series), *more]
    matchers += [promql.matcher(label, "!=", "") for label in labels if label]
    return promql.with_matchers(source.rule.config.series_query, matchers)
