"""Why metrics are not there: found out when somebody asks for one, and told to the log in time.

Autoscalers ask again every few seconds, so what was found out holds for a moment, and the log says
it once, then only when it changes or after a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from adapter import errors
from adapter.cache import SingleFlightCache
from rules.diagnosis import missing
from rules.diagnosis.inventory import Inventory
from rules.diagnosis.missing import Cause, Reason
from rules.errors import RulesError
from rules.kinds import GroupResource
from rules.query.plan import ExternalPlan, Plan
from rules.ruleset import CompiledRule

log = logging.getLogger(__name__)

AGAIN_SECONDS = 600.0
_CAUSES_SECONDS = 5.0
_LABELS_SECONDS = 60.0
_PATIENCE = 2.0
"""Seconds that Prometheus has to say which labels series carry; the causes can do without."""
_KEPT = 1024
_TOLD = 8192
_LONGEST = 1000
_LONGEST_LINE = 2000


class MissingMetrics:
    """Knows why metrics are not there.

    `labels` finds which labels a series of a rule carries, raising BackendError or RulesError;
    it is asked about one series name at most once a minute. `clock` gives seconds that only grow.
    """

    def __init__(
        self,
        seen: Callable[[], Inventory],
        labels: Callable[[CompiledRule, str], Awaitable[frozenset[str]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seen = seen
        self._ask_labels = labels
        self._clock = clock
        self._causes = SingleFlightCache(
            self._find, ttl=lambda _, __: _CAUSES_SECONDS, max_size=_KEPT, clock=clock
        )
        self._labels = SingleFlightCache(
            self._find_labels, ttl=lambda _, __: _LABELS_SECONDS, max_size=_KEPT, clock=clock
        )
        self._told: OrderedDict[str, tuple[float, tuple[tuple[Reason, int | None], ...]]] = (
            OrderedDict()
        )

    async def of_metric(
        self, metric: str, resource: GroupResource | None = None
    ) -> tuple[Cause, ...]:
        """Why no series give `metric` of `resource`; without one it is an external metric."""
        if len(metric) > _LONGEST:
            return await self._find((metric, resource))
        return await self._causes.get((metric, resource))

    def of_plan(self, plan: Plan | ExternalPlan) -> tuple[Cause, ...]:
        """Why nothing was found by a plan that Prometheus answered."""
        seen = self._seen()
        if isinstance(plan, ExternalPlan):
            return (missing.of_query(seen, plan),)
        return missing.of_plan(seen, plan)

    def tell(self, subject: str, causes: Sequence[Cause]) -> None:
        """Have the log say why `subject` has no values, unless it has said so of late."""
        now = self._clock()
        about = tuple((cause.reason, cause.rule) for cause in causes)
        at, before = self._told.get(subject, (now, None))
        if about == before and now - at < AGAIN_SECONDS:
            return
        self._told[subject] = (now, about)
        self._told.move_to_end(subject)
        if len(self._told) > _TOLD:
            self._told.popitem(last=False)
        line = "; ".join(str(cause) for cause in causes) or "it came or went just now"
        log.warning("%s: %s", subject, line[:_LONGEST_LINE])

    async def _find(self, asked: tuple[str, GroupResource | None]) -> tuple[Cause, ...]:
        metric, resource = asked
        seen = self._seen()
        unlabelled = missing.unlabelled(seen, metric, resource) if resource else ()
        found = await asyncio.gather(
            *(self._labels.get((rule, series.name)) for rule, series in unlabelled)
        )
        carried = {
            (rule.index, series.name): labels
            for (rule, series), labels in zip(unlabelled, found, strict=True)
        }
        return missing.of_metric(seen, metric, resource, carried)

    async def _find_labels(self, asked: tuple[CompiledRule, str]) -> frozenset[str]:
        rule, series = asked
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._ask_labels(rule, series)
        except (errors.BackendError, RulesError, TimeoutError) as error:
            log.info("which labels %s carries is not known: %r", series, error)
            return frozenset()
