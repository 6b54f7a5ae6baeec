"""Queries of plans to one Prometheus: limited in number, and refused while it does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients.prometheus_result import QueryResult
from adapter.metrics.circuit_breaker import CircuitBreaker
from rules.query.aggregate import Sample

T = TypeVar("T")

_CONCURRENT = 16
"""Maximum number of queries at a time; Prometheus evaluates 20 by default, and queues the rest."""
_RESERVED = 4
"""Number of these that are only for merged evaluations, which answer most requests. Otherwise, slow
queries for single requests, for example with many metric selectors, would delay all requests."""

_MAX_ON_LOOP = 5_000
"""Maximum number of samples that are processed on the event loop, which takes up to 35 ms."""


class Client(Protocol):
    """What is needed of the client of Prometheus."""

    async def query(self, promql: str) -> QueryResult:
        """Evaluate an instant query. Raises BackendError subclasses."""
        ...


class Queries:
    """Sends queries to one Prometheus. A query has the timeout of the client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._slots_alone = asyncio.Semaphore(_CONCURRENT - _RESERVED)
        self._breaker = CircuitBreaker(
            "Prometheus", clock=lambda: asyncio.get_running_loop().time()
        )

    async def run(self, promql: str) -> QueryResult:
        """Evaluate a query for a single request. Raises BackendError subclasses."""
        async with self._slots_alone:
            return await self._run(promql)

    async def vectors(self, texts: Iterable[str], *, merged: bool) -> list[Sequence[Sample]]:
        """Evaluate several queries at the same time, each of which must return a vector.

        They are for a single request unless `merged`. Raises BackendError subclasses: Broken for a
        scalar, because that has no object.
        """
        results = await gather_or_cancel(map(self._run if merged else self.run, texts))
        for each in results:
            if each.kind != "vector":
                raise errors.Broken(
                    f"the query returns a {each.kind}; a rule needs an instant vector"
                )
        return [each.samples for each in results]

    async def _run(self, promql: str) -> QueryResult:
        async with self._slots:
            with self._breaker.request():
                return await self._client.query(promql)


async def off_loop_if_large(samples: int, process: Callable[[], T]) -> T:
    """Call `process`; in a thread if there are many samples, because 100 000 take up to 0.7 s."""
    if samples <= _MAX_ON_LOOP:
        return process()
    return await asyncio.to_thread(process)
