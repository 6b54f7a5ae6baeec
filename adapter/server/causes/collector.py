"""Causes of missing metrics for API answers and the log.

`rules.causes` finds the causes. This module gives it the present labels of series and what
`evidence` finds, and caches the result. `log` logs it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import NoReturn

from adapter import bounds, errors, telemetry
from adapter.cache import SingleFlight, SingleFlightCache
from adapter.clients import own_rights, quirks, reachability
from adapter.server.causes.evidence import Probes
from adapter.server.causes.log import CauseLog
from adapter.server.evaluation.shared_query import until
from rules.causes import missing, suggestions
from rules.causes.candidates import Inventory
from rules.causes.reasons import Reason
from rules.causes.wording import printable
from rules.errors import AmbiguousSampleError, RulesError
from rules.findings import NOWHERE, Finding, State
from rules.kinds import GroupResource
from rules.query.plan import MAX_LENGTH, ExternalPlan, Plan
from rules.ruleset import CompiledRule, RuleSet

log = logging.getLogger(__name__)

_FORBIDDEN = 403
_CAUSES_TTL = 5.0
_LABELS_TTL = 60.0
_TIMEOUT = 2.0
"""Seconds to wait for Prometheus: for the present labels of series, and the better causes of all
rules without series, together. Causes do without them after that."""
_Metric = tuple[RuleSet, str, GroupResource | None]
_MAX_CACHED_NAME = 1000
"""Characters; a client must not fill the cache with long names."""


class CauseCollector:
    """Finds, caches and logs the causes of missing metrics; `run` logs their ends.

    `labels` returns the labels of one series of a rule, and may raise BackendError or RulesError;
    it is called at most once a minute for each series, or every 5 s while it fails. `probes` finds
    causes by further queries, and collects the evidence for an explanation.
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        labels: Callable[[CompiledRule, str], Awaitable[frozenset[str]]],
        *,
        probes: Probes,
        metrics: telemetry.CauseMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.probes = probes
        self._metrics = metrics
        self._query_labels = labels
        self._clock = clock
        self._causes: SingleFlightCache[_Metric, tuple[Finding, ...]] = SingleFlightCache(
            ttl=lambda *_: _CAUSES_TTL, max_size=bounds.METRIC_CAUSES, clock=clock
        )
        self._labels: SingleFlightCache[tuple[CompiledRule, str], frozenset[str]]
        self._labels = SingleFlightCache(
            ttl=lambda *_: _LABELS_TTL, max_size=bounds.METRIC_CAUSES, clock=clock
        )
        self._presets: SingleFlight[None, object] = SingleFlight()
        self._log = CauseLog(clock=clock)

    def adopt(self, rules: Collection[CompiledRule]) -> None:
        """Forget the causes of all other rules, and of metrics that no rule produced."""
        kept = frozenset(rules)
        self._causes.entries.clear()
        self._labels.retain(lambda key: key[0] in kept)
        self.probes.adopt(kept)

    async def of_metric(
        self, inventory: Inventory, metric: str, resource: GroupResource | None = None
    ) -> tuple[Finding, ...]:
        """Return why no series provides `metric`; `resource` is None for an external metric.

        Empty if a series appeared meanwhile.
        """
        if len(metric) > _MAX_CACHED_NAME:
            return await self._find_causes(inventory, metric, resource)
        return await self._causes.get(
            (inventory.ruleset, metric, resource),
            lambda: self._find_causes(inventory, metric, resource),
        )

    async def of_plan(self, inventory: Inventory, plan: Plan | ExternalPlan) -> tuple[Finding, ...]:
        """Return why a plan that Prometheus answered gave no value."""
        found = await self.probes.of_plan(plan, inventory.ruleset.presets)
        if isinstance(plan, ExternalPlan):
            return (missing.of_query(inventory, plan, found),)
        return missing.of_plan(inventory, plan, found)

    async def labels(self, rule: CompiledRule, series: str) -> frozenset[str]:
        """Return the present labels of a series, a minute old at most; empty if unknown."""
        try:
            return await self._labels.get(
                (rule, series), lambda: self._find_labels(rule, series), error_ttl=_CAUSES_TTL
            )
        except errors.BackendError:
            return frozenset()

    def log_causes(
        self, subject: str, causes: Sequence[Finding], error: errors.BackendError | None = None
    ) -> None:
        """Count and log why `subject` has no value, as `CauseLog.add`; `error` is only logged."""
        if causes:
            self._metrics.answers.labels(causes[0].reason).inc()
        self._log.add(subject, causes, error)

    def query_failed(
        self, subject: str, plan: Plan | ExternalPlan, error: errors.BackendError
    ) -> errors.ApiError:
        """Log the cause for a query of `plan` that failed, and return the 500."""
        rule, shown = _refused_step(plan, error.query)
        cause = query_cause(rule, error, query=shown)
        return self._failed(subject, "unable to fetch metrics", cause, error)

    def list_failed(
        self, subject: str, resource: GroupResource, error: errors.BackendError
    ) -> errors.ApiError:
        """Log the cause for a list that failed, and return the 500."""
        cause = missing.failed_list(resource)
        if isinstance(error, errors.Refused) and error.status == _FORBIDDEN:
            right = own_rights.of_objects(resource)
            cause = missing.missing_right(str(right), right.grant())
        return self._failed(subject, "unable to list matching resources", cause, error)

    def samples_failed(self, subject: str, error: AmbiguousSampleError) -> errors.ApiError:
        """Log the cause for several samples of one object, and return the 500."""
        cause = Finding(reason=Reason.SEVERAL_SAMPLES, fact=str(error))
        return self._failed(subject, "unable to fetch metrics", cause)

    def _failed(
        self,
        subject: str,
        message: str,
        cause: Finding,
        error: errors.BackendError | None = None,
    ) -> errors.ApiError:
        self.log_causes(subject, [cause], error)
        return errors.internal(message, [cause])

    async def run(self) -> NoReturn:
        """Log the end of causes until cancelled."""
        await self._log.run()

    async def _find_causes(
        self, inventory: Inventory, metric: str, resource: GroupResource | None
    ) -> tuple[Finding, ...]:
        # One call for metrics that are missing at the same time: the first call loads all presets.
        await self._presets.run(None, lambda: asyncio.to_thread(suggestions.preset_metrics))
        deadline = asyncio.get_running_loop().time() + _TIMEOUT
        unlabelled = missing.series_without_label(inventory, metric, resource) if resource else ()
        labels = await asyncio.gather(
            *(self.labels(rule, series.name) for rule, series in unlabelled)
        )
        by_series = {
            (rule.index, series.name): present
            for (rule, series), present in zip(unlabelled, labels, strict=True)
        }
        causes = missing.of_metric(inventory, metric, resource, by_series)
        found: list[tuple[Finding, ...]] = [(cause,) for cause in causes]
        try:
            async with asyncio.timeout_at(deadline):
                for place, cause in enumerate(causes):
                    found[place] = await self._with_series(cause, inventory.ruleset)
        except TimeoutError:
            log.info("the causes of %s took too long", printable(metric))
        return tuple(itertools.chain.from_iterable(found))

    async def _with_series(self, cause: Finding, ruleset: RuleSet) -> tuple[Finding, ...]:
        """Return a better cause than that a rule has no series, if there is one."""
        if cause.reason != Reason.NO_SERIES or cause.where == NOWHERE:
            return (cause,)
        found = await self.probes.of_rule(ruleset.rule_at(cause.where), ruleset.presets)
        # Of one reason, both are as usual while everything starts.
        return tuple(
            replace(each, state=cause.state if each.reason == cause.reason else State.FAILURE)
            for each in found
        ) or (cause,)

    async def _find_labels(self, rule: CompiledRule, series: str) -> frozenset[str]:
        """Return the labels, none for a selector that cannot be narrowed. Raises BackendError."""
        try:
            async with until(asyncio.get_running_loop().time() + _TIMEOUT):
                return await self._query_labels(rule, series)
        except (errors.BackendError, RulesError) as error:
            log.info("cannot query the labels of series %s: %r", series, error)
            if isinstance(error, RulesError):
                return frozenset()
            raise


