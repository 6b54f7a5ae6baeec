"""One query that requests for different objects share, and later requests too.

`demand` decides which objects an evaluation covers; `snapshot` holds what it returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adapter import errors, telemetry
from adapter.background import Pace
from adapter.cache import SingleFlightCache
from adapter.clients.prometheus_result import QueryResult
from adapter.server.evaluation.demand import Demand, ObjectNames
from adapter.server.evaluation.fallback import Demoted, Fallback
from adapter.server.evaluation.queries import QueriesBySource
from adapter.server.evaluation.snapshot import Coverage, Snapshot
from rules.errors import PlanError
from rules.query import plan
from rules.query.aggregate import Reduction
from rules.query.catalog import Step
from rules.query.plan import Plan, SelectedObjects, StepQueries
from rules.query.scope import Scope
from rules.ruleset import CompiledRule
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

ERROR_TTL = 1.0
"""Seconds for which a failure is shared, at most."""
_BYTES_OF_SAMPLE = 400
"""Of a response. Samples of GPUs with all labels have as many."""
_SHORTEST_PATIENCE, _LONGEST_PATIENCE = 0.5, 5.0
"""Bounds in seconds of the time for which an expired evaluation is used while the next one runs.
Between them, it is the duration of the evaluation, or half its freshness if that is longer."""
_SHORTEST, _LONGEST = 1.0, 5.0
"""Freshness in seconds, if it is automatic."""
_STRETCH = 50.0
"""An evaluation that takes a whole core for its duration then costs at most a fiftieth of one."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedQueryId:
    """Key that, unlike the shared query itself, keeps no samples in memory."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """For how many seconds an evaluation answers later requests.

    Of several rules that set a freshness, the shortest counts. `default` is for rules that set
    none: 0 shares nothing in time, and None is automatic: 1 s, stretched to fifty times the
    duration of the last evaluation, at most 5 s and at most the scrape interval of their source.
    """

    default: float | None
    intervals: Mapping[str, float] = field(default_factory=dict)
    """Source -> its scrape interval in seconds, if it is known."""

    def of(self, steps: Sequence[Step], took: float = 0.0) -> float:
        """Return the freshness of an evaluation of `steps` that took `took` seconds."""
        configs = [step.rule.config for step in steps]
        own = [each.freshness for each in configs if each.freshness is not None]
        if own:
            return min(own)
        if self.default is not None:
            return self.default
        known = (self.intervals.get(each.source, _LONGEST) for each in configs)
        return max(_SHORTEST, min(_STRETCH * took, _LONGEST, *known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the shared queries of a server have in common."""

    queries: QueriesBySource
    freshness: Freshness
    alone: SingleFlightCache[tuple[SharedQueryId, ObjectNames], Snapshot]
    """Evaluations for the objects of one request only, by `SharedQuery.id` and objects."""
    start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts a task that is cancelled when the server stops."""
    demoted: Demoted
    metrics: telemetry.EvaluationMetrics
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the server stops: no merged evaluation begins any more."""


