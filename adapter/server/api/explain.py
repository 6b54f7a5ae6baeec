"""`?explain=true` of a metric's URL: how the answer comes about, step by step.

Collects the facts; `rules.causes.explanation` draws the conclusions. Takes the
steps of the API's own answer once, and shows what one passes to the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter import bounds, errors
from adapter.background import gather_or_cancel
from adapter.cache import LRUCache
from adapter.clients import reachability
from adapter.clients.prometheus_result import QueryResult
from adapter.server.api.groups import custom, external, question
from adapter.server.api.groups.group import AnyGroup, Backend, Content
from adapter.server.apimachinery import encoding
from adapter.server.apimachinery.negotiation import UNCHANGED
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer
from adapter.server.auth.in_flight import MaxInFlight
from rules import promql
from rules.causes import explanation, explanation_document, missing, samples
from rules.causes.explanation import MAX_LABEL, Asked, Explanation, QueryFacts, RuleFacts
from rules.errors import RulesError
from rules.findings import Finding
from rules.query import scope
from rules.query.aggregate import Sample
from rules.query.plan import ExternalPlan, Plan
from rules.quoting import shorten
from rules.ruleset import CompiledRule

log = logging.getLogger(__name__)

_AT_ONCE = 2
"""Explanations at a time; each sends about a dozen queries that are not shared. In the namespace of
each team, they count separately."""
_ANSWER_TIMEOUT = 4.0
"""Seconds for the answer that is explained: what hangs is named within five."""
_TIMEOUT, _SHORT_TIMEOUT = 10.0, 0.5
"""Seconds for the queries of one explanation; what is not known by then is left out. The second
one after an answer that took too long."""
_MAX_LABELS = 30
_EXPLAINED = {custom.NAME, external.NAME}
"""Groups whose answers follow from rules."""


def requested(info: RequestInfo) -> bool:
    """Return whether the URL of a metric has `explain=true`."""
    if "explain" not in info.query or info.group not in _EXPLAINED:
        return False
    return info.query["explain"][0].lower() in {"true", "1"}


def forbidden(path: str) -> errors.ApiError:
    """Return the 403 for a caller who may read the metric, but not the discovery document."""
    return errors.ApiError(
        403,
        f'explain=true quotes rules and queries. It also needs the right to get the path "{path}": '
        f"a ClusterRole with nonResourceURLs: [{path}], verbs: [get]",
        reason="Forbidden",
        details={},
        headers=errors.NOSNIFF,
    )


_Query = Callable[[str], Awaitable[QueryResult]]


class Explainer:
    """Explains requests for metrics, at most two at a time.

    `query` returns what evaluates PromQL for a rule, unshared. `labels` returns the labels of one
    series of a rule. Both may raise BackendError.
    """

    def __init__(
        self,
        query: Callable[[CompiledRule], _Query],
        labels: Callable[[CompiledRule, str], Awaitable[frozenset[str]]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._query = query
        self._now = now
        self._labels = labels
        self._slots = MaxInFlight(_AT_ONCE)
        self._slots_of_teams: LRUCache[str, MaxInFlight] = LRUCache(bounds.TEAMS.size)

    async def answer(
        self, group: AnyGroup, info: RequestInfo, backend: Backend, *, deadline: float
    ) -> Answer:
        """Return the explanation as JSON. Raises ApiError for requests that are not valid."""
        deadline = min(deadline, asyncio.get_running_loop().time() + _ANSWER_TIMEOUT)
        with self._slots_of(backend, info.namespace):
            found = await self._explain(group, info, backend, deadline)
        document = explanation_document.document(found)
        return Answer(body=encoding.encode(document, pretty=info.pretty is not False))

    def _slots_of(self, backend: Backend, namespace: str) -> MaxInFlight:
        if backend.inventory.catalog.team is None:
            return self._slots
        if (slots := self._slots_of_teams.get(namespace)) is None:
            slots = MaxInFlight(_AT_ONCE)
            self._slots_of_teams.set(namespace, slots)
        return slots

    async def _explain(
        self, group: AnyGroup, info: RequestInfo, backend: Backend, deadline: float
    ) -> Explanation:
        requested: custom.Requested | external.Requested | None = None
        query: Plan | ExternalPlan | None = None
        content, causes, failure, timeout = None, tuple[Finding, ...](), "", _TIMEOUT
        try:
            requested = await group.resolve(info, backend)
            query = group.plan(requested)
            found = await group.evaluate(requested, query, backend, deadline=deadline)
            content = await group.content(requested, query, found, backend)
        except errors.ApiError as error:
            if error.code not in {404, 500}:
                raise
            causes = error.causes
            if isinstance(error.__cause__, errors.TimedOut):
                timeout = _SHORT_TIMEOUT
            if error.code == 500 and not causes:
                failure = _failure(error)
                log.warning("cannot explain %s: %s: %r", info.path, failure, error.__cause__)
        # In a thread, because 10 000 values take a tenth of a second.
        values = await asyncio.to_thread(lambda: tuple(_values(content)))
        if content is not None:
            causes = content.causes
            if causes:
                present = {name for name, _ in values}
                causes = (*await self._of_lacking(query, present, backend), *causes)
        names = None if requested is None else requested.names
        asked, resource = _asked(info), None
        inventory = backend.inventory
        if asked.resource:
            target = question.target_of(info)
            resource = explanation.resolve(inventory, target.resource, target.group)
            if resource is None and not causes:
                causes = (missing.unknown_resource(asked.resource, inventory.kinds),)
        # In a thread, because many rules with thousands of series take a tenth of a second.
        rules = await asyncio.to_thread(
            explanation.considered,
            inventory,
            asked.metric,
            resource,
            external=not asked.resource,
            entry=None if requested is None else requested.entry,
        )
        if requested and requested.entry is None and backend.fallback:
            forwarded = RuleFacts(
                rule=f"--external-fallback={backend.fallback.name}",
                taken=True,
                reason="is asked, because no rule produces the metric",
            )
            rules = replace(rules, items=(forwarded, *rules.items))
        return Explanation(
            asked=asked,
            rules=rules,
            objects=None if names is None else explanation.first(names),
            entry=None if requested is None else requested.entry,
            queries=await self._queries(query, asked.metric_selector, timeout),
            values=explanation.first(values),
            causes=causes,
            failure=failure,
        )

    async def _of_lacking(
        self, plan: Plan | ExternalPlan | None, present: Collection[str], backend: Backend
    ) -> tuple[Finding, ...]:
        """Return why some objects of a list have no value, though those `present` have."""
        if not present or not isinstance(plan, Plan):
            return ()
        lacking = tuple(name for name in plan.names if name not in present)
        if not lacking:
            return ()
        return await backend.collector.of_plan(backend.inventory, replace(plan, names=lacking))

    async def _queries(
        self, plan: Plan | ExternalPlan | None, metric_selector: str, timeout: float
    ) -> tuple[QueryFacts, ...]:
        if plan is None:
            return ()
        try:
            questions = samples.questions(plan)
            return tuple(
                await gather_or_cancel(
                    self._facts(each, metric_selector, timeout) for each in questions
                )
            )
        except RulesError as error:  # a plan that cannot be rendered; the causes say why
            log.info("no query to explain: %s", error)
            return ()

    async def _facts(
        self, asked: samples.Question, metric_selector: str, timeout: float
    ) -> QueryFacts:
        labels, results = frozenset[str](), dict[str, Sequence[Sample]]()
        found, error = None, "Prometheus did not answer in time"
        try:
            async with asyncio.timeout(timeout):
                found, error = await self._run(asked.rule, asked.query)
                labels = await self._present_labels(asked)
                queries = {**samples.ages(asked), **samples.of_default(asked)}
                for key, text in queries.items():
                    result, _ = await self._run(asked.rule, text)
                    if result is not None:
                        results[key] = result.samples
        except TimeoutError:
            log.info("the queries of an explanation took longer than %g s", timeout)
        binding = asked.step.binding
        numbers = {key: each[0].value for key, each in results.items() if each}
        own = () if found is None else _own(asked, found.samples)
        return QueryFacts(
            rule=str(asked.rule.config.where),
            source=asked.rule.config.source,
            series=asked.step.series,
            wanted_labels=tuple(filter(None, (binding.resource, binding.namespace))),
            present_labels=tuple(sorted(labels))[:_MAX_LABELS],
            promql=shorten(promql.one_line(asked.query), explanation.MAX_QUERY),
            scope=scope.sharing(asked.step.source, binding).scope,
            samples=None if found is None else explanation.first(own),
            other_samples=0 if found is None else len(found.samples) - len(own),
            error=error,
            series_count=int(numbers.get("series", 0)) if found is not None else None,
            newest=numbers.get("newest"),
            oldest=numbers.get("oldest"),
            notes=tuple(
                samples.notes(asked, results, self._now(), metric_selector=metric_selector)
            ),
        )

    async def _run(self, rule: CompiledRule, promql: str) -> tuple[QueryResult | None, str]:
        """Return the result, or None and why there is none. Only Prometheus' refusal is quoted."""
        source = rule.config.source
        try:
            result = await self._query(rule)(promql)
        except errors.BackendError as error:
            log.info("a query of an explanation failed: %s", error)
            problem = reachability.problem_of(error, source) or "did not answer"
            return None, error.refusal or f"Prometheus {problem}"
        return result, "the response of Prometheus is partial" if result.partial else ""

    async def _present_labels(self, asked: samples.Question) -> frozenset[str]:
        try:
            return await self._labels(asked.rule, asked.step.series)
        except (errors.BackendError, RulesError) as error:
            log.info("cannot query the labels of series %s: %r", asked.step.series, error)
            return frozenset()


