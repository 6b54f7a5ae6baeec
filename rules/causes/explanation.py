"""Explanation of one request for a metric: each step from rule to value, with its facts.

Pure. `adapter.server.api.explain` takes the steps. Every list has its length and the first
elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from rules import promql
from rules.causes import candidates, evidence, missing, samples, suggestions, wording
from rules.causes.evidence import Evidence
from rules.causes.inventory import NEVER_LISTED, Inventory
from rules.causes.questions import Question
from rules.errors import UnknownResourceError
from rules.findings import Finding
from rules.kinds import GroupResource
from rules.query import nature, scope
from rules.query.aggregate import Sample
from rules.query.catalog import Entry, ExternalEntry
from rules.quoting import counted, shorten
from rules.ruleset import CompiledRule

T = TypeVar("T")

MAX_SHOWN = 10
"""Elements of a list that are shown."""
_MAX_LABELS = 30
MAX_LABEL = 1000
"""Characters of the value of a label."""
_UNRELATED, _MAX_UNRELATED = 10, 3
"""Distance of a rule whose name has nothing to do with the metric; how many of these are shown."""
MAX_QUERY = 20_000
"""Characters of a query: fifty names of 253 characters, and what is around them."""

Outcome = Literal["values", "noValue", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Generic[T]):
    """A list of which only the beginning is shown."""

    count: int
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request."""

    metric: str
    resource: str
    """As the request spells it; empty for an external metric."""
    namespace: str
    name: str
    """`*` for all objects; empty for an external metric."""
    selector: str
    """Label selector of the objects."""
    metric_selector: str

    def __str__(self) -> str:
        namespace = f" in namespace {wording.printable(self.namespace)}" if self.namespace else ""
        if not self.resource:
            return f"external metric {wording.printable(self.metric)}{namespace}"
        objects = f"{wording.printable(self.resource)}/{wording.printable(self.name)}"
        return f"{wording.printable(self.metric)} of {objects}{namespace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """A rule, and whether it provides the metric."""

    rule: str
    """Its position: `rules[0] (rules.yaml:2)`."""
    taken: bool
    reason: str
    """Why it is taken, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """One query of the plan, and what Prometheus answered."""

    rule: str
    source: str
    """Name of the Prometheus that was queried."""
    series: str
    wanted_labels: tuple[str, ...]
    """Labels of the object and of its namespace."""
    present_labels: tuple[str, ...]
    """Labels of the series now; empty if that is unknown."""
    promql: str
    """On one line, for at most fifty of the objects."""
    samples: Shown[Sample] | None
    """Those of the objects; None if the query failed."""
    scope: str = ""
    """How far the query can be shared: cluster, namespace or alone."""
    other_samples: int = 0
    """Number of the other samples, which the caller may not see."""
    error: str = ""
    """Why the query failed, or that its response is partial."""
    series_count: int | None = None
    """Number of series of the objects, without what the query does with them."""
    newest: float | None = None
    """Age of their newest sample in seconds."""
    oldest: float | None = None
    notes: tuple[str, ...] = ()
    """What is remarkable about an answer with values."""
    evidence: tuple[tuple[str, str], ...] = ()
    """PromQL of each query that was sent, and its result in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All steps of one request."""

    asked: Asked
    rules: Shown[RuleFacts]
    objects: Shown[str] | None = None
    """Names of the objects; None for an external metric, and if they could not be listed."""
    entry: Entry | ExternalEntry | None = None
    """The metric; None if no rule produces it."""
    queries: tuple[QueryFacts, ...] = ()
    values: Shown[tuple[str, str]] = field(default_factory=lambda: first(()))
    """Object, or labels of an external metric, and value, as the API returns them."""
    causes: tuple[Finding, ...] = ()
    failure: str = ""
    """Message of an error without a cause."""

    @property
    def outcome(self) -> Outcome:
        """Whether there is a value."""
        if self.values.count:
            return "values"
        return "unknown" if self.failure and not self.causes else "noValue"

    @property
    def verdict(self) -> str:
        """What happens, in one sentence, and what to do about it."""
        if self.outcome == "unknown":
            return f"{self.asked}: {self.failure}. See /readyz?verbose and the adapter's log"
        if not self.values.count:
            cause = self.causes[0] if self.causes else None
            if cause is None:
                return f"{self.asked} has no value: it appeared or disappeared just now. Retry"
            return f"{self.asked} has no value: {cause}"
        noun = "the value" if self.values.count == 1 else "the values"
        shown = f"{noun} " + ", ".join(
            f"{value} for {wording.printable(name)}" if name else value
            for name, value in self.values.items[:3]
        )
        more = f" and {self.values.count - 3} more" if self.values.count > 3 else ""
        age = self._age()
        if self.causes:
            return f"{self.asked} has {shown}{more}{age}, but {self.causes[0]}"
        notes = [each for query in self.queries for each in query.notes]
        if notes:
            return f"{self.asked} has {shown}{more}{age}, but {notes[0]}"
        summed = ""
        if not self.asked.resource and self.values.count > 1:
            query = self.queries[0].promql if self.queries else ""
            doubt = nature.doubt_of_sum(self.asked.metric, query)
            summed = f". An HPA adds up these {self.values.count} values"
            if doubt:
                return f"{self.asked} has {shown}{more}{age}{summed}, but each is {doubt.sentence}"
        return f"{self.asked} has {shown}{more}{age}{summed}. Nothing to do"

    def _age(self) -> str:
        ages = [each.oldest for each in self.queries if each.oldest is not None]
        return f" (oldest sample: {max(ages):.0f} s)" if ages else ""


