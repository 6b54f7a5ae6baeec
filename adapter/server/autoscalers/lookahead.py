"""Forecasts for the autoscalers whose metric has a rule with `ahead`, made once a minute.

`rules.query.ahead` has the formula, `evaluation.forecasts` what requests get of it. The totals of
a workload are the sums over all pods with its names, of now and of one season ago: the pods of that
time had other names, so they cannot be looked up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from adapter import bounds, errors
from adapter.background import Condition, guarded
from adapter.clients import collection
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.errors import ApiError, BackendError
from adapter.server.api.groups import question
from adapter.server.api.groups.backend import Backend
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.autoscalers.watched_hpa import WatchedHpa
from adapter.server.evaluation.forecasts import COUNT, INTERVAL, Forecasts, Key
from rules import limits
from rules.document.ahead import Ahead
from rules.errors import PlanError, UnknownResourceError, UnreadableError
from rules.findings import Finding, degraded, passes
from rules.hpa import autoscaler, past_pods, reaction
from rules.hpa.autoscaler import Pod
from rules.hpa.replay import STARTUP
from rules.kinds import PODS, Kinds
from rules.limits import Claim
from rules.query import ahead, plan
from rules.query.catalog import Entry
from rules.quoting import counted
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Seconds between two forecasts for the same metric of a workload."""
_LOOK = 5.0
"""Seconds between two looks at which are due."""
_MAX_NEW = 4
"""New metrics of a namespace whose past is read at each look."""
_SLICE = 100
"""Metrics that are looked at before other work gets its turn."""
_STARTUP_AGE = 3600.0
"""Seconds for which the measured start of a workload's pods counts."""
_STARTUP_TIMEOUT = 10.0
"""Seconds for the queries for first samples; if there is no answer, the time until Ready counts."""
_POINTS = 10_000
"""Points that are queried at once: Prometheus refuses more than 11 000."""
_MEASURED = 50
"""Pods of a workload whose start is measured."""
_EXPECTED = frozenset({"Rising", "NotRising", "NoLoad", "Unlike"})
"""Reasons of forecasts that nothing is wrong with."""

Watched = tuple[WatchedHpa, Selector, RequestInfo]
"""An HPA, the selector of the pods of its target, and the request for one of its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A metric of an HPA for which forecasts are made."""

    hpa: WatchedHpa
    pods: Selector
    resolved: question.Question
    ahead: Ahead

    @property
    def entry(self) -> Entry:
        """The metric of the pods."""
        return self.resolved.entry.pods or self.resolved.entry

    @property
    def source(self) -> str:
        """Name of the Prometheus that is read."""
        return self.entry.steps[0].rule.config.source


