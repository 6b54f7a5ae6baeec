"""Why a metric is not there: at which stage the way from rules to values ended, and what to do.

Pure. A `Cause` is for people who may know the rules; it says what was looked for, what was found,
and what helps, and nothing of what Prometheus or the API server said to the adapter.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rules.diagnosis import candidates, suggestions, wording
from rules.diagnosis.inventory import UNHEARD, Inventory
from rules.diagnosis.wording import place, shown
from rules.errors import PlanError
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.query.catalog import Series
from rules.query.plan import ExternalPlan, Plan
from rules.ruleset import CompiledRule

_MOST = 8
"""Causes that are told of one metric."""

Carried = Mapping[tuple[int, str], Collection[str]]
"""`CompiledRule.index` and a series' name -> the labels that series of this name carry."""


class Reason(enum.Enum):
    """Where the way ended. Those that say most of the metric in question come first."""

    UNKNOWN_RESOURCE = "UnknownResource"
    OTHER_SCOPE = "OtherScope"
    NO_OBJECT = "NoObject"
    NO_QUERY = "NoQuery"
    NO_SAMPLE = "NoSample"
    LABELS_MISSING = "LabelsMissing"
    OTHER_RESOURCE = "OtherResource"
    WRONG_NAME = "WrongName"
    RELIST_FAILED = "RelistFailed"
    NOT_LISTED_YET = "NotListedYet"
    NO_SERIES = "NoSeries"
    NO_RULE = "NoRule"