def first(items: Iterable[T], limit: int = MAX_SHOWN) -> Shown[T]:
    """Return the length of `items` and the first of them."""
    every = tuple(items)
    return Shown(count=len(every), items=every[:limit])


def facts(
    found: Evidence,
    *,
    labels: Collection[str],
    metric_selector: str,
    of_rule: Iterable[tuple[str, str]] = (),
) -> QueryFacts:
    """Return what is shown of the evidence about one step; `labels` are those of its series now.

    `metric_selector` is the selector of the series, as the request spells it. `of_rule` has the
    queries about the rule as a whole, and their results.
    """
    question, answer = found.question, found.results.get("answer")
    binding = question.step.binding
    own = _own(question, answer or ())
    sent = (*evidence.lines(found.queries, found.results), *of_rule)
    return QueryFacts(
        rule=str(question.rule.config.where),
        source=question.rule.config.source,
        series=question.step.series,
        wanted_labels=tuple(filter(None, (binding.resource, binding.namespace))),
        present_labels=tuple(sorted(labels))[:_MAX_LABELS],
        promql=shorten(promql.one_line(question.query), MAX_QUERY),
        scope=scope.sharing(question.step.source, binding).scope,
        samples=None if answer is None else first(own),
        other_samples=len(answer or ()) - len(own),
        error=found.error or _of_histograms(found),
        series_count=found.series,
        newest=found.newest,
        oldest=found.oldest,
        notes=(*samples.unused_selector(question, metric_selector), *found.notes),
        evidence=tuple(
            (shorten(promql.one_line(query), MAX_QUERY), result) for query, result in sent
        ),
    )


def _of_histograms(found: Evidence) -> str:
    """Return how many native histograms the query returned, which are not among the samples."""
    histograms = found.results.get("histograms")
    if not histograms:
        return ""
    return f"the result has {counted(int(histograms[0].value), 'native histogram')}, not numbers"