class LookAhead:
    """Makes forecasts while `run` runs.

    `watched` yields the metrics of HPAs, `clients` are by source. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        *,
        backend: Callable[[], Backend],
        watched: Callable[[], Iterable[Watched]],
        clients: Mapping[str, Prometheus],
        kube: Kube,
        forecasts: Forecasts,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._backend = backend
        self._watched = watched
        self._clients = clients
        self._kube = kube
        self._forecasts = forecasts
        self._clock = clock
        self._sleep = sleep
        self._kept: dict[Key, _Kept] = {}
        self._running: dict[tuple[str, bool], asyncio.Task[None]] = {}
        """By source, and whether they make first forecasts."""
        self._beyond = Condition()

    async def run(self) -> NoReturn:
        """Make forecasts until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self.once(tasks)
                await self._sleep(_LOOK)

    async def once(self, tasks: asyncio.TaskGroup) -> None:
        """Start tasks that make the forecasts that are due.

        Each source has a task for first forecasts and one for others. While one runs, its successor
        is not started.
        """
        wanted = await self._wanted()
        self._forecasts.retain(frozenset(wanted))
        self._kept = {key: self._kept.get(key) or _Kept() for key in wanted}
        for which, due in self._due(wanted, self._clock()).items():
            running = self._running.get(which)
            if running is None or running.done():
                self._running[which] = tasks.create_task(self._predict_all(due))

    def check(self) -> Finding:
        """Return which metrics get no forecast, for /readyz, without a name of an HPA."""
        present = self._forecasts.present
        reasons = Counter(map(self._forecasts.reason, present))
        wrong = {reason: number for reason, number in reasons.items() if reason not in _EXPECTED}
        if self._beyond.problem:
            return degraded(self._beyond.problem)
        if wrong:
            listed = ", ".join(f"{reason} ({number})" for reason, number in sorted(wrong.items()))
            return degraded(
                f"{sum(wrong.values())} of {len(present)} metrics with `ahead` have no forecast: "
                f"{listed}; the log and `explain` say why"
            )
        if not present:
            return passes("no HPA has a metric whose rule says `ahead`")
        served = sum(self._forecasts.served(key) is not None for key in present)
        return passes(f"{counted(len(present), 'metric')}, {served} with a forecast")

    async def _wanted(self) -> dict[Key, _Wanted]:
        """Return the metrics for which forecasts are made, at most FORECASTS."""
        backend = self._backend()
        is_used = any(rule.config.ahead is not None for rule in backend.generation.ruleset.rules)
        found: dict[Key, _Wanted] = {}
        for number, (hpa, pods, info) in enumerate(self._watched() if is_used else (), 1):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            with guarded(f"{hpa.namespace}/{hpa.name}", f"{info.path} cannot be resolved"):
                if (one := await _resolved(hpa, pods, info, backend)) is not None:
                    found.setdefault(question.forecast_key(one.resolved), one)
        claims = {Claim(namespace=key[0], name=str(key), created=""): key for key in found}
        most = bounds.FORECASTS
        admitted = limits.admit(claims, own=most, total=most).keys
        beyond = len(found) - len(admitted)
        problem = (
            f"{beyond} metrics with `ahead` get no forecast, because at most {most} do: remove "
            "`ahead` from rules that do not need it"
        )
        if self._beyond.becomes(problem if beyond else "") and beyond:
            log.warning("%s", problem)
        return {key: found[key] for claim, key in claims.items() if claim.key in admitted}

    def _due(
        self, wanted: Mapping[Key, _Wanted], now: float
    ) -> Mapping[tuple[str, bool], Sequence[tuple[Key, _Wanted, _Kept]]]:
        """Return the requests whose forecast is due, by source and by whether it is the first one.

        Of first ones, only some of each namespace are returned: Prometheus needs seconds for their
        totals. The others do not wait for that.
        """
        found = defaultdict[tuple[str, bool], list[tuple[Key, _Wanted, _Kept]]](list)
        new: Counter[str] = Counter()
        for key, kept in self._kept.items():
            is_new = kept.made == -math.inf
            new[key[0]] += is_new
            if now - kept.made >= _INTERVAL and not (is_new and new[key[0]] > _MAX_NEW):
                found[wanted[key].source, is_new].append((key, wanted[key], kept))
        return found

    async def _predict_all(self, due: Iterable[tuple[Key, _Wanted, _Kept]]) -> None:
        # One after the other, so that weeks of the past are a small part of what Prometheus does.
        for key, wanted, kept in due:
            if self._kept.get(key) is kept:  # else it is no longer wanted
                began = self._clock()
                await self._predict_one(key, wanted, kept)
                kept.made = began

    async def _predict_one(self, key: Key, wanted: _Wanted, kept: _Kept) -> None:
        """Serve new forecasts for a request, or note why there are none."""
        season, horizon = wanted.ahead.season, STARTUP
        problem = "an internal error; report the traceback in the log"
        with guarded(_title(wanted), "no forecast can be made"):
            try:
                horizon = await self._horizon(wanted, kept)
                forecasts = await self._predict(wanted, kept, season, horizon)
                self._forecasts.predict(key, forecasts, season=season, horizon=horizon)
                problem = ""
            except (PlanError, UnreadableError) as error:
                problem = str(error)
            except BackendError as error:
                log.info("%s: no totals: %s", _title(wanted), error)
                problem = (
                    "Prometheus did not return the past of the workload; the log has its error"
                )
        if problem:
            self._forecasts.fail(key, problem, season=season, horizon=horizon)
        self._note(key, wanted, kept.condition)

    def _note(self, key: Key, wanted: _Wanted, condition: Condition) -> None:
        """Log what is wrong with the forecasts for a request, if that has changed."""
        reason = self._forecasts.reason(key)
        if condition.becomes("" if reason in _EXPECTED else reason):
            sentence = self._forecasts.sentence(key)
            level = logging.WARNING if condition.problem else logging.INFO
            log.log(level, "%s: %s", _title(wanted), sentence)

    async def _predict(
        self, wanted: _Wanted, kept: _Kept, season: float, horizon: float
    ) -> tuple[ahead.Forecast, ...]:
        """Return the forecasts of the next minutes.

        Raises PlanError, UnreadableError and BackendError.
        """
        steps = wanted.entry.steps
        if len({step.rule.config.source for step in steps}) > 1:
            raise UnreadableError(
                "the rules of the metric read several Prometheus servers; give them one `source`"
            )
        hpa = wanted.hpa
        query = past_pods.total(
            hpa.namespace,
            past_pods.of_scale(hpa.target, wanted.pods),
            steps,
            wanted.resolved.metric_selector,
        )
        if kept.query != query:
            kept.query, kept.totals, kept.forecaster = query, (_Totals(), _Totals()), None
        forecaster = kept.forecaster
        if forecaster is None or (forecaster.season, forecaster.horizon) != (season, horizon):
            forecaster = kept.forecaster = ahead.Forecaster(season=season, horizon=horizon)
        at = self._clock()
        now = math.floor(at / ahead.STEP) * ahead.STEP
        client = self._clients[wanted.source]
        for totals, (begin, end) in zip(kept.totals, forecaster.needed(now), strict=True):
            await totals.read(client, query, begin, end)
        past, recent = (each.totals() for each in kept.totals)
        # In a thread: the first check of a week of forecasts takes a fifth of a second.
        return await asyncio.to_thread(_forecasts, forecaster, past, recent, at)

    async def _horizon(self, wanted: _Wanted, kept: _Kept) -> float:
        """Return the horizon of the rule, or how long the pods of the workload take to start."""
        if wanted.ahead.horizon is not None:
            return wanted.ahead.horizon
        now = self._clock()
        if now - kept.started_at >= _STARTUP_AGE:
            try:
                if seconds := await self._startup(wanted):
                    kept.start, kept.started_at = seconds, now
            except BackendError as error:
                log.info("%s: the start of pods is not known: %s", _title(wanted), error)
        return kept.start

    async def _startup(self, wanted: _Wanted) -> float | None:
        """Return how long present pods took until they were Ready and had a sample, if any are.

        Raises BackendError.
        """
        namespace, kind = wanted.hpa.namespace, Kinds.builtin().first(PODS.resource, PODS.group)
        params = {**collection.params(kind, labels=str(wanted.pods)), "limit": str(_MEASURED)}
        document = await self._kube.get(collection.path(kind, namespace), params)
        found = (collection.attempt(each, autoscaler.pod) for each in document["items"] or ())
        pods = [each for each in found if isinstance(each, Pod)]
        if not pods:
            return None
        query = plan.custom(
            wanted.entry,
            namespace=namespace,
            names=[each.name for each in pods],
            selector=wanted.resolved.metric_selector,
        )
        probes = self._backend().of(namespace).collector.probes
        probed = await probes.with_values(query, timeout=_STARTUP_TIMEOUT, reaction=True)
        return reaction.start(pods, [each.first_samples for each in probed]).seconds