_ORDER = {reason: position for position, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for which a metric is not there."""

    reason: Reason
    sentence: str
    """What was looked for, what was found, and what to do; numbers and ages in it change."""
    rule: int | None = None
    """The `CompiledRule.index` of the rule that it is about, if it is about one."""

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.sentence}"


def of_metric(
    seen: Inventory, metric: str, resource: GroupResource | None, carried: Carried
) -> tuple[Cause, ...]:
    """Why no series is known that gives `metric` of `resource`; empty if there is one after all.

    Without a resource it is an external metric. `carried` has what was found out about the series
    that `unlabelled` names; of others the labels that relists asked about are told.
    """
    rules = seen.ruleset.external if resource is None else seen.ruleset.rules
    causes: list[Cause] = []
    certain = False
    for rule in rules:
        series = seen.giving(rule, metric)
        if series and resource is None:
            return ()
        if series and resource is not None:
            if _names(seen, rule, series, resource):
                return ()
            causes.append(_unnamed(seen, rule, series, resource, carried))
            certain = True
        elif candidates.may_produce(rule, metric) and (cause := _unseen(seen, rule, metric)):
            causes.append(cause)
            certain |= candidates.matches_name(rule, metric, candidates.fixed_name(rule))
    if not certain:
        cause = _of_name(seen, rules, metric, resource)
        if cause.reason is Reason.WRONG_NAME or not causes:
            causes.append(cause)
    return _first(causes)


def unlabelled(
    seen: Inventory, metric: str, resource: GroupResource
) -> tuple[tuple[CompiledRule, Series], ...]:
    """The series that would give the metric, if one of their labels named the resource.

    One for each rule, of a few rules: it is worth asking which labels they do carry.
    """
    found = []
    for rule in seen.ruleset.rules:
        series = seen.giving(rule, metric)
        if series and not _names(seen, rule, series, resource):
            found.append((rule, series[0]))
    return tuple(found[:_MOST])


def of_plan(seen: Inventory, plan: Plan) -> tuple[Cause, ...]:
    """Why nothing was found for any object of a plan that Prometheus answered."""
    causes = []
    for step in plan.steps:
        rule, label = step.rule, step.binding.namespace
        there = [each for each in seen.series(rule) if each.name == step.series]
        if plan.namespace and there and not any(label in each.labels for each in there):
            causes.append(_labels_missing(rule, there, NAMESPACES, (label,), {}))
            continue
        if not there and (unseen := _unseen(seen, rule, plan.metric)):
            causes.append(unseen)  # a merged rule is asked before it was listed
            continue
        sentence = (
            f"the query of {place(rule)} found no number for {wording.objects(plan)}, asking "
            f"{shown(step.series)} by {wording.asked(plan, step.binding)}: they are not scraped "
            "yet, or their series say otherwise in these labels, or the query leaves them out"
        )
        causes.append(Cause(reason=Reason.NO_SAMPLE, rule=rule.index, sentence=sentence))
    return _first(causes)


def of_query(seen: Inventory, plan: ExternalPlan) -> Cause:
    """Why the query of an external metric found nothing."""
    rule = plan.step.rule
    there = any(each.name == plan.step.series for each in seen.series(rule))
    unseen = None if there else _unseen(seen, rule, plan.metric)
    if unseen and unseen.reason is Reason.NO_SERIES:  # what is not known tells less than the query
        return unseen
    sentence = (
        f"the query of {place(rule)} found no number: {wording.query(plan.step)} has no samples "
        "now, or none but NaN and infinities, which are 0 only where the rule says `onNaN: zero`"
    )
    return Cause(reason=Reason.NO_SAMPLE, rule=rule.index, sentence=sentence)


def no_query(error: PlanError) -> Cause:
    """For a metric of which no query can be made."""
    return Cause(reason=Reason.NO_QUERY, sentence=" ".join(str(error).split()))


def unknown_resource(resource: str, kinds: Kinds) -> Cause:
    """For a resource that the cluster does not have, as the request spells it."""
    near = suggestions.close(resource.partition(".")[0].lower(), {kind.resource for kind in kinds})
    sentence = f"the cluster has no resource {shown(resource)}{wording.question(near)}"
    return Cause(reason=Reason.UNKNOWN_RESOURCE, sentence=sentence)


def other_scope(resource: GroupResource, *, namespaced: bool) -> Cause:
    """For objects that were asked for where they are not."""
    if namespaced:
        sentence = (
            f"{resource} are namespaced, and the path has no namespace: use "
            f"namespaces/NAMESPACE/{resource}/NAME/METRIC"
        )
    else:
        # `namespaces/NAME/METRIC` is not a route: Kubernetes parses NAME as the namespace.
        path = "namespaces/NAME/metrics" if resource == NAMESPACES else f"{resource}/NAME"
        sentence = (
            f"{resource} are cluster-scoped, and the path has a namespace: use {path}/METRIC"
        )
    return Cause(reason=Reason.OTHER_SCOPE, sentence=sentence)


def no_object(resource: GroupResource, *, namespace: str, name: str) -> Cause:
    """For an object that is over, or never was."""
    sentence = (
        f"there is none of the {resource} called {shown(name)} in namespace {shown(namespace)} "
        "that has not finished; what has finished is never asked about"
    )
    return Cause(reason=Reason.NO_OBJECT, sentence=sentence)


def _names(
    seen: Inventory, rule: CompiledRule, series: Sequence[Series], resource: GroupResource
) -> bool:
    """Whether a label of some of the series names the resource."""
    bound = rule.mapping.bind(seen.kinds)
    return any(resource in bound.carried(each.labels) for each in series)


def _unnamed(
    seen: Inventory,
    rule: CompiledRule,
    series: Sequence[Series],
    resource: GroupResource,
    carried: Carried,
) -> Cause:
    """For series that would give the metric, if one of their labels named the resource."""
    bound = rule.mapping.bind(seen.kinds)
    others = sorted({other for each in series for other in bound.carried(each.labels)})
    of_others = wording.listed(map(str, others))
    wanted = bound.labels(resource)
    labels = _labels(rule, series, carried)
    present = [label for label in wanted if label in labels]
    if present and resource in bound.carried(labels):
        sentence = (
            f"{place(rule)}: {wording.series(series)} carries {wording.listed(present)}, but the "
            "last relist did not see that label. The metric appears after the next relist"
        )
        return Cause(reason=Reason.NOT_LISTED_YET, rule=rule.index, sentence=sentence)
    if present:
        named = wording.listed(map(str, bound.carried(present)))
        sentence = (
            f"{place(rule)}: label {wording.listed(present)} names {named}, not {resource}. Request "
            f"the metric for {named}, or add an override for {resource} to `resources`"
        )
        return Cause(reason=Reason.OTHER_RESOURCE, rule=rule.index, sentence=sentence)
    if wanted or not others:
        return _labels_missing(rule, series, resource, wanted, carried, there=of_others)
    sentence = (
        f"{place(rule)} gives the metric of {of_others} and maps no label to {resource}: ask "
        "for one of those, or add an override to its `resources`"
    )
    return Cause(reason=Reason.OTHER_RESOURCE, rule=rule.index, sentence=sentence)


def _labels(rule: CompiledRule, series: Sequence[Series], carried: Carried) -> set[str]:
    """Return the labels of `series`: those that were asked for, else those that relists saw."""
    return {
        label
        for each in series
        for label in carried.get((rule.index, each.name)) or each.labels
    }


def _labels_missing(
    rule: CompiledRule,
    series: Sequence[Series],
    resource: GroupResource,
    wanted: Sequence[str],
    carried: Carried,
    *,
    there: str = "",
) -> Cause:
    labels = _labels(rule, series, carried)
    looked_for = wording.listed(wanted) if wanted else f"nothing, for it maps none to {resource}"
    carry = wording.listed(sorted(labels)) if labels else "none that any rule knows"
    also = f"; so the metric is there of {there} alone" if there else ""
    sentence = (
        f"{place(rule)} has series ({wording.series(series)}), but none carries a label that names "
        f"{resource}: looked for {looked_for}; they carry {carry}{also}. Name the right label in "
        "`resources`, or have the exporter or the scrape add it; a GPU that no pod uses names none"
    )
    return Cause(reason=Reason.LABELS_MISSING, rule=rule.index, sentence=sentence)


def _unseen(seen: Inventory, rule: CompiledRule, metric: str) -> Cause | None:
    """For a rule of which no series gives the metric; None if it is no wonder that none does."""
    heard = seen.heard.get(rule.index, UNHEARD)
    certain = candidates.matches_name(rule, metric, candidates.fixed_name(rule))
    gives = f"{place(rule)} {'gives' if certain else 'could give'} it"
    query = wording.selector(rule)
    if heard.failed:
        last = "never yet" if heard.listed is None else wording.since(heard.listed, seen.now)
        sentence = (
            f"{gives}, but which series of {query} there are is not known (listed last: {last}): "
            "Prometheus could not be asked, or refused; the adapter's log says why"
        )
        return Cause(reason=Reason.RELIST_FAILED, rule=rule.index, sentence=sentence)
    if heard.listed is None:
        sentence = f"{gives}, but its series are not listed yet: the adapter has just started"
        return Cause(reason=Reason.NOT_LISTED_YET, rule=rule.index, sentence=sentence)
    found, ago = seen.series(rule), wording.since(heard.listed, seen.now)
    if not found:
        what = f"Prometheus had no series of {query} {ago}: see whether the exporter is scraped"
    elif certain:
        what = (
            f"of what {query} found {ago} ({wording.series(found)}) nothing passes its "
            "`seriesFilters` and `name.matches`"
        )
    else:
        return None
    return Cause(reason=Reason.NO_SERIES, rule=rule.index, sentence=f"{gives}, but {what}")


def _of_name(
    seen: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> Cause:
    """For a name that no rule gives for certain."""
    kind = "rule" if resource is not None else "external rule"
    if not rules:
        sentence = f"the adapter has no {kind}s: --config names a file of them, --preset a set"
        return Cause(reason=Reason.NO_RULE, sentence=sentence)
    none = f"no {kind} of {len(rules)} gives a metric called {shown(metric)}"
    if meant := suggestions.meant(seen, rules, metric, resource):
        return Cause(reason=Reason.WRONG_NAME, sentence=none + meant)
    after = sum(candidates.fixed_name(rule) is None for rule in rules)
    found = f", nor do the series after which {after} of them name metrics" if after else ""
    sentence = f"{none}{found}: add one, or ask for a metric that the group's discovery lists"
    return Cause(reason=Reason.NO_RULE, sentence=sentence)


def _first(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """The causes, each once, in the order of stages; of very many the first."""
    ordered = sorted(dict.fromkeys(causes), key=lambda cause: _ORDER[cause.reason])
    if len(ordered) <= _MOST:
        return tuple(ordered)
    rest = ordered[_MOST - 1 :]
    more = Cause(reason=rest[0].reason, sentence=f"{len(rest)} more rules are no better off")
    return (*ordered[: _MOST - 1], more)
