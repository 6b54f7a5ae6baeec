"""`check --prometheus-url`: requests for a metric of objects that have series now.

A command has no cluster, so the names of objects come from the labels of the series. The rest are
the steps of the API.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.api.groups.group import Backend
from adapter.clients.prometheus import Prometheus
from adapter.commands import local_backend
from rules import promql
from rules.query.catalog import Entry, ExternalEntry, Source
from rules.query.label_binding import LabelBinding

_MAX_OBJECTS = 100
"""Objects of one trial; enough for a typical duration."""

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


async def request(clients: Clients, entry: Entry | ExternalEntry, backend: Backend) -> Trial | None:
    """Request a metric in the namespace with the most series, of up to 100 of its objects.

    Return None if no series names an object. Raises BackendError if the objects cannot be queried,
    RulesError if that query cannot be rendered, and ApiError if the request fails.
    """
    source = entry.sources[0] if isinstance(entry, Entry) else entry.source
    prometheus, binding = clients[source.rule.config.source], source.bindings[0]
    namespace, names, resource = "", tuple[str, ...](), None
    if entry.namespaced:
        # Without a label for namespaces, every request fails, whatever its namespace.
        namespace = await _largest(prometheus, source, binding) or "default"
    if isinstance(entry, Entry):
        resource = entry.resource
        names = await _names(prometheus, source, binding, namespace)
        if not names:
            return None
    started = time.perf_counter()
    steps = await local_backend.evaluate(
        backend,
        entry.metric,
        resource,
        # The path of an external metric needs a namespace.
        namespace=namespace if resource else namespace or "default",
        names=names,
    )
    seconds = time.perf_counter() - started
    values = steps.found.values
    if resource is None:
        return Trial(namespace=namespace, values=len(values), seconds=seconds)
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
) -> tuple[str, ...]:
    label = binding.resource
    more = [promql.matcher(binding.namespace, "=", namespace)] if binding.namespace else []
    series = _selector(source, (label,), more)
    result = await prometheus.query(f"group by ({promql.label(label)}) ({series})")
    return tuple(sorted(each.labels.get(label, "") for each in result.samples)[:_MAX_OBJECTS])


def _selector(source: Source, labels: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return the selector of the source's series that carry all `labels`."""
    matchers = [promql.matcher("__name__", "=", source.series), *more]
    matchers += [promql.matcher(label, "!=", "") for label in labels if label]
    return promql.with_matchers(source.rule.config.series_query, matchers)
