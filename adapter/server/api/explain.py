"""`?explain=true` of a metric's URL: how the answer comes about, step by step.

Takes the steps of the API's own answer once, and shows what one passes to the next. The queries
that it shows are the evidence from which the causes follow.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter import bounds, errors
from adapter.server.api.groups import custom, external, question
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import AnyGroup, Content
from adapter.server.apimachinery import encoding
from adapter.server.apimachinery.negotiation import UNCHANGED
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer
from adapter.server.auth.in_flight import MaxInFlight
from adapter.server.evaluation.forecasts import Forecasts
from rules.causes import explanation, missing
from rules.causes.evidence import Evidence
from rules.causes.explanation import MAX_LABEL
from rules.causes.explanation_text import Document
from rules.errors import RulesError
from rules.findings import Finding
from rules.kinds import GroupResource
from rules.query.catalog import Catalog, Entry, ExternalEntry
from rules.query.plan import ExternalPlan, Plan
from rules.quoting import shorten

log = logging.getLogger(__name__)

_AT_ONCE = 2
"""Explanations at a time; each sends about a dozen queries that are not shared. In the namespace of
each team, they count separately."""
_ANSWER_TIMEOUT = 4.0
"""Seconds for the answer that is explained: what hangs is named within five."""
_TIMEOUT, _SHORT_TIMEOUT = 10.0, 0.5
"""Seconds for the queries of one explanation; what is not known by then is left out. The second
one after an answer that took too long."""
_EXPLAINED = {custom.API.name, external.API.name}
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


class Explainer:
    """Explains requests for metrics, at most two at a time."""

    def __init__(self) -> None:
        self._slots = MaxInFlight(_AT_ONCE)
        self._slots_of = functools.lru_cache(bounds.TEAMS)(lambda _: MaxInFlight(_AT_ONCE))

    async def answer(
        self, group: AnyGroup, info: RequestInfo, backend: Backend, *, deadline: float
    ) -> Answer:
        """Return the explanation as JSON. Raises ApiError for requests that are not valid."""
        deadline = min(deadline, asyncio.get_running_loop().time() + _ANSWER_TIMEOUT)
        of_team = backend.generation.catalog.cluster is not None
        with self._slots_of(info.namespace) if of_team else self._slots:
            document = await _explain(group, info, backend, deadline)
        return Answer(body=encoding.encode(document, pretty=info.pretty is not False))


async def _explain(
    group: AnyGroup, info: RequestInfo, backend: Backend, deadline: float
) -> Document:
    requested: custom.RequestedMetric | external.RequestedExternal | None = None
    query: Plan | ExternalPlan | None = None
    evidence: tuple[Evidence, ...] = ()
    content, causes, failure = None, tuple[Finding, ...](), ""
    found: Any = None
    probes, presets = backend.collector.probes, backend.inventory.ruleset.presets
    try:
        requested = await group.resolve(info, backend)
        query = group.plan(requested)
        found = await group.evaluate(requested, query, backend, deadline=deadline)
        if query is not None and found.values:
            evidence = await probes.with_values(query, timeout=_TIMEOUT, reaction=True)
        elif query is not None and not _is_unlisted(requested.entry):
            # Before `content`, whose causes follow from it.
            evidence = await probes.without_value(query, presets)
        content = await group.content(requested, query, found, backend)
    except errors.ApiError as error:
        if error.code not in {404, 500}:
            raise
        causes = error.causes
        if query is not None and not evidence:
            slow = isinstance(error.__cause__, errors.TimedOut)
            timeout = _SHORT_TIMEOUT if slow else _TIMEOUT
            evidence = await probes.with_values(query, timeout=timeout)
        if error.code == 500 and not causes:
            failure = _failure(error)
            log.warning("cannot explain %s: %s: %r", info.path, failure, error.__cause__)
    # In a thread, because 10 000 values take a tenth of a second.
    values = await asyncio.to_thread(lambda: tuple(_values(content)))
    if content is not None:
        causes = content.causes
        if causes:
            present = {name for name, _ in values}
            of_lacking, why = await _of_lacking(query, present, backend)
            evidence, causes = (*evidence, *of_lacking), (*why, *causes)
    ahead = await _ahead(group, requested, query, None if content is None else found, backend)
    names = None if requested is None else requested.names
    asked, resource = _asked(info), None
    inventory = backend.inventory
    if asked["resource"]:
        target = question.target_of(info)
        kind = inventory.kinds.find(target.resource, target.group)
        resource = kind.group_resource if kind else None
        if resource is None and not causes:
            causes = (missing.unknown_resource(asked["resource"], inventory.kinds),)
    # Also where the objects cannot be named, for example because one does not exist.
    entry = _entry(inventory.catalog, asked["metric"], resource, external=not asked["resource"])
    # In a thread, because many rules with thousands of series take a tenth of a second.
    rules = await asyncio.to_thread(
        explanation.considered,
        inventory,
        asked["metric"],
        resource,
        external=not asked["resource"],
        entry=entry,
    )
    if requested and entry is None and backend.fallback:
        forwarded = {
            "rule": f"--external-fallback={backend.fallback.name}",
            "taken": True,
            "reason": "is asked, because no rule produces the metric",
        }
        rules = {**rules, "items": [forwarded, *rules["items"]]}
    return explanation.document(
        asked,
        rules=rules,
        objects=None if names is None else explanation.shown(names),
        entry=entry,
        queries=[
            explanation.query(
                each,
                labels=await _labels(each, backend),
                metric_selector=asked["metricLabelSelector"],
                freshness=backend.evaluation.freshness(each.question.step),
                of_rule=_of_rule(each, causes, backend) if _is_unlisted(entry) else (),
            )
            for each in evidence
        ],
        values=explanation.shown_values(values),
        ahead=ahead,
        causes=causes,
        failure=failure,
    )


async def _ahead(
    group: AnyGroup,
    requested: custom.RequestedMetric | external.RequestedExternal | None,
    query: Plan | ExternalPlan | None,
    found: Any,
    backend: Backend,
) -> Document | None:
    """Return what the forecast says, and the values without it; None without `ahead`.

    `found` is None if there is no answer.
    """
    if not isinstance(requested, custom.RequestedMetric) or requested.entry.ahead is None:
        return None
    document = backend.forecasts.document(question.forecast_key(requested.question))
    now: tuple[tuple[str, str], ...] = ()
    if document["served"] and found is not None:
        without = replace(backend, forecasts=Forecasts())
        now = tuple(_values(await group.content(requested, query, found, without)))
    return {**document, "valuesNow": explanation.shown_values(now)}


async def _labels(found: Evidence, backend: Backend) -> frozenset[str]:
    """Return the present labels of the series, unless Prometheus answers nothing."""
    if not found.results:
        return frozenset()
    return await backend.collector.labels(found.question.rule, found.question.step.series)


def _is_unlisted(entry: Entry | ExternalEntry | None) -> bool:
    """Return whether causes follow from what is known of the rules, not from the plan."""
    return isinstance(entry, Entry) and not entry.listed


def _of_rule(
    found: Evidence, causes: Sequence[Finding], backend: Backend
) -> tuple[tuple[str, str], ...]:
    """Return the queries about the rule of a step, and their results, if a cause is of it."""
    rule = found.question.rule
    if all(each.where != rule.config.where.place for each in causes):
        return ()
    return backend.collector.probes.lines_of_rule(rule, backend.inventory.ruleset.presets)


async def _of_lacking(
    plan: Plan | ExternalPlan | None, present: Collection[str], backend: Backend
) -> tuple[tuple[Evidence, ...], tuple[Finding, ...]]:
    """Return why some objects of a list have no value, though those `present` have."""
    if not present or not isinstance(plan, Plan):
        return (), ()
    lacking = tuple(name for name in plan.names if name not in present)
    if not lacking:
        return (), ()
    of_lacking, collector = replace(plan, names=lacking), backend.collector
    presets = backend.inventory.ruleset.presets
    evidence = await collector.probes.without_value(of_lacking, presets)
    return evidence, await collector.of_plan(backend.inventory, of_lacking)


def _entry(
    catalog: Catalog, metric: str, resource: GroupResource | None, *, external: bool
) -> Entry | ExternalEntry | None:
    """Return the metric, if a rule produces it for the resource."""
    if external:
        return catalog.external_entry(metric)
    return None if resource is None else catalog.entry(resource, metric)


def _failure(error: errors.ApiError) -> str:
    """Return what failed and, if we say so ourselves, why; a failing backend is a cause."""
    cause = error.__cause__
    message = error.message.removeprefix("Internal error occurred: ")
    if isinstance(cause, RulesError | errors.NotInstantError):  # our own words
        return f"{message}: {cause}"
    return message


def _asked(info: RequestInfo) -> Document:
    """Return the request; an external metric has no resource, name and selector of objects."""
    if info.group == external.API.name:
        metric, resource, name, selector = info.resource, "", "", ""
        namespace, metric_selector = info.namespace, info.label_selector
    else:
        target = question.target_of(info)
        metric, resource, name = target.metric, target.resource_in_url, target.name
        namespace, metric_selector = target.namespace, info.metric_label_selector
        selector = info.label_selector
    return {
        "metric": metric,
        "resource": resource,
        "namespace": namespace,
        "name": name,
        "labelSelector": selector,
        "metricLabelSelector": metric_selector,
    }


def _values(content: Content | None) -> Iterator[tuple[str, str]]:
    """Yield the object, or the labels of an external metric, and the value of each item."""
    items: list[Mapping[str, Any]] = [] if content is None else content.build(UNCHANGED)["items"]
    for item in items:
        labels = item.get("metricLabels") or {}
        described = item.get("describedObject", {}).get("name", "")
        named = ",".join(f"{key}={shorten(each, MAX_LABEL)}" for key, each in labels.items())
        yield described or named, item["value"]
