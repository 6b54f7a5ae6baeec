"""Queries of plans, limited in number.

Each Prometheus has limits of its own, so that one that is slow does not delay the others. The
queries of teams are limited by their client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients.limits import FairSlots
from adapter.clients.prometheus_result import QueryResult, Reduce
from rules.ruleset import Team

T = TypeVar("T")

_CONCURRENT = 16
"""Maximum number of queries at a time; Prometheus evaluates 20 by default, and queues the rest."""
_RESERVED = 4
"""Number of these that are only for merged evaluations, which answer most requests. Otherwise, slow
queries for single requests, for example with many metric selectors, would delay all requests. The
namespaces of single requests get the other slots in turns."""

_MAX_ON_LOOP = 5_000
"""Maximum number of samples that are processed on the event loop, which takes up to 35 ms."""


class QueryClient(Protocol):
    """What is needed of the client of Prometheus."""

    async def query(self, promql: str, reduce: Reduce | None = None) -> QueryResult:
        """Evaluate an instant query. Raises BackendError subclasses.

        `reduce` is called with samples as they arrive; the result has none then.
        """

    def for_team(self, team: Team | None) -> QueryClient:
        """Return the client for the rules of a team: this one without a team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Generic[T]):
    """Result of one or several queries. The time in which they wait for a slot does not count."""

    result: T
    began: float
    """Loop time at which the first query was sent."""
    at: float
    """Unix seconds of the same."""
    took: float
    """Duration of the longest query in seconds."""


class Queries:
    """Sends queries to one Prometheus. A query has the timeout of the client.

    Without `limited`, any number at a time. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        client: QueryClient,
        *,
        limited: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self._clock = clock
        self._limited = limited
        self._slots = asyncio.Semaphore(_CONCURRENT)
        alone = _CONCURRENT - _RESERVED
        self._slots_alone = FairSlots(own=alone, total=alone)

    async def run(
        self,
        promql: str,
        reduce: Reduce | None = None,
        *,
        merged: bool = False,
        namespace: str = "",
    ) -> Timed[QueryResult]:
        """Evaluate a query; it is for a single request in `namespace` unless `merged`.

        Raises BackendError.
        """
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            if self._limited:
                if not merged:
                    await stack.enter_async_context(self._slots_alone.slot(namespace))
                await stack.enter_async_context(self._slots)
            began, at = loop.time(), self._clock()
            result = await self.client.query(promql, reduce)
            began, at = began + result.waited, at + result.waited
            return Timed(result=result, began=began, at=at, took=loop.time() - began)


class QueriesBySource:
    """Sends queries to the client of a rule's source. `clock` returns Unix seconds."""

    def __init__(
        self, clients: Mapping[str, QueryClient], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._by_source = {
            source: Queries(client, clock=clock) for source, client in clients.items()
        }

    def of(self, source: str, team: Team | None = None) -> Queries:
        """Return the queries to one Prometheus, for the rules of a team if there is one."""
        queries = self._by_source[source]
        if team is None:
            return queries
        return Queries(queries.client.for_team(team), limited=False, clock=self._clock)

    async def vectors(
        self,
        queries: Sequence[tuple[Queries, str, Reduce | None]],
        *,
        merged: bool,
        namespace: str = "",
    ) -> Timed[list[QueryResult]]:
        """Evaluate queries at the same time; each must return a vector.

        Each comes with the function that receives its samples; `merged` and `namespace` are as for
        `Queries.run`. Raises BackendError subclasses: Broken for a scalar, because that has no
        object.
        """
        answers = await gather_or_cancel(
            those.run(text, reduce, merged=merged, namespace=namespace)
            for those, text, reduce in queries
        )
        for each in answers:
            if each.result.kind != "vector":
                raise errors.Broken(
                    f"the query returns a {each.result.kind}; a rule needs an instant vector"
                )
        first = min(answers, key=lambda each: each.began)
        return Timed(
            result=[each.result for each in answers],
            began=first.began,
            at=first.at,
            took=max(each.took for each in answers),
        )


async def off_loop_if_large(samples: int, process: Callable[[], T]) -> T:
    """Call `process`; in a thread if there are many samples, because 100 000 take up to 0.7 s."""
    if samples <= _MAX_ON_LOOP:
        return process()
    return await asyncio.to_thread(process)
