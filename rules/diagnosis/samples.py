"""Causes of an answer without samples, from a few more queries: what series and targets there are.

Pure: returns queries, and interprets their results. `adapter.api.missing` sends them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rules import promql
from rules.diagnosis import wording
from rules.diagnosis.missing import Cause, Reason
from rules.query.aggregate import Sample
from rules.query.catalog import Step
from rules.query.plan import ExternalPlan, Plan, escape
from rules.ruleset import CompiledRule

MAX_STEPS = 3
"""Steps of a plan that are diagnosed; the others have the same causes."""
_MAX_NAMES = 50
_WINDOW = "1h"
"""How long ago a series that ended is still found."""

Results = Mapping[str, Sequence[Sample]]
"""Key of a query -> its result; a query that failed is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One step of a plan that gave no value."""

    step: Step
    query: str
    """The query of the step, rendered."""
    subject: str
    """`pods a, b in namespace default`; empty for an external metric."""
    namespace: str
    names: tuple[str, ...]

    @property
    def rule(self) -> CompiledRule:
        """The rule of the step."""
        return self.step.rule


def questions(plan: Plan | ExternalPlan) -> tuple[Question, ...]:
    """Return the steps to diagnose, for at most 50 objects. Raises PlanError."""
    if isinstance(plan, ExternalPlan):
        namespace = plan.namespace if plan.namespaced else ""
        step = plan.step
        return (
            Question(step=step, query=plan.promql(), subject="", namespace=namespace, names=()),
        )
    some = replace(plan, names=plan.names[:_MAX_NAMES], steps=plan.steps[:MAX_STEPS])
    return tuple(
        Question(
            step=step,
            query=query,
            subject=wording.objects(plan),
            namespace=plan.namespace,
            names=some.names,
        )
        for step, query in zip(some.steps, some.promql(), strict=True)
    )


def queries(question: Question) -> Mapping[str, str]:
    """Return the first queries, by key. Raises PlanError for a selector that cannot be narrowed."""
    label, namespace = question.step.binding.resource, question.step.binding.namespace
    every, own = _selector(question), _selector(question, names=True, namespace=True)
    asked = {
        "answer": question.query,
        "here": f"count({own})",
        "not finite": f"count({own} != {own} or abs({own}) == Inf)",
        "every": f"count({every})",
        "last": f"max(max_over_time(timestamp({own})[{_WINDOW}:1m]))",
    }
    if question.rule.config.max_sample_age is not None:
        asked["newest"] = f"max(timestamp({own}))"
    if label:
        named = promql.with_matchers(every, (promql.matcher(label, "!=", ""),))
        same = f"on (job, instance, {promql.label(label)})"
        asked["named"] = f"count({named})"
        asked["foreign"] = f"count({named} unless {same} up)"
    if namespace and question.namespace:
        elsewhere = promql.with_matchers(
            _selector(question, names=True),
            (
                promql.matcher(namespace, "!=", question.namespace),
                promql.matcher(namespace, "!=", ""),
            ),
        )
        asked["elsewhere"] = f"topk(5, count by ({promql.label(namespace)}) ({elsewhere}))"
    return asked


def ages(question: Question) -> Mapping[str, str]:
    """Return queries for the number of series of the objects, and the ages of their last samples.

    Keys are `series`, `newest` and `oldest`; ages are in seconds. Raises PlanError as `queries`.
    """
    own = _selector(question, names=True, namespace=True)
    age = f"time() - timestamp({own})"
    return {"series": f"count({own})", "newest": f"min({age})", "oldest": f"max({age})"}


def further(question: Question, results: Results) -> Mapping[str, str]:
    """Return the queries about the targets of series that ended; empty if none did."""
    if _number(results, "here") or not {"here", "every", "last"} <= results.keys():
        return {}
    if results["last"]:
        return _targets(_selector(question, names=True, namespace=True))
    return {} if results["every"] else gone(_selector(question))


def gone(selector: str) -> Mapping[str, str]:
    """Return the queries about series of `selector` that ended in the last hour."""
    last = f"max(max_over_time(timestamp({selector})[{_WINDOW}:5m]))"
    return {"last": last, **_targets(selector)}


def conclude(question: Question, results: Results, now: float) -> Cause:
    """Return the most specific cause that the results prove; `now` is in Unix seconds."""
    if not {"answer", "here", "every"} <= results.keys():
        return _cause(
            question,
            Reason.NO_SAMPLE,
            f"returned no sample{_for(question)}. Prometheus did not answer the queries for the "
            f"cause: run {wording.code(question.query)}",
        )
    return (
        _of_age(question, results, now)
        or _of_answer(question, results["answer"])
        or _of_query(question, results)
        or _of_time(question, results, now)
        or _of_places(question, results)
        or _of_objects(question, results)
    )


def of_gone(rule: CompiledRule, results: Results, now: float) -> Cause | None:
    """Return why a rule has no series although it had some; None if it had none in the last hour.

    `results` are those of `gone`.
    """
    if not (ended := _ended(wording.code(rule.config.series_query), results, now)):
        return None
    reason, sentence = ended
    return Cause(reason=reason, rule=rule.index, sentence=f"{rule.config.where}: {sentence}")


def _of_age(question: Question, results: Results, now: float) -> Cause | None:
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
    found = f"is of {wording.age(newest[0].value, now)}" if newest else "is more than 1 h old"
    return _cause(
        question,
        Reason.SAMPLE_TOO_OLD,
        f"the newest sample of {wording.printable(question.step.series)}{_for(question)} {found}, "
        f"which is beyond `maxSampleAge` ({limit:g} s). Check that the exporter is scraped, or "
        "allow older samples",
    )


def _of_answer(question: Question, answer: Sequence[Sample]) -> Cause | None:
    """Return the cause if the query has a result, but none that gives a value."""
    label = question.step.binding.resource
    if answer and label and not any(each.labels.get(label) for each in answer):
        present = wording.names(sorted({name for each in answer for name in each.labels}))
        return _cause(
            question,
            Reason.LABEL_DROPPED,
            f"the result of its query has no label {label} (found: {present or 'none'}). Aggregate "
            f"by (<<.GroupBy>>): {wording.code(question.query)}",
        )
    values = {str(each.value) for each in answer if not math.isfinite(each.value)}
    if values:
        return _cause(
            question,
            Reason.NOT_FINITE,
            f"returned {' and '.join(sorted(NOT_FINITE[value] for value in values))}"
            f"{_for(question)}, which is no value. Correct the query (does it divide by 0?), or "
            "set `onNaN: zero`",
        )
    if not answer:
        return None
    others = sorted({each.labels.get(label, "") for each in answer} - {*question.names, ""})
    if label and others:
        sentence = (
            f"the label {label} of the result of its query is {wording.names(others)}, which is "
            f"not requested. Select by <<.LabelMatchers>>: {wording.code(question.query)}"
        )
    else:
        sentence = "had no value, and has one now. Retry"
    return _cause(question, Reason.NO_SAMPLE, sentence)


NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
"""Numbers that are no values, as Python and as Prometheus write them."""


def _of_query(question: Question, results: Results) -> Cause | None:
    """Return the cause if the series exist, but the query has no result."""
    if not (count := _number(results, "here")):
        return None
    series = wording.printable(question.step.series)
    if _number(results, "not finite") == count:
        return _cause(
            question,
            Reason.NOT_FINITE,
            f"{series}{_for(question)} is NaN or Inf in Prometheus ({count} series), which is no "
            "value. Look at what the exporter reports in its /metrics",
        )
    return _cause(
        question,
        Reason.NO_SAMPLE,
        f"{series} has {count} series{_for(question)}, but the query has no result. Check its "
        "range (`rate` needs two samples), its comparisons, its other matchers and the metric "
        f"selector: {wording.code(question.query)}",
    )


def _of_places(question: Question, results: Results) -> Cause | None:
    """Return the cause if there are series in other namespaces, or of the exporter only."""
    series = wording.printable(question.step.series)
    binding = question.step.binding
    found = [each.labels.get(binding.namespace, "") for each in results.get("elsewhere", ())]
    if found:
        return _cause(
            question,
            Reason.OTHER_NAMESPACE,
            f"{series} has no series{_for(question)}, but some where the label "
            f"{binding.namespace} is {wording.names(sorted(found))}. Is that the exporter's "
            "namespace, or is the request for the wrong one?",
        )
    if _number(results, "named") and "foreign" in results and not _number(results, "foreign"):
        return _cause(
            question,
            Reason.EXPORTER_ONLY,
            f"the label {binding.resource} of {series} names the exporter's own pods only. If a "
            "pod uses a GPU now, enable the mapping to pods in the exporter (dcgm-exporter: "
            "DCGM_EXPORTER_KUBERNETES=true), or map the label of the workload, such as "
            "exported_pod",
        )
    return None


def _of_time(question: Question, results: Results, now: float) -> Cause | None:
    """Return the cause if there were series in the last hour."""
    subject = f"{wording.printable(question.step.series)}{_for(question)}"
    ended = _ended(subject, results, now)
    return ended and _cause(question, *ended)


def _of_objects(question: Question, results: Results) -> Cause:
    """Return the cause if there were no series of the objects in the last hour."""
    series, every = wording.printable(question.step.series), _number(results, "every")
    if not every:
        sentence = f"Prometheus has no series of {series} now. Check that the exporter is scraped"
        return _cause(question, Reason.NO_SERIES, sentence)
    if not question.subject:
        place = f" with {question.step.binding.namespace}={question.namespace}"
        sentence = f"Prometheus has {every} series of {series}, but none{place}"
        return _cause(question, Reason.NO_SAMPLE, sentence)
    label, named = question.step.binding.resource, _number(results, "named")
    if not named:
        sentence = (
            f"none of the {every} series of {series} has the label {label} now: no GPU is in use, "
            "or the exporter does not map GPUs to pods"
        )
    else:
        sentence = (
            f"{named} series of {series} have the label {label}, and none is of "
            f"{question.subject}: they use no GPU, or the exporter on their node is not scraped"
        )
    return _cause(question, Reason.NOT_SCRAPED, sentence)


def _ended(subject: str, results: Results, now: float) -> tuple[Reason, str] | None:
    """Return reason and sentence for series whose last sample is older than the lookback."""
    if not results.get("last"):
        return None
    last = results["last"][0].value
    age = wording.age(last, now)
    targets = {_target(each): each for each in results.get("targets", ()) if _target(each)}
    states = {_target(each): each.value for each in results.get("up", ())}
    down = sorted(target for target in targets if states.get(target) == 0)
    unknown = sorted(target for target in targets if target not in states)
    if down:
        return Reason.TARGET_GONE, (
            f"the target {wording.names(down)} is down (up = 0); the last sample of {subject} "
            f"is of {age}. Check the exporter and /targets in Prometheus"
        )
    if unknown:
        return Reason.TARGET_GONE, (
            f"the target {wording.names(unknown)} is not scraped any more; the last sample of "
            f"{subject} is of {age}. Check that the exporter runs and is selected for scraping"
        )
    if targets:
        return Reason.SERIES_ENDED, (
            f"the exporter is scraped (up = 1), but {subject} ended: the last sample is of {age}. "
            "The pod uses no GPU any more, or the exporter has stopped to report it"
        )
    return Reason.SAMPLE_TOO_OLD, (
        f"the last sample of {subject} is of {age}, and Prometheus ignores samples older than "
        "--query.lookback-delta (5 minutes). Write or scrape it more often"
    )


def _targets(selector: str) -> Mapping[str, str]:
    recent = f"last_over_time({selector}[{_WINDOW}])"
    return {
        "targets": f"group by (job, instance) ({recent})",
        "up": f"max by (job, instance) (up) and on (job, instance) {recent}",
    }


def _target(sample: Sample) -> str:
    """Return `job/instance` of a sample; empty for series that were not scraped."""
    job, instance = sample.labels.get("job", ""), sample.labels.get("instance", "")
    return f"{job}/{instance}" if job and instance else ""


def _selector(question: Question, *, names: bool = False, namespace: bool = False) -> str:
    """Return the series selector of the step, for the objects and for their namespace."""
    return promql.with_matchers(
        question.rule.config.series_query, tuple(_matchers(question, names, namespace))
    )


def _matchers(question: Question, names: bool, namespace: bool) -> Iterator[str]:
    binding = question.step.binding
    yield promql.matcher("__name__", "=", question.step.series)
    if names and binding.resource:
        yield promql.matcher(binding.resource, "=~", "|".join(map(escape, question.names)))
    if namespace and binding.namespace and question.namespace:
        yield promql.matcher(binding.namespace, "=", question.namespace)


def _number(results: Results, key: str) -> int:
    """Return the value of a query that counts; 0 without a result."""
    samples = results.get(key, ())
    return int(samples[0].value) if samples else 0


def _for(question: Question) -> str:
    return f" for {question.subject}" if question.subject else ""


def _cause(question: Question, reason: Reason, sentence: str) -> Cause:
    rule = question.rule
    return Cause(reason=reason, rule=rule.index, sentence=f"{rule.config.where}: {sentence}")