def _own(asked: samples.Question, found: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples of the requested objects, all for an external metric.

    The caller may read no others, but a query without `<<.LabelMatchers>>` returns them, too.
    """
    if not asked.names:
        return found
    label, namespace = asked.step.binding.resource, asked.step.binding.namespace
    return [
        each
        for each in found
        if each.labels.get(label) in asked.names
        and each.labels.get(namespace, asked.namespace) == asked.namespace
    ]


def _failure(error: errors.ApiError) -> str:
    """Return what failed and, if we say so ourselves, why; a failing backend is a cause."""
    cause = error.__cause__
    message = error.message.removeprefix("Internal error occurred: ")
    if isinstance(cause, RulesError | errors.NotInstantError):  # our own words
        return f"{message}: {cause}"
    return message


def _asked(info: RequestInfo) -> Asked:
    if info.group == external.NAME:
        return Asked(
            metric=info.resource,
            resource="",
            namespace=info.namespace,
            name="",
            selector="",
            metric_selector=info.label_selector,
        )
    target = question.target_of(info)
    return Asked(
        metric=target.metric,
        resource=target.resource_in_url,
        namespace=target.namespace,
        name=target.name,
        selector=info.label_selector,
        metric_selector=info.metric_label_selector,
    )


def _values(content: Content | None) -> Iterator[tuple[str, str]]:
    """Yield the object, or the labels of an external metric, and the value of each item."""
    items: list[Mapping[str, Any]] = [] if content is None else content.build(UNCHANGED)["items"]
    for item in items:
        labels = item.get("metricLabels") or {}
        described = item.get("describedObject", {}).get("name", "")
        named = ",".join(f"{key}={shorten(each, MAX_LABEL)}" for key, each in labels.items())
        yield described or named, item["value"]