def query_cause(
    rule: CompiledRule, error: errors.BackendError, *, query: str = "", key: str = "metricsQuery"
) -> Finding:
    """Return the cause for a query that failed; `query` is shown, `key` is its key in the rule."""
    if isinstance(error, errors.Partial):
        return missing.partial_response(str(rule.config.where))
    if isinstance(error, errors.WindowNotFull):
        return missing.window_not_full(str(rule.config.where), str(error))
    too_long = quirks.is_too_long(error.status, error.refusal)
    if too_long and error.query_length > MAX_LENGTH:
        return missing.long_query(str(rule.config.where), error.query_length)
    return missing.failed_query(
        str(rule.config.where),
        refusal=error.refusal,
        problem=reachability.problem_of(error, rule.config.source),
        query=query,
        key=key,
        too_large=isinstance(error, errors.TooLarge),
    )


def _refused_step(plan: Plan | ExternalPlan, refused: str) -> tuple[CompiledRule, str]:
    """Return the rule whose query is `refused`, and that query; else the first rule and nothing.

    A query that is shared with other requests may name objects that this caller may not see.
    """
    steps = (plan.step,) if isinstance(plan, ExternalPlan) else plan.steps
    if refused:
        queries = (plan.promql(),) if isinstance(plan, ExternalPlan) else plan.promql()
        for step, query in zip(steps, queries, strict=True):
            if query == refused:
                return step.rule, query
    return steps[0].rule, ""