class _Totals:
    """Totals of a workload, every STEP seconds of a window that moves on."""

    def __init__(self) -> None:
        self._begin = 0.0
        """Unix seconds of the first total."""
        self._values = array("d")
        """NaN where there is none. 11 700 take 94 kB."""

    async def read(self, client: Prometheus, query: str, begin: float, end: float) -> None:
        """Let the window last from `begin` to `end`; query what it lacks. Raises BackendError."""
        first = self._begin + len(self._values) * ahead.STEP
        if not self._begin <= begin <= first:
            first, self._begin, self._values = begin, begin, array("d")
        while first <= end:
            last = min(end, first + _POINTS * ahead.STEP)
            found = await client.query_range(query, first, last, ahead.STEP)
            if found.partial:
                raise errors.Partial(found.partial)
            self._values.extend([math.nan] * (round((last - first) / ahead.STEP) + 1))
            for at, value in (point for each in found.content for point in each.points):
                self._values[round((at - self._begin) / ahead.STEP)] = value
            first = last + ahead.STEP
        old = round((begin - self._begin) / ahead.STEP)
        self._begin, self._values = begin, self._values[old:]

    def totals(self) -> ahead.Totals:
        """Return the totals until the next `read`."""
        return ahead.Totals(begin=self._begin, values=self._values)


@dataclass(slots=True)
class _Kept:
    """What is kept of a request between two forecasts."""

    made: float = -math.inf
    """When the last forecast that has ended was begun."""
    start: float = STARTUP
    """Seconds that pods take to start, as last measured at `started_at`."""
    started_at: float = -math.inf
    query: str = ""
    totals: tuple[_Totals, _Totals] = field(default_factory=lambda: (_Totals(), _Totals()))
    """Results of the query, of one season ago and of now."""
    forecaster: ahead.Forecaster | None = None
    condition: Condition = field(default_factory=Condition)


def _forecasts(
    forecaster: ahead.Forecaster, past: ahead.Totals, recent: ahead.Totals, at: float
) -> tuple[ahead.Forecast, ...]:
    """Return the forecasts for each INTERVAL from `at` (Unix seconds) on."""
    return tuple(forecaster.at(past, recent, at + index * INTERVAL) for index in range(COUNT))


async def _resolved(
    hpa: WatchedHpa, pods: Selector, info: RequestInfo, backend: Backend
) -> _Wanted | None:
    """Return a metric of an HPA.

    None if its rule does not say `ahead`, or if it is computed from the pods of another workload
    than the target.
    """
    backend = backend.of(info.namespace)
    try:
        target = question.target_of(info)
        kind = backend.kinds.resolve(target.resource, target.group)
        entry = backend.generation.catalog.entry(kind.group_resource, target.metric)
        if entry is None or entry.ahead is None:
            return None
        is_target = target.name == hpa.target.name and kind.kind == hpa.target.kind
        if entry.pods is not None and not is_target:
            return None
        resolved = await question.resolve(info, backend)
    except (UnknownResourceError, ApiError):
        return None
    return _Wanted(hpa=hpa, pods=pods, resolved=resolved, ahead=entry.ahead)


def _title(wanted: _Wanted) -> str:
    return f"{wanted.hpa.namespace}/{wanted.hpa.name}: {wanted.resolved.target.metric}"
