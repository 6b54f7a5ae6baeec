"""Causes of an answer without samples, and what is remarkable about one with values.

Pure: interprets the results of the queries in `questions`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rules import patterns, promql, syntax
from rules.causes import candidates, empty_results, ended, questions, wording
from rules.causes.ended import Results
from rules.causes.questions import ExaminedStep
from rules.causes.reasons import Reason
from rules.errors import PatternError
from rules.exporters import advice, generations, metric_types
from rules.findings import Finding
from rules.kinds import PODS
from rules.query.aggregate import Sample
from rules.quoting import counted, listed
from rules.syntax import Aggregation, Matcher


def unused_selector(question: ExaminedStep, metric_selector: str) -> Iterator[str]:
    """Yield a note if the rule ignores the selector of the series, as the request spells it."""
    if metric_selector and not question.rule.selects:
        yield (
            f"the selector {wording.code(metric_selector)} has no effect, because metricsQuery of "
            f"{question.where} does not use <<.LabelMatchers>>. {wording.MATCHED}"
        )


def notes(question: ExaminedStep, results: Results, now: float) -> Iterator[str]:
    """Yield what is remarkable about an answer with values; `results` are those of `of_values`."""
    where = question.where
    rated = itertools.chain.from_iterable(
        map(metric_types.rated, questions.nodes(question.query)[:1])
    )
    for gauge in dict.fromkeys(filter(metric_types.is_gauge, rated)):
        yield f"metricsQuery of {where} {metric_types.warning(gauge)}"
    if (
        "before" in results
        and not results["before"]
        and (series := questions.number(results, "here"))
    ):
        query = promql.without_default(question.query) or question.query
        why, cure = empty_results.why_empty(question, query, results, now)
        yield (
            f"the value is only that of `or vector(...)` in metricsQuery of {where}. "
            f"{wording.printable(question.step.series)} has {series} series, but {why}"
            + (f". {cure}" if cure else "")
        )
    if _adds_series(question.query) and (targets := _repeated(results.get("targets of a pod", ()))):
        yield (
            f"{targets} report the same, and metricsQuery of {where} adds them. Scrape the pod "
            "once, or aggregate by `max without (job, service, endpoint) (...)` first"
        )


def _repeated(targets: Sequence[Sample]) -> str:
    """Return the targets of the port of a pod that is scraped most often; empty if each is once."""
    ports: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for each in targets:
        pod, instance = each.labels.get("pod", ""), each.labels.get("instance", "")
        ports.setdefault((pod, instance), []).append(each.labels)
    (pod, instance), found = max(
        ports.items(), key=lambda each: len(each[1]), default=(("", ""), [])
    )
    if len(found) < 2:
        return ""
    different = next(
        (
            f" ({label} {wording.names(sorted(values))})"
            for label in ("job", "service", "endpoint", *sorted(found[0]))
            if len(values := {each.get(label, "") for each in found}) > 1
        ),
        "",
    )
    port = f"{wording.printable(pod)} at {wording.printable(instance)}"
    return f"{len(found)} targets for {port}{different}"


def _adds_series(query: str) -> bool:
    """Return whether a query adds series as they are, without removing duplicates before."""
    return any(
        each.operator in {"sum", "count"}
        and not any(True for _ in syntax.every(each.expression, Aggregation))
        for each in questions.nodes(query)
        if isinstance(each, Aggregation)
    )


def conclude(question: ExaminedStep, results: Results, now: float) -> Finding:
    """Return the most specific cause that the results prove; `now` is in Unix seconds."""
    if not {"answer", "here", "every"} <= results.keys():
        return question.where.finding(
            Reason.NO_SAMPLE,
            f"its query returned no sample{_for(question)}",
            f"Prometheus did not answer the queries for the cause: run "
            f"{wording.code(question.query)}",
        )
    return (
        _of_age(question, results, now)
        or _of_histograms(question, results)
        or _of_answer(question, results)
        or _of_query(question, results, now)
        or ended.of_native(question.rule, results)
        or _of_renamed(question, results)
        or _of_relabelled(question, results)
        or _of_time(question, results, now)
        or _of_places(question, results)
        or _of_objects(question, results)
    )


def _of_age(question: ExaminedStep, results: Results, now: float) -> Finding | None:
    """Return the cause if the query has values, but `maxSampleAge` makes them count as missing."""
    limit, label = question.rule.config.max_sample_age, question.step.binding.resource
    if limit is None or not any(
        each.labels.get(label) in question.names and math.isfinite(each.value)
        for each in results["answer"]
    ):
        return None
    newest = results.get("newest") or results.get("last")
    if newest and now - newest[0].value <= limit:
        return None
    found = wording.age(newest[0].value, now) if newest else "more than 1h"
    return question.where.finding(
        Reason.SAMPLE_TOO_OLD,
        f"the newest sample of {wording.printable(question.step.series)}{_for(question)} is "
        f"{found} old, which is beyond `maxSampleAge` ({limit:g} s)",
        "Check that the exporter is scraped, or allow older samples",
    )


def _of_histograms(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if the result of the query is native histograms, which are no numbers."""
    if results["answer"] or not (count := questions.number(results, "histograms")):
        return None
    # Without a rate, a quantile is one since the start of the process.
    inner = "..." if re.search(r"\b(rate|increase)\b", question.query) else "rate(...[5m])"
    return question.where.finding(
        Reason.NO_SAMPLE,
        f"its query returned {counted(count, 'native histogram')}{_for(question)}, and a metric is "
        "a number",
        f"Make it a number by histogram_quantile(0.95, {inner}), or by "
        f"histogram_sum({inner}) / histogram_count({inner}), in `metricsQuery`; the query was "
        f"{wording.code(question.query)}",
    )