class SharedQuery:
    """Evaluations of the same steps and metric selector, for any objects in one scope.

    A request is answered from a present evaluation that covers it, else from one in flight, else
    from a new one: for the objects of all requests of the last minutes if requests are frequent,
    else for its own objects. While requests are frequent, the next evaluation begins when the
    present one is as old as its freshness, and requests are answered from the present one until it
    ends.

    `namespaces` are those of all requests: None for any, empty if the objects live in none.
    `resized` is called with the number of samples and names that are kept, when it has changed.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        selector: Selector,
        scope: Scope,
        *,
        namespaces: tuple[str, ...] | None,
        resized: Callable[[int], None],
        context: Context,
    ) -> None:
        # To look up the running loop each time takes 3 µs where getpid is slow.
        self._now = asyncio.get_running_loop().time
        self.id = SharedQueryId(tuple(steps))
        self._selector = selector
        self._shared = scope is not Scope.ALONE
        self._namespaces = namespaces
        self._resized = resized
        self._context = context
        self._demand = Demand()
        self._pace = Pace()
        self._size = 0
        self._merged: Snapshot | None = None
        self._flight: _Flight | None = None
        self._fallback = Fallback(steps[0].rule, context.demoted, selector=selector)
        self._began_alone = 0.0
        """When the last evaluation for one request began."""
        self._took = 0.0
        self._returned: int | None = None
        """Number of objects that the last evaluation without names returned."""
        self.move(tuple(steps))

    @property
    def rule(self) -> CompiledRule:
        """The rule of the first step."""
        return self.steps[0].rule

    def move(self, steps: tuple[Step, ...]) -> None:
        """Replace the steps by equal ones, whose rules have other places in the files."""
        self.steps = steps
        self._fallback.rule = self.rule
        self._counts = self._context.metrics.of_rule(self.rule.config.where.path)

    def lookup(self, requested: ObjectNames) -> Snapshot | None:
        """Count a request; return the newest evaluation that covers it and has not expired."""
        now = self._now()
        snapshot = self._covering(requested, now)
        self._count(requested, now, answered=snapshot is not None)
        return snapshot

    def repeats(self, requested: ObjectNames, answer: object) -> bool:
        """Return whether that evaluation still gives the same answer; if so, count a request."""
        now = self._now()
        snapshot = self._covering(requested, now)
        if snapshot is None or snapshot.answers.get(requested) is not answer:
            return False
        self._count(requested, now, answered=True)
        return True

    def _count(self, requested: ObjectNames, now: float, *, answered: bool) -> None:
        if self._shared:
            self._demand.record(requested, now)
            self._note_size()
        if answered:
            self._counts.shared.inc()

    async def evaluate(
        self, request: Plan, *, deadline: float | None, after: float = 0.0
    ) -> Snapshot:
        """Return an evaluation that covers `request` and began at loop time `after` or later.

        Raises BackendError subclasses, and PlanError if the query cannot be rendered.
        """
        requested = request.namespace, request.names
        now = self._now()
        if self._should_merge(requested, now, after):
            self._merge(now)
        flight = self._flight
        if flight is not None and flight.began >= after and flight.coverage.covers(requested):
            async with until(deadline):
                await asyncio.shield(flight.task)
                await self._pace.next()
        snapshot = self._covering(requested, self._now())
        if snapshot is not None and snapshot.began >= after:
            return snapshot
        if (error := self._fallback.error(self._now())) is not None:
            raise error.without_frames()
        async with until(deadline):
            return await self._context.alone.find(
                (self.id, requested),
                lambda: self._evaluate_alone(request),
                error_ttl=self._error_ttl,
            )

    @property
    def _freshness(self) -> float:
        return self._context.freshness.of(self.steps, self._took)

    @property
    def _error_ttl(self) -> float:
        return min(ERROR_TTL, self._freshness)

    @property
    def _may_be_wide(self) -> bool:
        """Whether a query may select objects of all names."""
        now = self._now()
        return self._shared and self._fallback.wide(now) and not self._fallback.demoted(now)

    def _covering(self, requested: ObjectNames, now: float) -> Snapshot | None:
        merged = self._merged
        if merged is not None and not merged.coverage.covers(requested):
            merged = None
        if merged is not None and now >= self._until(merged):
            merged = None
        if merged is not None and merged.began >= self._began_alone:
            return merged
        alone = self._context.alone.cached((self.id, requested))
        if merged is None or (alone is not None and alone.began > merged.began):
            return alone
        return merged

    def _until(self, merged: Snapshot) -> float:
        """Return when the present evaluation is not used any more."""
        if self._flight is None or not self._flight.ahead:
            return merged.expires
        patience = max(merged.expires - merged.due, (merged.due - merged.began) / 2)
        return merged.expires + min(max(patience, _SHORTEST_PATIENCE), _LONGEST_PATIENCE)

    def _should_merge(self, requested: ObjectNames, now: float, after: float) -> bool:
        """Return whether a request that nothing covers should start a merged evaluation."""
        if not self._may_merge(now):
            return False
        merged = self._merged
        if merged is None or now >= merged.due or merged.began < after:
            return True
        # A present evaluation is replaced early only if many other requests are new, too.
        return not merged.coverage.covers(requested) and self._demand.storm(now)

    def _may_merge(self, now: float) -> bool:
        return (
            self._shared
            and not self._context.closing.is_set()
            and self._flight is None
            and not self._fallback.demoted(now)
            and self._fallback.error(now) is None
            and self._demand.busy(now, self._freshness)
        )

    def _merge(self, now: float, *, ahead: bool = False) -> None:
        """Start an evaluation for the demand; `ahead` if the present one is just due."""
        wide = self._fallback.wide(now)
        objects = self._demand.objects(now, returned=self._returned, wide=wide)
        if objects is None:
            self._counts.refused.inc()
            self._fallback.cannot_merge("it would match too many names", now)
            return
        if self._namespaces is not None:
            objects = replace(objects, namespaces=self._namespaces)
        try:
            objects, queries = self._render(objects, by_namespace=self._namespaces is None)
        except PlanError as error:
            self._counts.refused.inc()
            self._fallback.cannot_merge(str(error), now)
            return
        coverage = Coverage.of(objects)
        wide = objects.names is None
        task = self._context.start(self._evaluate_merged(queries, coverage, wide=wide))
        self._flight = _Flight(coverage=coverage, began=now, ahead=ahead, task=task)

    def _render(
        self, objects: SelectedObjects, *, by_namespace: bool
    ) -> tuple[SelectedObjects, tuple[StepQueries, ...]]:
        """Render the queries of all steps, without names if that is possible and they are too long.

        Return the objects that they cover, too. Raises PlanError.
        """
        queries = tuple(
            plan.queries(step, objects, self._selector, by_namespace=by_namespace)
            for step in self.steps
        )
        too_long = objects.names is not None and plan.longest(queries) > plan.MAX_LENGTH
        if too_long and self._may_be_wide:
            return self._render(replace(objects, names=None), by_namespace=by_namespace)
        return objects, queries

    def _on_due(self, snapshot: Snapshot) -> None:
        """Begin the next evaluation if requests are frequent, else forget the present one."""
        if self._merged is not snapshot:
            return
        if self._may_merge(self._now()):
            self._merge(self._now(), ahead=True)
        elif self._flight is None:
            self._merged = None
            self._note_size()

    def _note_size(self) -> None:
        size = self._demand.size + (self._merged.size if self._merged else 0)
        if size != self._size:
            self._size = size
            self._resized(size)

    async def _evaluate_merged(
        self, queries: Sequence[StepQueries], coverage: Coverage, *, wide: bool
    ) -> None:
        """Replace the present evaluation; keep a failure for the callers that wait."""
        try:
            snapshot = await self._run(queries, coverage, merged=True)
        except errors.BackendError as error:
            self._counts.refused.inc()
            self._fallback.failed(error, wide=wide, now=self._now(), error_ttl=self._error_ttl)
        except Exception as error:  # a bug, which must not fail every request of the rule
            self._counts.refused.inc()
            where = self.rule.config.where
            log.exception("%s: the evaluation for several requests has a bug", where)
            self._fallback.cannot_merge(f"{type(error).__name__}: {error}", self._now())
        else:
            self._merged = snapshot
            self._fallback.succeeded()
            if wide:
                self._returned = _objects_in(snapshot)
            self._counts.merged.inc()
            self._note_size()
            asyncio.get_running_loop().call_at(snapshot.due, self._on_due, snapshot)
        finally:
            self._flight = None

    async def _evaluate_alone(self, request: Plan) -> Snapshot:
        namespaces = (request.namespace,) if request.namespace else ()
        objects, queries = self._render(
            SelectedObjects(namespaces=namespaces, names=request.names), by_namespace=False
        )
        try:
            snapshot = await self._run(
                queries, Coverage.of(objects), merged=False, namespace=request.namespace
            )
        except errors.BackendError as error:
            error.query_length = plan.longest(queries)
            if objects.names is None:
                self._fallback.failed(error, wide=True, now=self._now(), error_ttl=self._error_ttl)
                if not self._may_be_wide:
                    return await self._evaluate_alone(request)
            raise
        self._counts.alone.inc()
        self._began_alone = snapshot.began
        return snapshot

    async def _run(
        self,
        queries: Sequence[StepQueries],
        coverage: Coverage,
        *,
        merged: bool,
        namespace: str = "",
    ) -> Snapshot:
        """Query all steps at the same time."""
        by_namespace = merged and self._namespaces is None
        values = [Reduction(step, by_namespace=by_namespace) for step in self.steps]
        recent = [
            Reduction(step, by_namespace=by_namespace) if each.recent else None
            for step, each in zip(self.steps, queries, strict=True)
        ]
        of = self._context.queries.of
        answer = await self._context.queries.vectors(
            [
                (of(step.rule.config.source, step.rule.team), text, samples.add)
                for step, each, *both in zip(self.steps, queries, values, recent, strict=True)
                for text, samples in zip((each.values, each.recent), both, strict=True)
                if text and samples
            ],
            merged=merged,
            namespace=namespace,
        )
        samples = tuple(each.by_object(newest) for each, newest in zip(values, recent, strict=True))
        self._took = took = answer.took
        self._counts.duration.observe(took)
        due = answer.began + self._freshness
        return Snapshot(
            coverage=coverage,
            samples=samples,
            by_namespace=by_namespace,
            began=answer.began,
            due=due,
            expires=due + took if merged else due,
            time=answer.at,
            size=size_of(sum(each.count for each in values), *answer.result),
            partial=next((each.partial for each in answer.result if each.partial), ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """Merged evaluation that has not ended."""

    coverage: Coverage
    began: float
    ahead: bool
    task: asyncio.Task[None]


@contextlib.asynccontextmanager
async def until(deadline: float | None) -> AsyncIterator[None]:
    """Raise TimedOut at `deadline` (loop time), if the block has not ended."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError as error:
        raise errors.TimedOut("deadline exceeded while a query was in flight") from error


def size_of(samples: int, *results: QueryResult) -> int:
    """Return how many samples count against the size of a cache: more if they are long."""
    return max(samples, sum(each.size for each in results) // _BYTES_OF_SAMPLE)


def _objects_in(snapshot: Snapshot) -> int:
    return sum(len(names) for each in snapshot.samples for names in each.values())