def _own(question: Question, answer: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples of the requested objects, all for an external metric.

    The caller may read no others, but a query without `<<.LabelMatchers>>` returns them, too.
    """
    if not question.names:
        return answer
    label, namespace = question.step.binding.resource, question.step.binding.namespace
    return [
        each
        for each in answer
        if each.labels.get(label) in question.names
        and each.labels.get(namespace, question.namespace) == question.namespace
    ]


def considered(
    inventory: Inventory,
    metric: str,
    resource: GroupResource | None,
    *,
    external: bool,
    entry: Entry | ExternalEntry | None,
) -> Shown[RuleFacts]:
    """Return which rules provide `metric` of `resource`, and why the others do not.

    `resource` is None if the cluster does not have it. Rules that provide the metric come first,
    then those that are closest to it; unrelated ones are shown only if there is no other.
    """
    rules = inventory.ruleset.external if external else inventory.ruleset.rules
    sources = (
        (entry.source,) if isinstance(entry, ExternalEntry) else entry.sources if entry else ()
    )
    taken = {source.rule.index for source in sources}
    names = {name for rule in rules if (name := candidates.fixed_name(rule)) is not None}
    similar = suggestions.similar_names(metric, names)
    judged = [_judge(inventory, rule, metric, resource, taken, similar) for rule in rules]
    judged.sort(key=lambda each: each[0])
    near = [facts for distance, facts in judged if distance < _UNRELATED]
    shown = near[:MAX_SHOWN] or [facts for _, facts in judged[:_MAX_UNRELATED]]
    return Shown(count=len(judged), items=tuple(shown))


def _judge(
    inventory: Inventory,
    rule: CompiledRule,
    metric: str,
    resource: GroupResource | None,
    taken: Collection[int],
    similar: Sequence[str],
) -> tuple[int, RuleFacts]:
    """Return how far a rule is from the metric, and why."""
    where = str(rule.config.where)
    if rule.index in taken:
        reason = _taking(inventory, rule, metric, resource)
        return 0, RuleFacts(rule=where, taken=True, reason=reason)
    distance, reason = _refusal(inventory, rule, metric, resource, similar, bool(taken))
    return distance, RuleFacts(rule=where, taken=False, reason=reason)


def _taking(
    inventory: Inventory, rule: CompiledRule, metric: str, resource: GroupResource | None
) -> str:
    series = inventory.series_of(rule, metric)
    if not series:
        listed = inventory.statuses.get(rule.index, NEVER_LISTED).listed is not None
        found = "of which there are none" if listed else "which no relist has listed yet"
        return f"takes it from {wording.printable(rule.pinned_series or '')}, {found}"
    if resource is None or missing.has_label(inventory, rule, series, resource):
        return f"takes it from {wording.series(series)}"
    wanted = wording.names(rule.mapping.bind(inventory.kinds).labels(resource))
    if not wanted:  # `workloads` of the rule
        return f"takes it from {wording.series(series)} of its pods"
    return f"takes it from {wording.series(series)}, whose series have no label {wanted}"


def _refusal(
    inventory: Inventory,
    rule: CompiledRule,
    metric: str,
    resource: GroupResource | None,
    similar: Sequence[str],
    overruled: bool,
) -> tuple[int, str]:
    series = inventory.series_of(rule, metric)
    if series:
        if resource is not None and not missing.has_label(inventory, rule, series, resource):
            expected = rule.mapping.bind(inventory.kinds).labels(resource)
            wanted = f"label {wording.names(expected)}" if expected else "no label is mapped to it"
            return 1, f"{wording.series(series)} does not describe {resource} ({wanted})"
        if overruled:
            return 2, "a later rule has the same metric; `merge: true` in both would combine them"
        if resource is None:
            return 1, "it has the metric, but the cluster does not have the resource"
        return 1, "it has the metric since the last relist"
    status = inventory.statuses.get(rule.index, NEVER_LISTED)
    if candidates.must_produce(rule, metric):
        if status.failed:
            return 2, "its last relist failed: the adapter's log has the error"
        if status.listed is None:
            return 2, "its first relist has not finished"
        found = inventory.series(rule)
        if not found:
            return 2, f"Prometheus has no series of {wording.code(rule.config.series_query)}"
        return 2, f"`seriesFilters` or `name.matches` reject {wording.series(found)}"
    name = candidates.fixed_name(rule)
    if name is not None:
        distance = 3 + similar.index(name) if name in similar else _UNRELATED
        return distance, f"the name does not match: it produces {wording.printable(name)}"
    rejected = [
        each
        for each in inventory.series(rule)
        if rule.namer.metric(each.name) == metric and not rule.accepts(each.name)
    ]
    if rejected:
        return 2, f"`seriesFilters` reject {wording.series(rejected)}"
    if candidates.may_produce(rule, metric):
        query = wording.code(rule.config.series_query)
        return 9, f"it names metrics after series, and no series of {query} gives this name"
    return _UNRELATED, "the name does not match: it names metrics after series in another way"


def resolve(inventory: Inventory, resource: str, group: str) -> GroupResource | None:
    """Return the resource that a request names; None if the cluster does not have it."""
    try:
        return inventory.kinds.resolve(resource, group).group_resource
    except UnknownResourceError:
        return None
