"""`check --prometheus-url`: what each rule takes from a live Prometheus, and what it answers.

Reads names and labels as a relist does, and sends one request for up to three metrics of each rule.
A command has no cluster, so the names of objects come from the labels of the series. The rest are
the steps of the API.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter import errors, settings
from adapter.cli.commands import check_usage, local_backend
from adapter.cli.commands.local_backend import Backend
from adapter.clients import sources
from adapter.clients.prometheus import Prometheus
from rules import promql, quantity
from rules.causes import wording
from rules.document.sources import DEFAULT
from rules.errors import RulesError
from rules.exporters import metric_types
from rules.findings import Finding, State
from rules.hpa import judgement
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource
from rules.lint import check, check_queries
from rules.query import nature
from rules.query.catalog import Entry, ExternalEntry, Series, Source
from rules.query.label_binding import LabelBinding
from rules.quoting import counted
from rules.ruleset import CompiledRule, RuleSet

_MAX_TRIALS = 3
_MAX_OBJECTS = 100
"""Objects of one trial; enough for a typical duration."""
_MAX_RATED = 20
_NOTES_TIMEOUT = 10.0
"""Seconds for the queries by which the values of one request are judged."""
_PREFERRED = (PODS, NODES)
"""Resources whose metrics are tried first."""
_BEGINNING = re.compile(r"[^:_]+(:|_[^:_]+_)")
"""What names of series of one exporter begin with."""
_Clients = Mapping[str, Prometheus]
"""Client of the Prometheus that a rule names, by the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """Result of one request."""

    namespace: str
    """The namespace with the most series; empty if the request has none."""
    objects: int
    """Number of requested objects."""
    values: int
    """Number of objects with a value; for an external metric, number of values."""
    samples: int
    """Largest number of samples of one object."""
    highest: int
    """Highest value in thousandths."""
    total: int
    """Sum of the values of an external metric in thousandths, as an HPA takes it."""
    query: str
    """That of the first step, if there are values."""
    cause: Finding | None
    """Why there is no value, if that is known."""
    notes: tuple[str, ...]
    """What is remarkable about the values."""
    seconds: float
    """Duration of all queries of the request."""


