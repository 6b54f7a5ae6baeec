"""Explanation of one request for a metric: each step from rule to value, with its facts.

Pure. `adapter.server.api.explain` takes the steps, and `explanation_text` renders the document.
Every list has its length and the first elements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from rules import promql
from rules.causes import candidates, evidence, missing, samples, suggestions, wording
from rules.causes.candidates import Inventory
from rules.causes.evidence import Evidence
from rules.causes.explanation_text import KIND, Document, readable
from rules.causes.questions import ExaminedStep
from rules.findings import Finding
from rules.kinds import GroupResource
from rules.query import delay, entry_document, nature, scope
from rules.query.aggregate import Sample
from rules.query.catalog import Entry, ExternalEntry
from rules.quoting import counted, listed, shorten
from rules.ruleset import CompiledRule

T = TypeVar("T")

API_VERSION = "explain.gpu-metrics-adapter/v1"
_MAX_SHOWN = 10
"""Elements of a list that are shown."""
_MAX_LABELS = 30
MAX_LABEL = 1000
"""Characters of the value of a label."""
_UNRELATED, _MAX_UNRELATED = 10, 3
"""Distance of a rule whose name has nothing to do with the metric; how many of these are shown."""
_MAX_QUERY = 20_000
"""Characters of a query: fifty names of 253 characters, and what is around them."""


def document(
    request: Document,
    *,
    rules: Document,
    objects: Document | None,
    entry: Entry | ExternalEntry | None,
    queries: Sequence[Document],
    values: Document,
    causes: Sequence[Finding],
    failure: str = "",
    ahead: Document | None = None,
) -> Document:
    """Return the document of all steps of a request.

    `objects` is None for an external metric, and if the objects could not be listed. `entry` is
    None if no rule produces the metric. `queries` are those of `query`, `values` those of
    `shown_values`. `failure` is the message of an error without a cause.
    `ahead` says whether a forecast is served; None if the rule has no `ahead`.
    """
    outcome = "noValue"
    if values["count"]:
        outcome = "values"
        verdict = _verdict_on_values(request, queries, values, causes, ahead)
    elif causes:
        verdict = f" has no value: {causes[0]}"
    elif failure:
        outcome = "unknown"
        verdict = f": {failure}. See /readyz?verbose and the adapter's log"
    else:
        verdict = " has no value: it appeared or disappeared just now. Retry"
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "request": request,
        "rules": rules,
        "objects": objects,
        "plan": None if entry is None else entry_document.document(entry),
        "queries": list(queries),
        "values": values,
        "ahead": ahead,
        "causes": [{"reason": each.reason, "message": each.sentence} for each in causes],
        "outcome": outcome,
        "verdict": _subject(request) + verdict,
    }


def _subject(request: Document) -> str:
    namespace = request["namespace"]
    place = f" in namespace {wording.printable(namespace)}" if namespace else ""
    metric = wording.printable(request["metric"])
    if not request["resource"]:
        return f"external metric {metric}{place}"
    objects = f"{wording.printable(request['resource'])}/{wording.printable(request['name'])}"
    return f"{metric} of {objects}{place}"


def _verdict_on_values(
    request: Document,
    queries: Sequence[Document],
    values: Document,
    causes: Sequence[Finding],
    ahead: Document | None,
) -> str:
    """Return what the values are, and what to do about them, as the predicate of a sentence."""
    count = values["count"]
    first = listed(
        (
            f"{value} for {wording.printable(each['object'])}" if each["object"] else value
            for each in values["items"]
            for value in [readable(request["metric"], each["value"])]
        ),
        count=count,
    )
    ages = [each["oldestSampleSeconds"] for each in queries]
    oldest = max((each for each in ages if each is not None), default=None)
    age = "" if oldest is None else f" (oldest sample: {oldest:.0f} s)"
    kind = "forecast value" if ahead and ahead["served"] else "value"
    has = f" has the {kind}{'s' * (count > 1)} {first}{age}"
    for remark in (*causes[:1], *(note for each in queries for note in each["notes"])):
        return f"{has}, but {remark}"
    if not request["resource"] and count > 1:
        has += f". An HPA adds up these {count} values"
        query = queries[0]["promql"] if queries else ""
        if doubt := nature.doubt_of_sum(request["metric"], query):
            return f"{has}, but each is {doubt.sentence}"
    return f"{has}. Nothing to do"


def shown(items: Iterable[T], convert: Callable[[T], Any] = str) -> Document:
    """Return the length of `items`, and the first of them as the document has them."""
    every = tuple(items)
    return {"count": len(every), "items": [convert(each) for each in every[:_MAX_SHOWN]]}


def shown_values(values: Iterable[tuple[str, str]]) -> Document:
    """Return the values: each has its object, or the labels of an external metric."""
    return shown(values, lambda each: {"object": each[0], "value": each[1]})


def sample(found: Sample) -> Document:
    """Return a sample. Numbers that JSON does not have are text."""
    labels = {name: shorten(each, MAX_LABEL) for name, each in found.labels.items()}
    value = samples.NOT_FINITE.get(str(found.value), found.value)
    return {"labels": labels, "value": value}


def query(
    found: Evidence,
    *,
    labels: Collection[str],
    metric_selector: str,
    freshness: float,
    of_rule: Iterable[tuple[str, str]] = (),
) -> Document:
    """Return what is shown of the evidence about one step; `labels` are those of its series now.

    `metric_selector` is the selector of the series, as the request spells it. `freshness` are the
    seconds for which one result answers requests. `of_rule` has the queries about the rule as a
    whole, and their results.
    """
    question, answer = found.question, found.results.get("answer")
    binding = question.step.binding
    slowest = delay.of_query(question.query)
    own = _own(question, answer or ())
    sent = (*evidence.lines(found.queries, found.results), *of_rule)
    return {
        "rule": str(question.rule.config.where),
        "source": question.rule.config.source,
        "series": question.step.series,
        "wantedLabels": [each for each in (binding.resource, binding.namespace) if each],
        "presentLabels": sorted(labels)[:_MAX_LABELS],
        "promql": _one_line(question.query),
        "delaySeconds": slowest.seconds,
        "delayedBy": slowest.function,
        "freshnessSeconds": freshness,
        "scope": scope.sharing(question.step).scope,
        "samples": None if answer is None else shown(own, sample),
        "otherSamples": len(answer or ()) - len(own),
        "error": found.error or _of_histograms(found),
        "seriesCount": found.series,
        "newestSampleSeconds": found.newest,
        "oldestSampleSeconds": found.oldest,
        "intervalSeconds": found.interval,
        "firstSamples": None if (first := found.first_samples) is None else first._asdict(),
        "notes": [*samples.unused_selector(question, metric_selector), *found.notes],
        "evidence": [{"promql": _one_line(text), "result": result} for text, result in sent],
    }


def _one_line(text: str) -> str:
    return shorten(promql.one_line(text), _MAX_QUERY)


def _of_histograms(found: Evidence) -> str:
    """Return how many native histograms the query returned, which are not among the samples."""
    histograms = found.results.get("histograms")
    if not histograms:
        return ""
    return f"the result has {counted(int(histograms[0].value), 'native histogram')}, not numbers"


def _own(question: ExaminedStep, answer: Sequence[Sample]) -> Sequence[Sample]:
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
) -> Document:
    """Return which rules provide `metric` of `resource`, and why the others do not.

    `resource` is None if the cluster does not have it. Rules that provide the metric come first,
    then those that are closest to it; unrelated ones are shown only if there is no other.
    """
    rules = inventory.ruleset.external if external else inventory.ruleset.rules
    if isinstance(entry, ExternalEntry):
        metric = entry.metric  # the request may have it in another case
    sources = (
        (entry.source,) if isinstance(entry, ExternalEntry) else entry.sources if entry else ()
    )
    taken = {source.rule.index for source in sources}
    names = {name for rule in rules if (name := candidates.fixed_name(rule)) is not None}
    similar = suggestions.similar_names(metric, names)
    judged: list[tuple[int, Document]] = []
    for rule in rules:
        if is_taken := rule.index in taken:
            distance, reason = 0, _taking(inventory, rule, metric, resource)
        else:
            distance, reason = _refusal(inventory, rule, metric, resource, similar, bool(taken))
        facts = {"rule": str(rule.config.where), "taken": is_taken, "reason": reason}
        judged.append((distance, facts))
    judged.sort(key=lambda each: each[0])
    near = [facts for distance, facts in judged if distance < _UNRELATED]
    items = near[:_MAX_SHOWN] or [facts for _, facts in judged[:_MAX_UNRELATED]]
    return {"count": len(judged), "items": items}


def _taking(
    inventory: Inventory, rule: CompiledRule, metric: str, resource: GroupResource | None
) -> str:
    series = inventory.series_of(rule, metric)
    if not series:
        listed = inventory.status(rule).listed is not None
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
    status = inventory.status(rule)
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
