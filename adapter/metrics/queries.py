"""Queries of plans to one Prometheus: limited in number, and refused while it does not respond."""

from __future__ import annotations

import asyncio
from typing import Protocol

from adapter.clients.prometheus_result import QueryResult
from adapter.metrics.circuit_breaker import CircuitBreaker

_CONCURRENT = 16
"""Maximum number of queries at a time; Prometheus evaluates 20 by default, and queues the rest."""


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
        self._breaker = CircuitBreaker(
            "Prometheus", clock=lambda: asyncio.get_running_loop().time()
        )

    async def run(self, promql: str) -> QueryResult:
        """Evaluate a query. Raises BackendError subclasses."""
        async with self._slots:
            with self._breaker.request():
                return await self._client.query(promql)
