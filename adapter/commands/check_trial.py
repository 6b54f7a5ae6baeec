"""`check --prometheus-url`: requests for a metric of objects that have series now.

A command has no cluster, so the names of objects come from the labels of the series. The rest is
the way of the API: plan, evaluate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.evaluation.evaluation import Evaluation
from rules import promql
from rules.document.sources import DEFAULT
from rules.query import plan
from rules.query.catalog import Entry, ExternalEntry, Source
from rules.query.label_binding import LabelBinding
from rules.selectors.selectors import Selector

_MAX_OBJECTS = 100
"""Objects of one trial; enough for a typical duration."""
_ANY = Selector(requirements=())

Clients = Mapping[str, Prometheus]
"""Client of the Prometheus that a rule names, by the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Result of one request."""

    namespace: str
    """The namespace with the most series; empty if the request has none."""
    objects: int = 0
    """Number of requested objects."""
    values: int
    """Number of objects with a value; for an external metric, number of values."""
    samples: int = 1
    """Largest number of samples of one object."""
    seconds: float
    """Duration of all queries of the request."""


async def request(clients: Clients, entry: Entry | ExternalEntry) -> Trial | None:
    """Request a metric in the namespace with the most series, of up to 100 of its objects.

    Return None if no series names an object. Raises BackendError if Prometheus refuses a query, and
    RulesError if one cannot be rendered.
    """
    evaluation = Evaluation(
        clients[DEFAULT],
        metrics=telemetry.EvaluationMetrics(CollectorRegistry()),
        sources=clients,
        freshness=0.0,
        allow_partial=True,
    )
    source = entry.sources[0] if isinstance(entry, Entry) else entry.source
    prometheus, binding = clients[source.rule.config.source], source.bindings[0]
    namespace = ""
    if entry.namespaced:
        # Without a label for namespaces, every request fails, whatever its namespace.
        namespace = await _largest(prometheus, source, binding) or "default"
    if isinstance(entry, ExternalEntry):
        query = plan.external(entry, namespace=namespace, selector=_ANY)
        started = time.perf_counter()
        rows = (await evaluation.rows(query)).values
        seconds = time.perf_counter() - started
        return Trial(namespace=namespace, values=len(rows), seconds=seconds)
    names = await _names(prometheus, source, binding, namespace)
    if not names:
        return None
    planned = plan.custom(entry, namespace=namespace, names=names, selector=_ANY)
    started = time.perf_counter()
    values = (await evaluation.values(planned, serve_partial=True)).values
    seconds = time.perf_counter() - started
    samples = [each.samples for each in values.values() if each.samples]
    return Trial(
        namespace=namespace,
        objects=len(names),
        values=len(samples),
        samples=max(samples, default=0),
        seconds=seconds,
    )


async def _largest(prometheus: Prometheus, source: Source, binding: LabelBinding) -> str:
    """Return the namespace that most series have; empty if none has one."""
    label = binding.namespace
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
