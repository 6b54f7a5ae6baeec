"""From plans to values: what is asked at the same time is asked once.

Identical queries in flight are one. Who gives up does not end it for the others; the last one does.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult
from rules.query import aggregate
from rules.query.aggregate import ExternalValue, Sample, Value
from rules.query.plan import ExternalPlan, Plan

_REMEMBERED = 100_000
_QUESTIONS = 10_000
"""Questions of which it is kept who was there; those longest unasked go first."""


class Evaluation:
    """Knows the values that plans ask for.

    Deadlines are times of the running event loop; `clock` gives Unix seconds. `remembered` bounds
    how many objects' last values are kept for rules with `onMissing: {lastKnown: …}`. Methods raise
    BackendError subclasses, and `values` AmbiguousSampleError.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        clock: Callable[[], float] = time.time,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._in_flight: dict[str, InFlight] = {}
        self._memory = _Memory(remembered)
        self._present = _Present()

    async def values(self, plan: Plan, *, deadline: float | None = None) -> Mapping[str, Value]:
        """One value for each object that has one, in the order of `plan.names`."""
        found, now = await self._answer(plan, deadline)
        if len(plan.steps) > 1:
            if self._present.lost(plan, found):
                # An object that moves from one exporter's series to another's may be in neither
                # answer, for they are not of one instant; by now the other has it.
                found, now = await self._answer(plan, deadline)
            self._present.note(plan, found)
        ages = (step.rule.config.on_missing.last_known for step in plan.steps)
        age = next((age for age in ages if age is not None), None)
        return found if age is None else self._memory.complete(plan, found, oldest=now - age)

    async def rows(
        self, plan: ExternalPlan, *, deadline: float | None = None
    ) -> tuple[ExternalValue, ...]:
        """The values of an external metric, one for each sample. Raises NotInstantError, too."""
        result = await self.query(plan.step.promql, deadline=deadline)
        return aggregate.external(plan, _instant(result), scalar=result.kind == "scalar")

    async def _answer(self, plan: Plan, deadline: float | None) -> tuple[dict[str, Value], float]:
        vectors = await self._ask(plan, deadline)
        now = self._clock()
        return aggregate.answer(plan, vectors, now=now), now

    async def query(self, promql: str, *, deadline: float | None = None) -> QueryResult:
        """The answer to one query, shared with everyone who waits for the same."""
        while True:
            in_flight = self._in_flight.get(promql)
            joined = in_flight is not None
            if in_flight is None:
                in_flight = self._begin(promql, deadline)
            try:
                return await self._join(in_flight, promql, deadline if joined else None)
            except errors.TimedOut:
                # The one who began it had less time than this caller has.
                if not joined or not _later(deadline, in_flight.deadline):
                    raise

    async def _ask(self, plan: Plan, deadline: float | None) -> list[tuple[Sample, ...]]:
        """The vector of each step; the first failure ends what this plan still waits for."""
        if len(plan.steps) == 1:
            return [_vector(await self.query(plan.steps[0].promql, deadline=deadline))]
        tasks = [
            asyncio.ensure_future(self.query(step.promql, deadline=deadline)) for step in plan.steps
        ]
        try:
            return [_vector(result) for result in await asyncio.gather(*tasks)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, promql: str, deadline: float | None) -> InFlight:
        task = asyncio.create_task(
            self._prometheus.query(promql, deadline=deadline), name=f"query {promql}"
        )
        in_flight = self._in_flight[promql] = InFlight(task=task, deadline=deadline)
        task.add_done_callback(lambda _: self._land(promql, in_flight))
        return in_flight

    def _land(self, promql: str, in_flight: InFlight) -> None:
        if self._in_flight.get(promql) is in_flight:
            del self._in_flight[promql]

    async def _join(self, in_flight: InFlight, promql: str, deadline: float | None) -> QueryResult:
        in_flight.callers += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(in_flight.task)
        except TimeoutError as e:
            raise errors.TimedOut(f"no answer in time to a query under way: {promql}") from e
        finally:
            in_flight.callers -= 1
            if not in_flight.callers and not in_flight.task.done():
                in_flight.task.cancel()
                self._land(promql, in_flight)


@dataclass(slots=True, kw_only=True)
class InFlight:
    """A query under way, and how many wait for it."""

    task: asyncio.Task[QueryResult]
    deadline: float | None
    callers: int = 0


@dataclass(slots=True)
class _Memory:
    """Last values of at most `max_size` objects; those longest unused go first."""

    max_size: int
    _values: OrderedDict[tuple[str, ...], Value] = field(default_factory=OrderedDict)

    def complete(
        self, plan: Plan, found: Mapping[str, Value], *, oldest: float
    ) -> dict[str, Value]:
        """`found`, and what is remembered and not older than `oldest` for names that it lacks."""
        whole: dict[str, Value] = {}
        common = _key(plan)
        for name in plan.names:
            key = (*common, name)
            value = found.get(name) or self._values.get(key)
            if value is None:
                continue
            if value.time < oldest and name not in found:
                del self._values[key]
                continue
            whole[name] = self._values[key] = value
            self._values.move_to_end(key)
        while len(self._values) > self.max_size:
            self._values.popitem(last=False)
        return whole


@dataclass(slots=True)
class _Present:
    """Which objects had a value when a question was last answered by several steps."""

    _names: OrderedDict[tuple[str, ...], frozenset[str]] = field(default_factory=OrderedDict)

    def lost(self, plan: Plan, found: Mapping[str, Value]) -> bool:
        """Whether an object that had a value, and is asked for again, has none in `found`."""
        before = self._names.get(_key(plan), frozenset())
        return any(name in before and name not in found for name in plan.names)

    def note(self, plan: Plan, found: Mapping[str, Value]) -> None:
        key = _key(plan)
        self._names[key] = frozenset(found)
        self._names.move_to_end(key)
        while len(self._names) > _QUESTIONS:
            self._names.popitem(last=False)


def _key(plan: Plan) -> tuple[str, ...]:
    """What is asked of every name of a plan."""
    return plan.metric, str(plan.resource), plan.namespace, str(plan.selector)


def _later(deadline: float | None, other: float | None) -> bool:
    return other is not None and (deadline is None or deadline > other)


def _vector(result: QueryResult) -> tuple[Sample, ...]:
    """The samples of a vector. Raises Broken for all else: a scalar belongs to no object."""
    if result.kind != "vector":
        raise errors.Broken(f"the query answers a {result.kind}; a rule needs an instant vector")
    return result.samples


def _instant(result: QueryResult) -> tuple[Sample, ...]:
    """The samples of a vector or a scalar. Raises NotInstantError for all else."""
    if result.kind not in {"vector", "scalar"}:
        raise errors.NotInstantError(
            f"the query answers a {result.kind}; an external rule needs an instant vector or a "
            "scalar"
        )
    return result.samples
