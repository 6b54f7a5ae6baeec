"""Queries to Prometheus for the causes of an empty answer: few, cheap, bounded and remembered.

`rules.causes.samples` says what to query and what follows. `collector` gives the causes to clients
and to the log.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import bounds, errors
from adapter.background import gather_or_cancel
from adapter.cache import SingleFlightCache
from adapter.clients import reachability
from adapter.clients.limits import TokenBucket
from adapter.clients.prometheus_result import QueryResult
from adapter.server.evaluation.shared_query import until
from rules import promql
from rules.causes import ended, evidence, missing, questions, samples
from rules.causes.ended import Results
from rules.causes.evidence import Evidence
from rules.document.sources import DEFAULT
from rules.errors import RulesError
from rules.exporters import detect, generations
from rules.findings import Finding
from rules.query.aggregate import Sample
from rules.query.plan import ExternalPlan, Plan
from rules.ruleset import CompiledRule

log = logging.getLogger(__name__)

_TTL = 30.0
"""Seconds for which causes are remembered, and the failure of a detection."""
_EXPORTERS_TTL = 300.0
"""A detection takes two or three dozen queries."""
_TIMEOUT = 2.0
"""Seconds for all queries of one diagnosis; and as many for the detection."""
_AT_ONCE = 2
_PER_SECOND, _BURST = 5.0, 20
"""Diagnoses, each of about ten queries; others do without, so that Prometheus is not flooded. Those
of the rules of each team count separately."""


_Query = Callable[[str], Awaitable[QueryResult]]
_Subject = Plan | ExternalPlan | tuple[CompiledRule, frozenset[str]]
"""A plan, or a rule and the presets in use."""
_Exporters = tuple[detect.DetectedExporter, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """Causes; those of a rule with the queries behind them, and their results in a few words."""

    causes: tuple[Finding, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()


class Probes:
    """Collects evidence by further queries, and remembers the causes that follow.

    `query` returns what evaluates PromQL for a rule; `detection` finds the exporters. What they
    return may raise BackendError. `scrapes` is False for a Prometheus that is filled otherwise.
    `clock` is monotonic, `now` returns Unix seconds.
    """

    def __init__(
        self,
        query: Callable[[CompiledRule], _Query],
        detection: Callable[[], Awaitable[detect.Detection]],
        *,
        scrapes: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._scrapes = scrapes
        self._query = query
        self._detection = detection
        self._now = now
        self._bucket = functools.lru_cache(bounds.TEAMS)(
            lambda _team: TokenBucket(_PER_SECOND, _BURST, clock=clock)
        )
        self._causes: SingleFlightCache[_Subject, _Found] = SingleFlightCache(
            ttl=lambda *_: _TTL,
            max_size=bounds.CAUSES,
            size=lambda key, _: 1 + (len(key.names) if isinstance(key, Plan) else 0),
            clock=clock,
        )
        self._exporters: SingleFlightCache[None, _Exporters] = SingleFlightCache(
            ttl=lambda *_: _EXPORTERS_TTL, max_size=1, clock=clock
        )

    async def of_plan(
        self, plan: Plan | ExternalPlan, presets: frozenset[str] = frozenset()
    ) -> tuple[Finding, ...]:
        """Return a cause for each of the first steps; empty if it cannot be queried now.

        `presets` are in use.
        """
        return (await self._find(plan, lambda: self._diagnose(plan, presets))).causes

    async def without_value(
        self, plan: Plan | ExternalPlan, presets: frozenset[str] = frozenset()
    ) -> tuple[Evidence, ...]:
        """Collect the evidence about the first steps of a plan that gave no value.

        From now on, `of_plan` returns the causes in it. The caller limits how often this happens.
        """
        found = await _of_steps(plan, lambda each: self._of_no_value(each, presets))
        self._causes.set(plan, _of_evidence(found))
        return found

    async def with_values(
        self, plan: Plan | ExternalPlan, *, timeout: float, reaction: bool = False
    ) -> tuple[Evidence, ...]:
        """Collect the evidence about the first steps of a plan that gave values, or failed.

        With `reaction`, also how soon they show a change of load. What is not known after `timeout`
        seconds is left out. The caller limits how often this happens.
        """
        return await _of_steps(plan, lambda each: self._of_values(each, timeout, reaction))

    async def of_rule(
        self, rule: CompiledRule, presets: frozenset[str] = frozenset()
    ) -> tuple[Finding, ...]:
        """Return why a rule has no series: they ended, or those of another exporter exist.

        Only for a rule that reads one series name; empty if neither is known. `presets` are in use.
        """
        if rule.pinned_series is None:
            return ()
        return (await self._find((rule, presets), lambda: self._find_ended(rule, presets))).causes

    def lines_of_rule(
        self, rule: CompiledRule, presets: frozenset[str]
    ) -> tuple[tuple[str, str], ...]:
        """Return the queries behind the causes that `of_rule` returned last, and their results."""
        found = self._causes.cached((rule, presets))
        return () if found is None else found.lines

    def adopt(self, rules: Collection[CompiledRule]) -> None:
        """Forget what belongs to other rules."""
        self._causes.retain(lambda key: all(rule in rules for rule in _rules(key)))

    async def _find(self, key: _Subject, load: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """Return the causes of `key`, remembered or new; old ones while no query may be sent."""
        known = self._causes.cached(key)
        if known is None and key not in self._causes.in_flight:
            old = self._causes.cached(key, expired=True) or _Found()
            # Nothing suspends between this check and the start of the call, so callers that wake
            # together cannot all pass it.
            team = _rules(key)[0].team
            if sum(_rules(each)[0].team == team for each in self._causes.in_flight) >= _AT_ONCE:
                return old
            try:
                await self._bucket(team).take(0.0)
            except errors.TimedOut:
                return old
        return await self._causes.find(key, load) if known is None else known

    async def _diagnose(self, plan: Plan | ExternalPlan, presets: frozenset[str]) -> _Found:
        return _of_evidence(await _of_steps(plan, lambda each: self._of_no_value(each, presets)))

    async def _of_values(
        self, question: questions.ExaminedStep, timeout: float, reaction: bool
    ) -> Evidence:
        queries = questions.of_values(question)
        if reaction:
            queries = {**queries, **questions.of_reaction(question)}
        results, error = await self._run(question.rule, queries, _in(timeout))
        return Evidence(
            question=question, queries=queries, results=results, at=self._now(), error=error
        )

    async def _of_no_value(
        self, question: questions.ExaminedStep, presets: frozenset[str]
    ) -> Evidence:
        queries, deadline = questions.queries(question), _in(_TIMEOUT)
        first, error = await self._run(question.rule, queries, deadline)
        further = questions.further(question, first)
        second, _ = await self._run(question.rule, further, deadline)
        results, now = {**first, **second}, self._now()
        others = tuple[Finding, ...]()
        if "every" in results and not results["every"] and not ended.is_down(results):
            others = await self._other_exporters(question.rule, presets)
        return Evidence(
            question=question,
            queries={**queries, **further},
            results=results,
            at=now,
            error=error,
            cause=others[0] if others else samples.conclude(question, results, now),
        )

    async def _find_ended(self, rule: CompiledRule, presets: frozenset[str]) -> _Found:
        selector = promql.in_expression(rule.config.series_query)
        queries, deadline = {**ended.series(selector), **ended.native(rule)}, _in(_TIMEOUT)
        results, _ = await self._run(rule, queries, deadline)
        cause = ended.of_rule(rule, results, self._now())
        past = () if cause is None else (cause,)
        others = await self._other_exporters(rule, presets)
        # A target that is down is a fact of now; any other end may be that of a replaced exporter.
        causes = (*past, *others) if ended.is_down(results) else (*others, *past)
        return _Found(causes, tuple(evidence.lines(queries, results)))

    async def _run(
        self, rule: CompiledRule, queries: Mapping[str, str], deadline: float
    ) -> tuple[Results, str]:
        """Return the results of those queries that succeed until `deadline` (loop time), by key.

        With them, why that of the key `answer` failed, or that its response is partial. A
        Prometheus that is filled without scraping gets no query for targets.
        """
        query = self._query(rule)
        results: dict[str, Sequence[Sample]] = {}
        problems: dict[str, str] = {}

        async def run(key: str, text: str) -> None:
            try:
                result = await query(text)
            except errors.BackendError as error:
                log.info("a query for the cause failed: %s", error)
                problem = reachability.problem_of(error, rule.config.source) or "did not answer"
                problems[key] = error.refusal or f"Prometheus {problem}"
                return
            results[key] = result.samples
            problems[key] = "the response of Prometheus is partial" if result.partial else ""
            if key == "answer" and result.histograms:
                results["histograms"] = (Sample({}, result.histograms, 0.0),)

        try:
            async with asyncio.timeout_at(deadline):
                await gather_or_cancel(
                    run(key, text)
                    for key, text in queries.items()
                    if self._scrapes or key != "scraped"
                )
        except TimeoutError:
            log.info("the queries for the cause took too long")
        return results, problems.get("answer", "Prometheus did not answer in time")

    async def _other_exporters(
        self, rule: CompiledRule, presets: frozenset[str]
    ) -> tuple[Finding, ...]:
        if rule.config.source == DEFAULT and rule.pinned_series in generations.SERIES:
            try:
                exporters = await self._exporters.get(None, self._detect, error_ttl=_TTL)
            except errors.BackendError:
                return ()
            return tuple(
                missing.other_exporter(rule, each.generation, each.presets)
                for each in exporters
                if (each.presets or each.generation.is_unread)
                and not (each.presets and presets.issuperset(each.presets))
                and each.generation.server == (rule.pinned_series in generations.SERVER_SERIES)
            )
        return ()

    async def _detect(self) -> _Exporters:
        """Return the exporters. Logs and raises BackendError."""
        try:
            async with until(_in(_TIMEOUT)):
                return (await self._detection()).exporters
        except errors.BackendError as error:
            log.info("the exporters cannot be detected: %r", error)
            raise


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def _rules(key: _Subject) -> tuple[CompiledRule, ...]:
    if isinstance(key, Plan):
        return tuple(step.rule for step in key.steps)
    return (key.step.rule,) if isinstance(key, ExternalPlan) else key[:1]


def _of_evidence(found: Iterable[Evidence]) -> _Found:
    return _Found(tuple(each.cause for each in found if each.cause is not None))


async def _of_steps(
    plan: Plan | ExternalPlan,
    collect: Callable[[questions.ExaminedStep], Coroutine[Any, Any, Evidence]],
) -> tuple[Evidence, ...]:
    try:
        return tuple(await gather_or_cancel(map(collect, questions.questions(plan))))
    except RulesError as error:  # a plan that cannot be rendered, or a selector that is too long
        log.info("no further query for the cause: %s", error)
        return ()