async def report(
    ruleset: RuleSet, flags: settings.PrometheusSettings
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return lines about every rule, and warnings. Raises BackendError, StartError."""
    rules = (*ruleset.rules, *ruleset.external)
    async with (
        sources.connect_prometheus(flags) as prometheus,
        sources.connect_sources(ruleset.sources) as others,
    ):
        clients = {DEFAULT: prometheus, **others}
        for name in {DEFAULT: None, **{rule.config.source: None for rule in rules}}:
            await clients[name].query("vector(1)")  # if it is unreachable, that is one error
        observer = _Observer(
            clients, await local_backend.connect(ruleset, clients, allow_partial=True)
        )
        lines: list[str] = []
        problems: list[Finding] = []
        for rule in rules:
            lines.append(observer.summary(rule))
            problems += await observer.listing(rule)
            problems += await observer.rates(rule)
            async for line, found in observer.trials(rule):
                lines += [line] if line else []
                problems += found
        if ruleset.resource_rules:
            of_usage, found = await check_usage.report(ruleset.resource_rules, prometheus)
            lines += of_usage
            problems += found
        return tuple(lines), tuple(problems)


class _Observer:
    def __init__(self, clients: _Clients, backend: Backend) -> None:
        self._clients = clients
        self._backend = backend
        self._inventory = inventory = backend.inventory
        self._entries: dict[int, list[Entry | ExternalEntry]] = {}
        """`CompiledRule.index` -> metrics that the rule serves."""
        self._winners: dict[tuple[str, str], CompiledRule] = {}
        """Section and metric -> a rule that serves it."""
        for entry in inventory.catalog.entries:
            for source in () if entry.pods else entry.sources:
                self._add(source.rule, entry)
        for external in inventory.catalog.external.values():
            self._add(external.source.rule, external)

    def _add(self, rule: CompiledRule, entry: Entry | ExternalEntry) -> None:
        self._entries.setdefault(rule.index, []).append(entry)
        self._winners[rule.section, entry.metric] = rule

    def summary(self, rule: CompiledRule) -> str:
        """Return what the rule takes, in one line."""
        series, metrics = self._inventory.series(rule), self._metrics(rule)
        names = f": {wording.names(metrics)}" if metrics else ""
        counts = f"{counted(len(series), 'name')} of series, {counted(len(metrics), 'metric')}"
        return f"{rule.config.where}: {counts}{names}"

    async def listing(self, rule: CompiledRule) -> list[Finding]:
        """Return warnings about what the rule takes."""
        status, series = self._inventory.statuses.get(rule.index), self._inventory.series(rule)
        if status is not None and status.failed:
            return [_warning(rule, "seriesQuery", f"cannot be listed: {await self._error(rule)}")]
        if not series:
            return [_warning(rule, "seriesQuery", await self._absent(rule))]
        metrics = self._metrics(rule)
        if not metrics:
            path = "name.matches" if any(map(rule.accepts, _names(series))) else "seriesFilters"
            message = f"rejects all series of seriesQuery ({wording.series(series)})"
            return [_warning(rule, path, message)]
        unfit = [each for each in metrics if not check.fits_url(each)]
        return [
            *(_warning(rule, "name", check.not_in_url(each)) for each in unfit[:1]),
            *self._unused_overrides(rule, series),
            *self._same_names(rule, metrics),
            *self._served_by_others(rule, metrics),
        ]

    async def rates(self, rule: CompiledRule) -> list[Finding]:
        """Return warnings about rates of gauges, and about counters without a rate."""
        bound = rule.mapping.bind(self._inventory.kinds)
        taken = [each.name for series in self._metrics(rule).values() for each in series]
        problems = []
        for rated in check_queries.rated(rule, bound):
            # A gauge by its name is known without Prometheus, if the file has the name.
            listed = rated == check_queries.ANY_SERIES
            for name in taken[:_MAX_RATED] if listed else [rated]:
                by_name = metric_types.is_gauge(name)
                if (by_name and listed) or (
                    not by_name and await self._has_type(rule, name, "gauge")
                ):
                    problems.append(_warning(rule, "metricsQuery", metric_types.warning(name)))
        for raw in check_queries.raw(rule, bound):
            listed = raw == check_queries.ANY_SERIES
            for name in taken[:_MAX_RATED] if listed else [raw]:
                by_name = metric_types.is_counter(name)
                typed = not by_name and await self._has_type(rule, name, "counter")
                if typed or (by_name and listed):
                    problems.append(_warning(rule, "metricsQuery", metric_types.of_raw(name)))
                    break  # one example is enough
        return problems

    async def trials(self, rule: CompiledRule) -> AsyncIterator[tuple[str, list[Finding]]]:
        """Yield a line and warnings for some metrics of the rule.

        Without series there are none: `listing` says why.
        """
        entries = self._entries.get(rule.index, []) if self._inventory.series(rule) else []
        tried: set[str] = set()
        for entry in sorted(entries, key=_preference):
            if len(tried) == _MAX_TRIALS or entry.metric in tried:
                continue
            tried.add(entry.metric)
            yield await self._try(rule, entry)

    async def _try(
        self, rule: CompiledRule, entry: Entry | ExternalEntry
    ) -> tuple[str, list[Finding]]:
        subject = wording.printable(entry.metric)
        if isinstance(entry, Entry):
            subject += f" of {entry.resource}"
        try:
            result = await _request(self._clients, entry, self._backend)
        except (errors.ApiError, errors.BackendError, RulesError) as error:
            why = error.__cause__ if isinstance(error, errors.ApiError) else None
            return "", [_warning(rule, "metricsQuery", f"fails for {subject}: {why or error}")]
        if result is None:
            message = f"no live series has the labels of {subject}: every request gets 404"
            return "", [_warning(rule, "resources", message)]
        return _line(subject, result), list(_answered(rule, subject, result))

    def _metrics(self, rule: CompiledRule) -> Mapping[str, tuple[Series, ...]]:
        return self._inventory.series_by_metric.get(rule.index, {})

    def _unused_overrides(self, rule: CompiledRule, series: Sequence[Series]) -> Iterator[Finding]:
        """Yield a warning for each resource of whose labels no series has any.

        External metrics describe no resource; only the label of their namespace matters.
        """
        bound = rule.mapping.bind(self._inventory.kinds)
        carried = frozenset[str]().union(*(each.labels for each in series))
        overrides = [each.label for each in rule.config.resources.overrides]
        for resource, labels in bound.associations(overrides).items():
            matters = rule.section == "rules" or resource == NAMESPACES
            if matters and not carried & set(labels):
                yield _warning(
                    rule,
                    f"resources.overrides.{labels[0]}",
                    f"no series has the label {wording.names(labels)}: there is no metric of "
                    f"{resource}",
                )

    def _same_names(
        self, rule: CompiledRule, metrics: Mapping[str, tuple[Series, ...]]
    ) -> Iterator[Finding]:
        for metric, series in metrics.items():
            if len(series) > 1 and check_queries.reads_series(rule):
                names = wording.names(_names(series))
                message = f"{names} all become {metric}: only the last one is served"
                yield _warning(rule, "name", message)
                return  # one example is enough

    def _served_by_others(
        self, rule: CompiledRule, metrics: Mapping[str, tuple[Series, ...]]
    ) -> Iterator[Finding]:
        served = {entry.metric for entry in self._entries.get(rule.index, ())}
        for metric in sorted(metrics.keys() - served):
            if winner := self._winners.get((rule.section, metric)):
                message = f"{metric} is served by {winner.config.where} instead"
                yield _warning(rule, "name", message)
                return  # one example is enough

    def _client(self, rule: CompiledRule) -> Prometheus:
        return self._clients[rule.config.source]

    async def _has_type(self, rule: CompiledRule, series: str, type_: str) -> bool:
        try:
            return await self._client(rule).types(series) == {type_}
        except errors.BackendError:
            return False  # not every backend has metadata

    async def _absent(self, rule: CompiledRule) -> str:
        """Return why a rule has no series, as a request for its metric says it, if that is known.

        Else name series whose names begin alike.
        """
        probes, presets = self._backend.collector.probes, self._inventory.ruleset.presets
        for cause in await probes.of_rule(rule, presets):
            return replace(cause, subject="").sentence
        message = "Prometheus has no such series: the rule takes nothing"
        if not (beginning := _BEGINNING.match(rule.pinned_series or "")):
            return message
        matcher = promql.matcher("__name__", "=~", f"{beginning[0]}.+")
        try:
            result = await self._client(rule).query(f"group by (__name__) ({{{matcher}}})")
        except errors.BackendError:
            return message
        others = sorted(each.labels["__name__"] for each in result.samples)
        near = difflib.get_close_matches(rule.pinned_series or "", others, n=1, cutoff=0.0)
        if not near:
            return message
        return (
            f"{message}. There are other series {beginning[0]}*, such as {near[0]}: check the name"
        )

    async def _error(self, rule: CompiledRule) -> str:
        try:
            selector = promql.in_expression(rule.config.series_query)
            await self._client(rule).query(f"count({selector})")
        except (errors.BackendError, RulesError) as error:
            return str(error)
        return "the listing failed, but a query by it succeeds"


def _answered(rule: CompiledRule, subject: str, result: _Trial) -> Iterator[Finding]:
    for note in result.notes:
        yield _warning(rule, "metricsQuery", f"{subject}: {note}")
    if not result.objects and result.values > 1:
        metric = subject.split(maxsplit=1)[0]
        if doubt := nature.doubt_of_sum(metric, result.query):
            total = quantity.readable(result.total, nature.unit(metric))
            yield _warning(
                rule,
                "metricsQuery",
                f"returns {result.values} values of {metric}, which an HPA without a selector adds "
                f"up to {total}, but each is {doubt.sentence}",
            )
    if not result.values:
        place = f" in namespace {result.namespace}" if result.namespace else ""
        objects = f" for {counted(result.objects, 'object')}" if result.objects else ""
        if cause := result.cause:
            own = cause.subject == str(rule.config.where)
            why = replace(cause, subject="" if own else cause.subject).sentence
            message = f"returns no value of {subject}{objects}{place}: {why}"
        elif objects:
            message = f"returns no value of {subject}{objects}{place}, although they have series"
        else:
            message = f"returns no value of {subject}{place}: its series are of other namespaces, "
            message += "or the query drops them. Try the query in Prometheus"
        yield _warning(rule, "metricsQuery", message)
    if judgement.is_share(subject.split(maxsplit=1)[0], result.highest):
        yield _warning(
            rule,
            "metricsQuery",
            f"returns at most {quantity.readable(result.highest)} of {subject}, less than 1 %. If "
            "the exporter reports 0 to 1, multiply by 100",
        )
    if result.samples > 1 and "aggregate" not in rule.config.where.nodes:
        yield _warning(
            rule,
            "metricsQuery",
            f"returns up to {result.samples} samples for one object of {subject}, whose average is "
            "used. Aggregate by (<<.GroupBy>>), or set aggregate",
        )


def _line(subject: str, result: _Trial) -> str:
    place = f" in namespace {result.namespace}" if result.namespace else ""
    values = counted(result.values, "value")
    of = f" for {counted(result.objects, 'object')}" if result.objects else ""
    if not result.objects and result.values > 1:
        unit = nature.unit(subject.split(maxsplit=1)[0])
        of = f", {quantity.readable(result.total, unit)} in all"
    return f"  {subject}{place}: {values}{of}, {result.seconds * 1000:.0f} ms"


def _preference(entry: Entry | ExternalEntry) -> tuple[int, str]:
    if isinstance(entry, ExternalEntry):
        return 0, entry.metric
    rank: list[GroupResource] = [*_PREFERRED]
    if entry.resource in rank:
        return rank.index(entry.resource), entry.metric
    return len(rank) + (entry.resource == NAMESPACES), entry.metric


def _warning(rule: CompiledRule, path: str, message: str) -> Finding:
    return rule.config.where.problem(State.WARNING, path, message)


def _names(series: Sequence[Series]) -> list[str]:
    return [each.name for each in series]


async def _request(
    clients: _Clients, entry: Entry | ExternalEntry, backend: Backend
) -> _Trial | None:
    """Request a metric in the namespace with the most series, of up to 100 of its objects.

    Return None if no series names an object. Raises BackendError if the objects cannot be queried,
    RulesError if that query cannot be rendered, and ApiError if the request fails.
    """
    source = entry.sources[0] if isinstance(entry, Entry) else entry.source
    prometheus, binding = clients[source.rule.config.source], source.bindings[0]
    namespace, names, resource = "", tuple[str, ...](), None
    if entry.namespaced:
        # Without a label for namespaces, every request fails, whatever its namespace.
        namespace = await _largest(prometheus, source, binding) or "default"
    if isinstance(entry, Entry):
        resource = entry.resource
        names = await _objects(prometheus, source, binding, namespace)
        if not names:
            return None
    started = time.perf_counter()
    steps = await local_backend.evaluate(
        backend,
        entry.metric,
        resource,
        # The path of an external metric needs a namespace.
        namespace=namespace if resource else namespace or "default",
        names=names,
    )
    seconds = time.perf_counter() - started
    values = steps.found.values
    cause = None if values else await _cause(steps)
    notes, query = await _notes(steps) if values else ((), "")
    of_object = [] if resource is None else list(values.values())
    numbers = [each.samples for each in of_object if each.samples]
    return _Trial(
        namespace=namespace,
        objects=len(names),
        values=len(values) if resource is None else len(numbers),
        samples=max(numbers, default=1),
        highest=max((each.milli for each in of_object), default=0),
        total=sum(each.value.milli for each in values) if resource is None else 0,
        query=query,
        cause=cause,
        notes=notes,
        seconds=seconds,
    )


async def _cause(steps: local_backend.Steps) -> Finding | None:
    """Return why a request has no value, as the API says it."""
    try:
        causes = (await steps.content()).causes
    except errors.ApiError as error:
        causes = error.causes
    return causes[0] if causes else None


async def _notes(steps: local_backend.Steps) -> tuple[tuple[str, ...], str]:
    """Return what is remarkable about the values of a plan, and the query of its first step."""
    found = await steps.backend.collector.probes.with_values(steps.query, timeout=_NOTES_TIMEOUT)
    return (found[0].notes, found[0].question.query) if found else ((), "")


async def _largest(prometheus: Prometheus, source: Source, binding: LabelBinding) -> str:
    """Return the namespace that most series have; empty if none has one."""
    label = binding.namespace
    if not label:
        return ""
    series = _selector(source, (label, binding.resource))
    result = await prometheus.query(f"topk(1, count by ({promql.label(label)}) ({series}))")
    return result.samples[0].labels.get(label, "") if result.samples else ""


async def _objects(
    prometheus: Prometheus, source: Source, binding: LabelBinding, namespace: str
) -> tuple[str, ...]:
    label = binding.resource
    more = [promql.matcher(binding.namespace, "=", namespace)] if binding.namespace else []
    series = _selector(source, (label,), more)
    result = await prometheus.query(f"group by ({promql.label(label)}) ({series})")
    return tuple(sorted(each.labels.get(label, "") for each in result.samples)[:_MAX_OBJECTS])


def _selector(source: Source, labels: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return the selector of the source's series that carry all `labels`."""
    matchers = [promql.matcher("__name__", "=", source.series), *more]
    matchers += [promql.matcher(label, "!=", "") for label in labels if label]
    return promql.with_matchers(source.rule.config.series_query, matchers)
