"""What fakes of the client of Prometheus do with the samples of a result."""

from __future__ import annotations

from dataclasses import replace

from adapter.clients.prometheus_result import QueryResult, Reduce


def delivered(result: QueryResult, reduce: Reduce | None) -> QueryResult:
    """Pass the samples to `reduce`, if there is one, as the real client does."""
    if reduce is None:
        return result
    reduce(result.samples)
    return replace(result, samples=())
