"""What to query about one step of a plan: the series and targets of its objects.

Pure. `adapter.server.causes.evidence` sends the queries; `samples` interprets their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rules import promql, syntax
from rules.causes import ended, wording
from rules.causes.ended import Results
from rules.document.where import Where
from rules.errors import RulesError
from rules.kinds import PODS, GroupResource
from rules.query.catalog import Step
from rules.query.plan import ExternalPlan, Plan, escape
from rules.ruleset import CompiledRule
from rules.syntax import Expression, VectorSelector

MAX_STEPS = 3
"""Steps of a plan that are diagnosed; the others have the same causes."""
_MAX_NAMES = 50
EXPORTED = "exported_"
_MAX_SELECTORS = 3
"""Selectors of a query of which it is found out whether they match a series."""
_MAX_TARGETS = 50
"""Targets among which several of one port of a pod are looked up."""
_MAX_PRESENT = 100
"""Series among which another label with the names of the objects is looked up."""
WINDOW, STEP = 300.0, 15.0
"""Seconds of samples by which the interval between them is known, and of the steps in them."""
_COARSE = "5m"
"""Step in which is found since when there are series at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedStep:
    """A step of a plan whose query and result are examined."""

    step: Step
    query: str
    """The query of the step, rendered."""
    namespace: str
    resource: GroupResource | None = None
    """None for an external metric."""
    subject: str = ""
    """`pods a, b in namespace default`; empty for an external metric."""
    names: tuple[str, ...] = ()

    @property
    def rule(self) -> CompiledRule:
        """The rule of the step."""
        return self.step.rule

    @property
    def where(self) -> Where:
        """The place of the rule."""
        return self.rule.config.where


def questions(plan: Plan | ExternalPlan) -> tuple[ExaminedStep, ...]:
    """Return the steps to diagnose, for at most 50 objects. Raises PlanError."""
    if isinstance(plan, ExternalPlan):
        namespace = plan.namespace if plan.namespaced else ""
        return (ExaminedStep(step=plan.step, query=plan.promql(), namespace=namespace),)
    some = replace(plan, names=plan.names[:_MAX_NAMES], steps=plan.steps[:MAX_STEPS])
    return tuple(
        ExaminedStep(
            step=step,
            query=query,
            resource=plan.resource,
            subject=wording.objects(plan.resource, plan.names, plan.namespace),
            namespace=plan.namespace,
            names=some.names,
        )
        for step, query in zip(some.steps, some.promql(), strict=True)
    )


def queries(question: ExaminedStep) -> Mapping[str, str]:
    """Return the first queries, by key. Raises PlanError for a selector that cannot be narrowed."""
    label, namespace = question.step.binding.resource, question.step.binding.namespace
    every, own = selector(question), selector(question, names=True, namespace=True)
    asked = {
        "answer": question.query,
        "here": f"count({own})",
        "not finite": f"count({own} != {own} or abs({own}) == Inf)",
        "every": f"count({every})",
        "last": ended.last(own),
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
            selector(question, names=True),
            (
                promql.matcher(namespace, "!=", question.namespace),
                promql.matcher(namespace, "!=", ""),
            ),
        )
        places = f"{promql.label(namespace)}, {promql.label(renamed_label(namespace))}"
        asked["elsewhere"] = f"topk(5, count by ({places}) ({elsewhere}))"
    return asked


def of_values(question: ExaminedStep) -> Mapping[str, str]:
    """Return the queries about a step that gives values, by key. Raises PlanError as `queries`.

    `newest age` and `oldest age` are those of the last samples, in seconds; `targets of a pod` has
    some targets of the pods that report them. The others say whether only `or vector(...)` gives a
    value.
    """
    own = selector(question, names=True, namespace=True)
    age = f"time() - timestamp({own})"
    asked = {
        "answer": question.query,
        "here": f"count({own})",
        "newest age": f"min({age})",
        "oldest age": f"max({age})",
        # Of `up`, whose labels are those of targets: `service` of a series may be what it counts.
        "targets of a pod": f'topk({_MAX_TARGETS}, up{{pod!=""}} and on (job, instance) {own})',
    }
    if (before := promql.without_default(question.query)) is not None:
        asked = {**asked, "before": f"count({before})", **of_empty_result(question, before)}
    return asked


def of_reaction(question: ExaminedStep) -> Mapping[str, str]:
    """Return the queries about how soon a step shows a change of load, by key.

    `steady samples` is the number of samples in WINDOW of a series that is older. For pods, `first
    samples` has the time of each one's first sample in the last hour, in steps of 15 s, and `series
    since` since when there are series at all, also of other pods. Raises PlanError as `queries`.
    """
    own = selector(question, names=True, namespace=True)
    window = f"{WINDOW:.0f}s"
    asked = {"steady samples": f"max(count_over_time({own}[{window}]) and {own} offset {window})"}
    if question.resource == PODS:
        # `timestamp` in a subquery takes thirty times as long.
        pods = f"group by ({promql.label(question.step.binding.resource)}) ({own})"
        every = f"group({selector(question)})"
        asked["first samples"] = f"min_over_time(({pods} * time())[{ended.WINDOW}:{STEP:.0f}s])"
        asked["series since"] = f"min_over_time(({every} * time())[{ended.WINDOW}:{_COARSE}])"
    return asked


