"""Evaluation of plans: from the samples that Prometheus returns to the values of objects.

`shared_query` sends the queries, and shares them between requests.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from adapter import bounds, errors, telemetry
from adapter.background import gather_or_cancel
from adapter.cache import FairLRUCache, LRUCache, SingleFlightCache
from adapter.server.evaluation.fallback import Demoted
from adapter.server.evaluation.queries import QueriesBySource, QueryClient, off_loop_if_large
from adapter.server.evaluation.shared_query import (
    ERROR_TTL,
    Context,
    Freshness,
    SharedQuery,
    size_of,
    until,
)
from adapter.server.evaluation.snapshot import Snapshot
from adapter.server.evaluation.usage_status import UsageStatus
from rules.errors import PlanError
from rules.findings import Finding, degraded, passes
from rules.query import aggregate, resource, scope
from rules.query.aggregate import ExternalValue, Identity, Value
from rules.query.catalog import Step
from rules.query.plan import ExternalPlan, Plan
from rules.query.resource import UsageByName
from rules.query.scope import Scope, Sharing
from rules.ruleset import CompiledRule
from rules.selectors.selectors import Selector

_RESULT = 10
"""Size of an evaluation for a single request, or of an external metric, without samples: 2 kB."""
_SHARED_QUERY = 100
"""Size of a shared query without samples."""

T = TypeVar("T")
Usages = UsageByName | errors.BackendError | PlanError
"""Usage by object name, or why there is none."""
_Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(Generic[T]):
    """Values of a request."""

    values: T
    partial: str = ""
    """What Prometheus says that they lack, for the log; empty if they are whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Values of an external metric, until a time of the event loop."""

    evaluated: Evaluated[tuple[ExternalValue, ...]]
    expires: float
    size: int
    """See `size_of`."""


class Evaluation:
    """Evaluates plans on the clients of the sources that rules name.

    Deadlines are times of the running event loop; `clock` returns Unix seconds. A request ends
    after `timeout` seconds at the latest: the waits for a shared query and for a slot, the query,
    and those that follow it share them. `sharing` returns which objects one query of a rule may
    cover. `freshness` and `intervals` are as in `Freshness`. `allow_partial` is for rules that do
    not set `allowPartialResponse`. Methods raise BackendError subclasses, Partial among them, and
    PlanError if a query cannot be rendered.
    """

    def __init__(
        self,
        clients: Mapping[str, QueryClient],
        *,
        metrics: telemetry.EvaluationMetrics,
        freshness: float | None = None,
        intervals: Mapping[str, float] = MappingProxyType({}),
        allow_partial: bool = False,
        timeout: float = math.inf,
        sharing: Callable[[Step], Sharing] = scope.sharing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queries = QueriesBySource(clients, clock=clock)
        self._freshness = Freshness(default=freshness, intervals=intervals)
        self._allow_partial = allow_partial
        self._timeout = timeout
        self._metrics = metrics
        self._sharing = sharing
        self._scopes: LRUCache[_Steps, tuple[_Steps, Scope]] = LRUCache(bounds.SCOPES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared: LRUCache[tuple[_Steps, Selector, str], SharedQuery] = LRUCache(bounds.SHARED)
        self._demoted = Demoted()
        self._context = Context(
            queries=self._queries,
            freshness=self._freshness,
            alone=SingleFlightCache(
                ttl=lambda _, snapshot: snapshot.expires - _now(),
                max_size=bounds.ALONE,
                size=lambda _, snapshot: _RESULT + snapshot.size,
                clock=_now,
            ),
            start=self._start,
            demoted=self._demoted,
            metrics=metrics,
        )
        self._rows: SingleFlightCache[tuple[Step, Selector, str], _Rows] = SingleFlightCache(
            ttl=lambda _, rows: rows.expires - _now(),
            max_size=bounds.EXTERNAL,
            size=lambda _, rows: _RESULT + rows.size,
            clock=_now,
        )
        # Answers depend on these, so no namespace evicts what belongs to others.
        self._last: FairLRUCache[Identity, Value] = FairLRUCache(
            bounds.LAST_VALUES, aggregate.namespace_of
        )
        self._had_value: FairLRUCache[Identity, bool] = FairLRUCache(
            bounds.HAD_VALUE, aggregate.namespace_of
        )
        self.usage_status = UsageStatus(clock)

    async def close(self) -> None:
        """Cancel the evaluations for several requests."""
        self._context.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def adopt(self, rules: Collection[CompiledRule]) -> None:
        """Replace the rules; what belongs to unchanged ones is kept."""
        kept = {rule: rule for rule in rules}
        self._shared.retain(lambda key: _are_of(key[0], kept))
        self._context.alone.retain(lambda key: _are_of(key[0].steps, kept))
        self._scopes.retain(lambda steps: _are_of(steps, kept))
        self._rows.retain(lambda key: key[0].rule in kept)
        self._last.retain(lambda key: aggregate.rule_of(key) in kept)
        self._had_value.retain(lambda key: aggregate.rule_of(key) in kept)
        self._demoted.retain(kept)
        self.usage_status.retain(kept)
        self._metrics.retain({rule.config.where.path for rule in rules})

    def freshness(self, step: Step) -> float:
        """Return for how many seconds one result of a step answers requests, if it is quick."""
        return self._freshness.of((step,))

    async def values(
        self, plan: Plan, *, deadline: float | None = None, serve_partial: bool = False
    ) -> Evaluated[Mapping[str, Value]]:
        """Return the value of each object that has one, in the order of `plan.names`.

        The same mapping is returned for equal requests as long as one evaluation answers them.
        With `serve_partial`, Partial is raised only if there is no value at all.
        Raises AmbiguousSampleError if the rule forbids several samples of one object.
        """
        shared = self._shared_query(plan)
        requested = plan.namespace, plan.names
        snapshot = shared.lookup(requested)
        if snapshot is None:
            deadline = self._earlier(deadline)
            snapshot = await shared.evaluate(plan, deadline=deadline)
        evaluated = snapshot.answers.get(requested)
        if evaluated is None:
            evaluated = await self._answer(plan, shared, snapshot, self._earlier(deadline))
        if (loss := self._loss(evaluated, plan.steps, serve_partial=serve_partial)) is not None:
            raise loss
        return evaluated

    def repeats(self, plan: Plan, found: Evaluated[Mapping[str, Value]]) -> bool:
        """Return whether `values` would return the same object; if so, count a request."""
        return self._shared_query(plan).repeats((plan.namespace, plan.names), found)

    async def usages(
        self, plans: Sequence[Plan], *, deadline: float | None = None
    ) -> tuple[Usages, ...]:
        """Return the usage of the objects of each plan of `resourceRules`, or its failure.

        All requests are counted before the first is evaluated. So one query covers the objects of
        many namespaces, if the scope of its rule permits it.
        """
        shared = [self._shared_query(plan) for plan in plans]
        present = [
            each.lookup((plan.namespace, plan.names))
            for each, plan in zip(shared, plans, strict=True)
        ]
        known = [each for each in present if each is not None]
        if len(known) == len(plans):
            return tuple(map(self._usages, plans, known))
        deadline = self._earlier(deadline)
        return tuple(
            await gather_or_cancel(
                self._usages_of(plan, each, snapshot, deadline)
                for each, plan, snapshot in zip(shared, plans, present, strict=True)
            )
        )

    async def _usages_of(
        self, plan: Plan, shared: SharedQuery, present: Snapshot | None, deadline: float | None
    ) -> Usages:
        if present is not None:
            return self._usages(plan, present)
        try:
            snapshot = await shared.evaluate(plan, deadline=deadline)
        except (errors.BackendError, PlanError) as error:
            self.usage_status.failed(plan)
            return error
        return self._usages(plan, snapshot)

    def _usages(self, plan: Plan, snapshot: Snapshot) -> Usages:
        """Return the usage by object name, and keep it with the samples.

        A partial one is a failure: without some of its containers, a pod uses less.
        """
        requested = plan.namespace, plan.names
        known: UsageByName | None = snapshot.answers.get(requested)
        usages = resource.usage(plan, snapshot.of(plan.namespace)) if known is None else known
        loss = self._loss(Evaluated(values=usages, partial=snapshot.partial), plan.steps)
        if known is None:
            snapshot.answers.set(requested, usages, size=1 + len(plan.names))
            if loss is None:
                self.usage_status.succeeded(plan, snapshot)
            else:
                self.usage_status.failed(plan)
        return loss or usages

    async def rows(
        self, plan: ExternalPlan, *, deadline: float | None = None
    ) -> Evaluated[tuple[ExternalValue, ...]]:
        """Return the values of an external metric, one per sample.

        The same tuple is returned for equal requests as long as one evaluation answers them.
        """
        key = plan.step, plan.selector, plan.namespace if plan.namespaced else ""
        counts = self._metrics.of_rule(plan.step.rule.config.where.path)
        if (rows := self._rows.cached(key)) is not None:
            counts.shared.inc()
        else:
            error_ttl = min(ERROR_TTL, self._freshness.of((plan.step,)))
            async with until(self._earlier(deadline)):
                rows = await self._rows.find(
                    key, lambda: self._evaluate_rows(plan), error_ttl=error_ttl
                )
        if (loss := self._loss(rows.evaluated, (plan.step,))) is not None:
            raise loss
        return rows.evaluated

    def status(self) -> Finding:
        """Return which rules are queried separately for each request, for /readyz."""
        demoted = self._demoted.rules(_now())
        if not demoted:
            return passes("requests share their queries")
        return degraded(f"{', '.join(demoted)}: queried separately for each request, see the log")

    def _earlier(self, deadline: float | None) -> float:
        """Return when a request that waits from now on ends."""
        latest = _now() + self._timeout
        return latest if deadline is None else min(deadline, latest)

    def _shared_query(self, plan: Plan) -> SharedQuery:
        scope = self._scope(plan.steps)
        key = plan.steps, plan.selector, plan.namespace if scope is Scope.NAMESPACE else ""
        if (known := self._shared.get(key)) is not None:
            if known.steps is not plan.steps:
                known.move(plan.steps)
                self._shared.replace_key(key)
            return known

        def resized(size: int) -> None:
            self._shared.resize(key, shared, size=_SHARED_QUERY + size)

        namespaces = (plan.namespace,) if plan.namespace else ()
        shared = SharedQuery(
            plan.steps,
            plan.selector,
            scope,
            namespaces=None if scope is Scope.CLUSTER and plan.namespace else namespaces,
            resized=resized,
            context=self._context,
        )
        self._shared.set(key, shared, size=_SHARED_QUERY)
        return shared

    def _scope(self, steps: _Steps) -> Scope:
        """Return the narrowest scope of the steps, which are evaluated together."""
        known, scope = self._scopes.get(steps) or (None, None)
        if scope is None:
            order = list(Scope)
            scope = max((self._sharing(step).scope for step in steps), key=order.index)
        if known is not steps:  # equal keys that are the same object are found faster
            self._scopes.set(steps, (steps, scope))
        return scope

    def _loss(
        self, evaluated: Evaluated[Any], steps: _Steps, *, serve_partial: bool = False
    ) -> errors.Partial | None:
        """Return the error for values that lack something, unless they may be served."""
        if not evaluated.partial:
            return None
        if evaluated.values and (serve_partial or self._allows_partial(steps)):
            return None
        return errors.Partial(evaluated.partial)

    def _allows_partial(self, steps: _Steps) -> bool:
        """Return whether partial responses count as whole ones for all rules of `steps`."""
        own = (step.rule.config.allow_partial_response for step in steps)
        return all(self._allow_partial if each is None else each for each in own)

    async def _answer(
        self, plan: Plan, shared: SharedQuery, snapshot: Snapshot, deadline: float | None
    ) -> Evaluated[Mapping[str, Value]]:
        """Aggregate the samples of a plan, and keep the answer with them.

        Nothing follows from the lack of a sample in a partial response.
        """
        values, whole = self._aggregate(plan, snapshot)
        if len(plan.steps) > 1 and whole:
            if self._any_lost(plan, values):
                now = _now()
                snapshot = await shared.evaluate(plan, deadline=deadline, after=now)
                values, whole = self._aggregate(plan, snapshot)
            if whole:
                self._note_values(plan, values)
        known = aggregate.complete(plan, values, self._last, now=snapshot.time, keep=whole)
        answer: Evaluated[Mapping[str, Value]] = Evaluated(
            values=MappingProxyType(known), partial=snapshot.partial
        )
        snapshot.answers.set((plan.namespace, plan.names), answer, size=1 + len(plan.names))
        return answer

    def _aggregate(self, plan: Plan, snapshot: Snapshot) -> tuple[dict[str, Value], bool]:
        """Return the values, and whether the samples count as whole."""
        whole = not snapshot.partial or self._allows_partial(plan.steps)
        samples = snapshot.of(plan.namespace)
        return aggregate.custom(plan, samples, now=snapshot.time, constants=whole), whole

    def _any_lost(self, plan: Plan, values: Mapping[str, Value]) -> bool:
        """Return whether an object has no value that had one lately.

        The steps are evaluated at slightly different times, so an object that moves from one
        exporter's series to another's may have no sample in any of them.
        """
        key = aggregate.identity(plan)
        return any(self._had_value.get((*key, name)) for name in plan.names if name not in values)

    def _note_values(self, plan: Plan, values: Mapping[str, Value]) -> None:
        key = aggregate.identity(plan)
        for name in plan.names:
            if name in values:
                self._had_value.set((*key, name), True)
            else:
                self._had_value.discard((*key, name))

    async def _evaluate_rows(self, plan: ExternalPlan) -> _Rows:
        loop = asyncio.get_running_loop()
        rule = plan.step.rule
        queries = self._queries.of(rule.config.source, rule.team)
        answer = await queries.run(plan.promql(), namespace=plan.namespace)
        answered, result = loop.time(), answer.result
        if result.kind not in {"vector", "scalar"}:
            raise errors.NotInstantError(
                f"the query returns a {result.kind}; "
                "an external rule needs an instant vector or a scalar"
            )
        scalar = result.kind == "scalar"
        values = await off_loop_if_large(
            len(result.samples), lambda: aggregate.external(plan, result.samples, scalar=scalar)
        )
        took = answer.took + loop.time() - answered
        counts = self._metrics.of_rule(rule.config.where.path)
        counts.alone.inc()
        counts.duration.observe(took)
        expires = answer.began + self._freshness.of((plan.step,), took)
        evaluated = Evaluated(values=values, partial=result.partial)
        size = size_of(len(values), result)
        return _Rows(evaluated=evaluated, expires=expires, size=size)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()


def _are_of(steps: _Steps, rules: Container[CompiledRule]) -> bool:
    return all(step.rule in rules for step in steps)
