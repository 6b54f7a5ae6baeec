"""Evaluation of plans: queries Prometheus and aggregates the samples into values.

Identical queries in flight are sent once. Plans are built in `rules.query`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cache import LRUCache, SingleFlight
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult
from rules.query import aggregate
from rules.query.aggregate import ExternalValue, Sample, Value
from rules.query.plan import ExternalPlan, Plan

_MAX_LAST_VALUES = 100_000
"""Maximum number of objects whose last value is kept, for `onMissing: {lastKnown: …}`."""
_MAX_PRESENT = 100_000
"""Maximum number of objects that are known to have had a value, for plans of several steps."""

_MAX_ON_LOOP = 5_000
"""Maximum number of samples that are aggregated on the event loop, which takes 35 ms."""

_Key = tuple[str, ...]
T = TypeVar("T")


class Evaluation:
    """Evaluates plans on one Prometheus.

    Deadlines are times of the running event loop; `clock` returns Unix seconds. Methods raise
    BackendError subclasses.
    """

    def __init__(self, prometheus: Prometheus, *, clock: Callable[[], float] = time.time) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._in_flight: SingleFlight[str, QueryResult] = SingleFlight()
        self._last_values: LRUCache[_Key, Value] = LRUCache(_MAX_LAST_VALUES)
        self._present: LRUCache[_Key, bool] = LRUCache(_MAX_PRESENT)

    async def values(self, plan: Plan, *, deadline: float | None = None) -> Mapping[str, Value]:
        """Return the value of each object that has one, in the order of `plan.names`.

        Raises AmbiguousSampleError if the rule forbids several samples of one object.
        """
        values, now = await self._evaluate(plan, deadline)
        if len(plan.steps) > 1:
            if any(
                self._present.get((*_key(plan), name)) for name in plan.names if name not in values
            ):
                # The steps are evaluated at slightly different times, so an object that moves from
                # one exporter's series to another's may have no sample in any of them.
                values, now = await self._evaluate(plan, deadline)
            for name in plan.names:
                if name in values:
                    self._present.set((*_key(plan), name), True)
                else:
                    self._present.discard((*_key(plan), name))
        max_ages = (step.rule.config.on_missing.last_known for step in plan.steps)
        max_age = next((age for age in max_ages if age is not None), None)
        return values if max_age is None else self._with_last_values(plan, values, now - max_age)

    async def rows(
        self, plan: ExternalPlan, *, deadline: float | None = None
    ) -> tuple[ExternalValue, ...]:
        """Return the values of an external metric, one per sample.

        Raises NotInstantError if the query returns neither a vector nor a scalar.
        """
        result = await self.query(plan.step.promql, deadline=deadline)
        if result.kind not in {"vector", "scalar"}:
            raise errors.NotInstantError(
                f"the query returns a {result.kind}; "
                "an external rule needs an instant vector or a scalar"
            )
        scalar = result.kind == "scalar"
        return await _off_loop_if_large(
            len(result.samples), lambda: aggregate.external(plan, result.samples, scalar=scalar)
        )

    async def query(self, promql: str, *, deadline: float | None = None) -> QueryResult:
        """Evaluate one query, together with all concurrent callers of the same query."""
        while True:
            joined = promql in self._in_flight
            try:
                # Prometheus enforces the deadline of the caller that sent the query.
                async with asyncio.timeout_at(deadline if joined else None):
                    return await self._in_flight.run(
                        promql, lambda: self._prometheus.query(promql, deadline=deadline)
                    )
            except TimeoutError as error:
                raise errors.TimedOut(
                    f"deadline exceeded by a query in flight: {promql}"
                ) from error
            except errors.TimedOut:
                # The deadline of the caller that sent the query; this one may have time left.
                if not joined:
                    raise

    async def _evaluate(self, plan: Plan, deadline: float | None) -> tuple[dict[str, Value], float]:
        """Return the values and the Unix time of the evaluation."""
        results = await gather_or_cancel(
            self.query(step.promql, deadline=deadline) for step in plan.steps
        )
        now = self._clock()
        vectors = [_vector(each) for each in results]
        values = await _off_loop_if_large(
            sum(map(len, vectors)), lambda: aggregate.custom(plan, vectors, now=now)
        )
        return values, now

    def _with_last_values(
        self, plan: Plan, values: Mapping[str, Value], oldest: float
    ) -> dict[str, Value]:
        """Add the last values, not older than `oldest`, of names without a value."""
        complete: dict[str, Value] = {}
        for name in plan.names:
            key = (*_key(plan), name)
            if name in values:
                complete[name] = values[name]
                self._last_values.set(key, values[name])
            elif (last := self._last_values.get(key)) is not None and last.time >= oldest:
                complete[name] = last
        return complete


async def _off_loop_if_large(samples: int, aggregate_samples: Callable[[], T]) -> T:
    """Aggregate; in a thread if there are many samples, because 100 000 take 0.7 s."""
    if samples <= _MAX_ON_LOOP:
        return aggregate_samples()
    return await asyncio.to_thread(aggregate_samples)


def _key(plan: Plan) -> _Key:
    """Return what identifies a plan, without the names of its objects."""
    return plan.metric, str(plan.resource), plan.namespace, str(plan.selector)


def _vector(result: QueryResult) -> tuple[Sample, ...]:
    """Return the samples of a vector. Raises Broken for other kinds: a scalar has no object."""
    if result.kind != "vector":
        raise errors.Broken(f"the query returns a {result.kind}; a rule needs an instant vector")
    return result.samples