def _of_answer(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if the query has a result, but none that gives a value."""
    label, answer = question.step.binding.resource, results["answer"]
    if answer and label and not any(each.labels.get(label) for each in answer):
        present = sorted({name for each in answer for name in each.labels})
        found = f"only {wording.labels(present)}" if present else "it has no labels"
        return question.where.finding(
            Reason.LABEL_DROPPED,
            f"the result of its query has no label {label} ({found})",
            "Aggregate by (<<.GroupBy>>) in `metricsQuery`; the query was "
            f"{wording.code(question.query)}",
        )
    values = sorted({NOT_FINITE[str(x.value)] for x in answer if not math.isfinite(x.value)})
    if values and (of_series := _of_not_finite(question, results)):
        return of_series
    if values:
        no_values = f"{values[0]} is not a value" if len(values) == 1 else "these are not values"
        return question.where.finding(
            Reason.NOT_FINITE,
            f"its query returned {' and '.join(values)}{_for(question)}, and {no_values}",
            "Correct the query (does it divide by 0?), or set `onNaN: zero` in the rule",
        )
    if not answer:
        return None
    others = sorted({each.labels.get(label, "") for each in answer} - {*question.names, ""})
    if label and others:
        if near := _near(question, others):
            return near
        if not questions.number(results, "here"):
            return None  # the query has the others only because there is no more
        return question.where.finding(
            Reason.NO_SAMPLE,
            f"the label {label} of the result of its query is {wording.names(others)}, and none is"
            f"{_for(question)}",
            "Select by <<.LabelMatchers>> in `metricsQuery`; the query was "
            f"{wording.code(question.query)}",
        )
    fact = "its query had no result, and has one now"
    return question.where.finding(Reason.NO_SAMPLE, fact, "Retry")


_DEVICES = {
    "tpu": "TPU",
    "npu": "NPU",
    "neuron": "Neuron core",
    "habanalabs": "Gaudi card",
    "mlu": "MLU",
    "gcu": "GCU",
}
"""Part of the name of a series -> what it is of, unless that is a GPU."""
NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
"""Numbers that are no values, as Python and as Prometheus write them."""


def _near(question: ExaminedStep, values: Sequence[str]) -> Finding | None:
    """Return the cause if one of the values of a label has the name of an object among others."""
    label = question.step.binding.resource
    for name in question.names:
        pattern = re.compile(rf"(?<![a-z0-9-]){re.escape(name)}(?![a-z0-9-])", re.IGNORECASE)
        for value in values:
            if value not in question.names and pattern.search(value):
                return question.where.finding(
                    Reason.LABEL_DIFFERS,
                    f"the label {label} is {wording.printable(value)}, which is not exactly the "
                    f"name {wording.printable(name)}",
                    "Write the name alone to the label, by relabelling in the scrape config",
                )
    return None


def _of_query(question: ExaminedStep, results: Results, now: float) -> Finding | None:
    """Return the cause if the series exist, but the query has no result."""
    if not (count := questions.number(results, "here")):
        return None
    if of_series := _of_not_finite(question, results):
        return of_series
    why, cure = empty_results.why_empty(question, question.query, results, now)
    return question.where.finding(
        Reason.NO_SAMPLE,
        f"{wording.printable(question.step.series)} has {count} series{_for(question)}, but {why}",
        ". ".join(filter(None, (cure, f"The query was {wording.code(question.query)}"))),
    )


def _of_not_finite(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if the series themselves are no numbers, whatever the query does."""
    count = questions.number(results, "here")
    if not count or questions.number(results, "not finite") != count:
        return None
    return question.where.finding(
        Reason.NOT_FINITE,
        f"{wording.printable(question.step.series)}{_for(question)} is NaN or Inf in Prometheus "
        f"({count} series), which is not a value",
        "Look at what the exporter reports in its /metrics. If it means idle, set `onNaN: zero` in "
        "the rule",
    )


def _of_renamed(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if the scrape renames the label of the requested namespace now."""
    renamed = questions.renamed_label(question.step.binding.namespace)
    own = [
        each
        for each in results.get("elsewhere", ())
        if each.labels.get(renamed) == question.namespace
    ]
    if not own:
        return None
    return question.where.finding(Reason.OTHER_NAMESPACE, *_elsewhere(question, own))


def _of_relabelled(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if another label has the names of the objects now."""
    expected = question.step.binding.resource
    renamed = sorted(
        {
            label
            for each in results.get("present", ())
            for label, value in each.labels.items()
            if value in question.names
            and (label == questions.renamed_label(expected) or not each.labels.get(expected))
        }
    )
    if not renamed:
        return None
    label = renamed[0]
    if label == questions.renamed_label(expected):
        own = "the exporter's own pod" if _is_of_gpus(question) else "that of the scrape target"
        reason = Reason.EXPORTER_ONLY if _is_of_gpus(question) else Reason.LABELS_MISSING
        return question.where.finding(
            reason,
            f"the label {expected} of {wording.printable(question.step.series)} is {own}, and "
            f"{label} names the requested objects",
            f"Map {_with_namespace(question, results, label)} in `resources` of the rule, or "
            "scrape with `honorLabels: true`",
            lasting=True,
        )
    return question.where.finding(
        Reason.LABELS_MISSING,
        f"{wording.printable(question.step.series)} names the objects in the label {label} now; "
        f"these series have no label {expected}",
        f"Map {label} in `resources` of the rule, or rename it in the exporter or scrape config",
        lasting=True,
    )


def _with_namespace(question: ExaminedStep, results: Results, label: str) -> str:
    """Return a renamed label, with that of the namespace if the scrape renamed both."""
    namespace = questions.renamed_label(question.step.binding.namespace)
    both = any(
        each.labels.get(label) in question.names
        and each.labels.get(namespace) == question.namespace != ""
        for each in results.get("present", ())
    )
    return f"{label} and {namespace}" if both else label


def _of_places(question: ExaminedStep, results: Results) -> Finding | None:
    """Return the cause if there are series in other namespaces, or of the exporter only."""
    series = wording.printable(question.step.series)
    binding = question.step.binding
    if elsewhere := results.get("elsewhere"):
        return question.where.finding(Reason.OTHER_NAMESPACE, *_elsewhere(question, elsewhere))
    own_only = questions.number(results, "named") and not questions.number(results, "foreign")
    if not own_only or "foreign" not in results or not _is_of_gpus(question):
        return None
    if mapped := questions.number(results, "mapped"):
        fact = _none_is_for(question, mapped, questions.renamed_label(binding.resource))
        cause, cure = _unscraped(question, results)
        return question.where.finding(Reason.NOT_SCRAPED, fact, cure, cause=cause)
    return question.where.finding(
        Reason.EXPORTER_ONLY,
        f"the label {binding.resource} of {series} has only the exporter's own pods",
        f"If a pod uses a GPU now, let the exporter report it{_mapping(question)}",
    )


def _is_of_gpus(question: ExaminedStep) -> bool:
    return generations.is_of_gpus(question.step.series)


def _elsewhere(question: ExaminedStep, found: Sequence[Sample]) -> tuple[str, str]:
    """Return fact and cure for series of the objects in other namespaces than the requested one."""
    label = question.step.binding.namespace
    renamed = questions.renamed_label(label)
    # The exporter reports the requested namespace, and the scrape renamed its label.
    own = [each for each in found if each.labels.get(renamed) == question.namespace]
    places = wording.names(sorted({each.labels.get(label, "") for each in own or found}))
    none = (
        f"{wording.printable(question.step.series)} has no series "
        f"{_for(question).strip() or f'for namespace {wording.printable(question.namespace)}'}, "
        f"but has some whose label {label} is {places}"
    )
    if own:
        fact = f"{none} and whose label {renamed} is {wording.printable(question.namespace)}"
        cure = f"Map {renamed} to namespace in `resources` of the rule"
        return fact, f"{cure}, or scrape with `honorLabels: true`"
    return none, (
        "If that is the right namespace, request the metric there. If it is the exporter's, "
        "scrape with `honorLabels: true`, or map the label that has the workload's namespace"
    )


def _of_time(question: ExaminedStep, results: Results, now: float) -> Finding | None:
    """Return the cause if there were series in the last hour."""
    subject = f"{wording.printable(question.step.series)}{_for(question)}"
    found = ended.find(question.rule, question.step.series, subject, results, now)
    others = results.get("elsewhere", ())
    if not found or found.reason != Reason.SERIES_ENDED or not others:
        return found
    # Often of other pods: those of a StatefulSet have the same names in each namespace.
    label = question.step.binding.namespace
    places = wording.names(sorted({each.labels.get(label, "") for each in others}))
    renamed = any(questions.renamed_label(label) in each.labels for each in others)
    honor = " (`honorLabels: true`)" if renamed else ""
    return question.where.finding(
        Reason.NAMESPACE_CHANGED,
        f"{subject} ended, and objects of the same name have series with {label}={places}",
        f"If these are the same objects, correct the namespace label in the scrape config{honor}. "
        "Otherwise the series of the requested ones have ended",
        lasting=True,
    )


def _of_objects(question: ExaminedStep, results: Results) -> Finding:
    """Return the cause if there were no series of the objects in the last hour."""
    series, every = wording.printable(question.step.series), questions.number(results, "every")
    label, named = question.step.binding.resource, questions.number(results, "named")
    if not every:
        if nothing := ended.of_nothing(question.rule, results):
            return nothing
        return question.where.finding(
            Reason.NO_SERIES,
            f"Prometheus has no series of {series} now",
            "Check that the exporter is scraped",
        )
    if not question.subject:
        place = f" with {question.step.binding.namespace}={question.namespace}"
        sentence = f"Prometheus has {every} series of {series}, but none{place}"
        return question.where.finding(Reason.NO_SAMPLE, sentence)
    if excluded := results.get("excluded"):
        these = "this is the right one" if len(excluded) == 1 else "these are the right ones"
        return question.where.finding(
            Reason.NO_SAMPLE,
            f"{series} has {len(excluded)} series{_for(question)}, but not with the matchers of "
            f"{wording.code(question.rule.config.series_query)}{_differing(question, excluded)}",
            f"If {these}, write a rule that selects such series",
        )
    values = sorted({each.labels.get(label, "") for each in results.get("present", ())})
    if near := _near(question, values):
        return near
    if named:
        fact = _none_is_for(question, named, label)
        cause, cure = _unscraped(question, results)
    else:
        fact = f"none of the {every} series of {series} has the label {label} now"
        cause, cure = "", "map the label that names the objects in `resources` of the rule"
        if _is_of_gpus(question):
            cause, cure = "no GPU is in use, or the exporter does not report the pods of GPUs", ""
    return question.where.finding(Reason.NOT_SCRAPED, fact, cure, cause=cause)


def _differing(question: ExaminedStep, found: Sequence[Sample]) -> str:
    """Return the labels by which the matchers of a rule exclude series."""
    labels = sorted(
        {
            f"{matcher.label}={value}" if value else f"no label {matcher.label}"
            for each in found
            for matcher in question.rule.matchers
            if _excludes(matcher, value := each.labels.get(matcher.label, ""))
        }
    )
    have = "it has" if len(found) == 1 else "they have"
    return f": {have} {wording.names(labels)}" if labels else ""


def _excludes(matcher: Matcher, value: str) -> bool:
    if matcher.operator in {"=", "!="}:
        return (value == matcher.value) != (matcher.operator == "=")
    budget = patterns.PatternBudget(candidates.MAX_MEMORY)
    try:
        return not candidates.matches_pattern(matcher, value, budget)
    except PatternError:
        return False


def _none_is_for(question: ExaminedStep, count: int, label: str) -> str:
    series, verb = wording.printable(question.step.series), "has" if count == 1 else "have"
    return (
        f"{count} series of {series} {verb} the label {label}, and none is for {question.subject}"
    )


def _unscraped(question: ExaminedStep, results: Results) -> tuple[str, str]:
    """Return what is probably wrong if series exist, but none of the objects; and a cure."""
    if question.step.series in generations.SERVER_SERIES and question.resource == PODS:
        return _target_of(question, results)
    if not _is_of_gpus(question):
        return _others(question, results)
    if question.resource != PODS:
        return "the exporter does not report them, or is not scraped", _how_to_scrape(question)
    device = _device(question)
    several = len(question.names) > 1
    causes = [
        f"the pods use no {device}" if several else f"the pod uses no {device}",
        "the exporters on their nodes are not scraped"
        if several
        else "the exporter on its node is not scraped",
    ]
    every = questions.number(results, "every")
    # Another label may name the pods, beside that of the exporter's own.
    mapped = max(questions.number(results, "foreign"), questions.number(results, "mapped"))
    if unmapped := every - mapped if "foreign" in results else 0:
        names = "names" if unmapped == 1 else "name"
        causes.append(
            f"an exporter does not report the pod of each {device}: {unmapped} of {every} series "
            f"{names} no pod but the exporter's own{_mapping(question, some=mapped > 0)}"
        )
    every_cause = (
        f"{', '.join(causes[:-1])}, or {causes[-1]}" if causes[2:] else ", or ".join(causes)
    )
    return every_cause, _how_to_scrape(question)


def _how_to_scrape(question: ExaminedStep) -> str:
    """Return which command prints how to scrape the exporter; empty if it is not known."""
    preset = question.rule.preset or generations.preset_of(question.step.series)
    return (
        f"{advice.scrape_command(preset)} prints what makes Prometheus scrape it" if preset else ""
    )


def _target_of(question: ExaminedStep, results: Results, which: str = "") -> tuple[str, str]:
    """Return what is wrong with the scrape of pods without series, and a cure.

    `which` says of what pods, if they are not named.
    """
    several = len(question.names) > 1
    who, are, them = ("they", "are", "them") if several else ("it", "is", "it")
    if which:
        who = f"{which} {'pods' if several else 'pod'}"
    targets = results.get("target")
    if not targets:
        cure = (
            f"Check that a ServiceMonitor, PodMonitor or scrape config selects {them}, and look "
            f"for {them} on /targets in Prometheus"
        )
        if command := _how_to_scrape(question):
            cure = f"{command}; look for {them} on its /targets page"
        return f"{who} {are} not scraped", cure
    if not targets[0].value:
        cure = "Look at the error on /targets in Prometheus"
        return f"{who} {are} down for Prometheus (up = 0)", cure
    cure = "Compare /metrics of the pod with `seriesQuery`: is it another server, or another port?"
    return f"{who} {are} scraped (up = 1) without this series", cure


def _device(question: ExaminedStep) -> str:
    """Return what the series are of."""
    selected = question.rule.config.series_query.lower()
    return next((name for part, name in _DEVICES.items() if part in selected), "GPU")


def _mapping(question: ExaminedStep, *, some: bool = False) -> str:
    """Return how an exporter reports the pods of GPUs; empty if that is not known.

    `some` says that it reports those of some GPUs.
    """
    if not question.step.series.startswith("DCGM_"):
        return ""
    claims = f"resource claims need {advice.FOR_CLAIMS}"
    return f" ({claims})" if some else f" (set DCGM_EXPORTER_KUBERNETES=true; {claims})"


def _others(question: ExaminedStep, results: Results) -> tuple[str, str]:
    """Return whose series there are, and what to do about it."""
    label, namespace = question.step.binding.resource, question.step.binding.namespace
    found = sorted(
        {
            (each.labels.get(label, ""), each.labels.get(namespace, ""))
            for each in results.get("present", ())
        }
        - {("", "")}
    )
    named = [
        wording.printable(name) + (f" in namespace {wording.printable(place)}" if place else "")
        for name, place in found
    ]
    whose = f"the series are of {listed(named)}" if named else ""
    if question.resource != PODS:
        return whose, "Check what is scraped, and the labels in `resources` of the rule"
    if any(
        _are_siblings(name, other) and place in {"", question.namespace}
        for name in question.names
        for other, place in found
    ):
        cause, cure = _target_of(question, results, "The requested")
        return f"{whose}. {cause}", cure
    served = sorted(
        {
            each
            for sample in results.get("present", ())
            for each in sample.labels
            if each.startswith(questions.EXPORTED)
            and each not in {questions.renamed_label(label), questions.renamed_label(namespace)}
        }
    )
    place = next(
        (
            x
            for each in results.get("present", ())
            for x in (questions.renamed_label(namespace), namespace)
            if each.labels.get(x) == question.namespace
        ),
        "the label of its namespace",
    )
    mapped = wording.names([*(served or ["the label that names the served object"]), place])
    instead = (
        f"`type: Object` (map {mapped} in `resources` of the rule), or of `type: External` (by a "
        "rule in `externalRules`, with `namespaced: false` for series of another namespace)"
    )
    count = "this pod counts" if len(found) == 1 else "these pods count"
    not_scraped = ". ".join(_target_of(question, results, "the requested"))
    return whose, (
        f"If {count} the requests of others, as an Ingress does, use a metric of {instead}. If "
        f"not, {not_scraped}"
    )


def _are_siblings(one: str, other: str) -> bool:
    """Return whether the names are those of two pods of one workload, as far as names say it."""
    return one != other and one.rpartition("-")[0] == other.rpartition("-")[0] != ""


def _for(question: ExaminedStep) -> str:
    return f" for {question.subject}" if question.subject else ""