def further(question: ExaminedStep, results: Results) -> Mapping[str, str]:
    """Return the queries about the targets of series that ended, and about those that exist."""
    if not {"answer", "here", "every", "last"} <= results.keys():
        return {}
    if number(results, "here"):
        if results["answer"]:
            return {}
        return of_empty_result(question, question.query)
    found: dict[str, str] = {}
    label = question.step.binding.resource
    if results["every"] and label:
        every = selector(question)
        found["present"] = f"topk({_MAX_PRESENT}, {every})"
        excluded = ",".join(_matchers(question, names=True, namespace=True))
        found["excluded"] = f"topk({_MAX_PRESENT}, {{{excluded}}})"
        if question.resource == PODS:
            named = promql.matcher("pod", "=~", "|".join(map(escape, question.names)))
            place = promql.matcher("namespace", "=", question.namespace)
            found["target"] = f"min(up{{{named},{place}}})"
        if not label.startswith(EXPORTED):
            mapped = promql.with_matchers(every, (promql.matcher(renamed_label(label), "!=", ""),))
            found["mapped"] = f"count({mapped})"
    if results["last"]:
        return {**found, **ended.targets(selector(question, names=True, namespace=True))}
    if results["every"]:
        return found
    return {**ended.series(selector(question)), **ended.native(question.rule)}


def of_empty_result(question: ExaminedStep, query: str) -> Mapping[str, str]:
    """Return the queries by which `why_empty` says why a query of existing series is empty."""
    asked = dict(scrapes(selector(question, names=True, namespace=True)))
    if comparison := promql.comparison(query):
        asked["compared"] = comparison[0]
    those = selected(question, query)
    return {**asked, **{f"selected {matchers}": f"count({each})" for each, matchers in those}}


def selected(question: ExaminedStep, query: str) -> tuple[tuple[str, str], ...]:
    """Return selectors of the series with what a query matches beside objects and namespace.

    For each, the selector and these matchers.
    """
    try:
        own = promql.selector(selector(question, names=True, namespace=True))
    except RulesError:
        return ()
    found: dict[str, str] = {}
    for each in nodes(query):
        if not isinstance(each, VectorSelector) or each.alternatives:
            continue
        named = each.name or promql.pinned_name(each.matchers)
        labels = {one.label for one in own if one.operator == "="} | {
            question.step.binding.resource,
            "__name__",
        }
        more = [one for one in each.matchers if one not in own and one.label not in labels]
        if named == question.step.series and more:
            texts = tuple(promql.matcher(one.label, one.operator, one.value) for one in more)
            whole = promql.with_matchers(selector(question, names=True, namespace=True), texts)
            found[whole] = ", ".join(texts)
    return tuple(found.items())[:_MAX_SELECTORS]


def scrapes(series: str) -> Mapping[str, str]:
    """Return the queries by whose results `empty_results.interval` is known."""
    window = f"{WINDOW:.0f}s"
    return {
        "scrapes": f"max(count_over_time({series}[{window}]))",
        "first": f"min(min_over_time(timestamp({series})[{window}:15s]))",
        "latest": f"max(timestamp({series}))",
    }


def renamed_label(label: str) -> str:
    """Return the label that has the exporter's value if the target has `label`, too."""
    return EXPORTED + label


def selector(question: ExaminedStep, *, names: bool = False, namespace: bool = False) -> str:
    """Return the series selector of the step, for the objects and for their namespace."""
    return promql.with_matchers(
        question.rule.config.series_query, tuple(_matchers(question, names, namespace))
    )


def _matchers(question: ExaminedStep, names: bool, namespace: bool) -> Iterator[str]:
    binding = question.step.binding
    yield promql.matcher("__name__", "=", question.step.series)
    if names and binding.resource:
        yield promql.matcher(binding.resource, "=~", "|".join(map(escape, question.names)))
    if namespace and binding.namespace and question.namespace:
        yield promql.matcher(binding.namespace, "=", question.namespace)


def nodes(query: str) -> Sequence[Expression]:
    """Return the expressions of a query, the whole first; none if it does not parse."""
    tree = promql.tree(query)
    return list(syntax.walk(tree)) if tree else ()


def number(results: Results, key: str) -> int:
    """Return the value of a query that counts; 0 without a result."""
    samples = results.get(key, ())
    return int(samples[0].value) if samples else 0
