"""Causes of a missing metric: which step from rule to sample failed, and what to do about it.

Pure. A `Cause` quotes rules, and the reply of Prometheus to a query that it refused, so only
callers who may read discovery get it. `samples` finds causes by further queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rules.causes import candidates, suggestions, wording
from rules.causes.cause import Cause, Reason
from rules.causes.inventory import NEVER_LISTED, Inventory
from rules.causes.wording import printable
from rules.errors import AmbiguousSampleError, PlanError
from rules.exporters.generations import Generation
from rules.kinds import NAMESPACES, PODS, WORKLOADS, GroupResource, Kinds
from rules.query.catalog import Entry, Series
from rules.query.plan import ExternalPlan, Plan
from rules.quoting import counted
from rules.ruleset import CompiledRule

_MAX_CAUSES = 8
_MAX_CONFIG_MAPS = 3
_NOW = 5.0
"""Seconds since a relist for which its result is one of now."""
_SCRAPE_INTERVAL = 60.0
"""Prometheus' default, in seconds. An exporter that starts with the adapter is scraped by then."""

LabelsBySeries = Mapping[tuple[int, str], Collection[str]]
"""`CompiledRule.index` and the name of a series -> the labels that Prometheus has for it now."""


_ORDER = {reason: position for position, reason in enumerate(Reason)}


def of_metric(
    inventory: Inventory, metric: str, resource: GroupResource | None, labels: LabelsBySeries
) -> tuple[Cause, ...]:
    """Return why no series provides `metric` for `resource`; empty if the last relist found one.

    `resource` is None for an external metric. `labels` has the present labels of the series that
    `series_without_label` returns; for others, those that relists queried are reported.
    """
    rules = inventory.ruleset.external if resource is None else inventory.ruleset.rules
    causes: list[Cause] = []
    certain = False
    for rule in rules:
        series = inventory.series_of(rule, metric)
        if series:
            if resource is None or has_label(inventory, rule, series, resource):
                return ()
            causes.append(_unlabelled(inventory, rule, series, resource, labels))
            certain = True
        elif candidates.may_produce(rule, metric) and (cause := _unseen(inventory, rule, metric)):
            causes.append(cause)
            certain |= candidates.must_produce(rule, metric)
    if not certain:
        cause = _wrong_name(inventory, rules, metric, resource)
        if cause.reason is Reason.WRONG_NAME or not causes:
            causes.append(cause)
    return _most_specific(causes)


def series_without_label(
    inventory: Inventory, metric: str, resource: GroupResource
) -> tuple[tuple[CompiledRule, Series], ...]:
    """Return series that provide `metric`, but have no label for `resource`.

    One series for each rule, and at most eight: their labels are worth a query.
    """
    found = []
    for rule in inventory.ruleset.rules:
        series = inventory.series_of(rule, metric)
        if series and not has_label(inventory, rule, series, resource):
            found.append((rule, series[0]))
    return tuple(found[:_MAX_CAUSES])


def of_plan(inventory: Inventory, plan: Plan, found: Sequence[Cause] = ()) -> tuple[Cause, ...]:
    """Return why a plan that Prometheus answered gave no value for any object.

    `found` has the causes of the first steps that `samples` found. Until every rule was listed, the
    labels by which it was queried are guesses, so nothing else counts. Nor does anything if these
    labels changed before it was answered.
    """
    causes = []
    rules = {step.rule.index: step.rule for step in plan.steps}
    guessed = [
        unseen
        for index, rule in rules.items()
        if inventory.statuses.get(index, NEVER_LISTED).listed is None
        and (unseen := _unseen(inventory, rule, plan.metric))
    ]
    if guessed:
        return _most_specific(guessed)
    entry = inventory.catalog.entry(plan.resource, plan.metric)
    if entry is not None and entry.steps != plan.steps:
        return (listed_meanwhile(),)
    for place, step in enumerate(plan.steps):
        rule, label = step.rule, step.binding.namespace
        series = [each for each in inventory.series(rule) if each.name == step.series]
        if plan.namespace and series and not any(label in each.labels for each in series):
            causes.append(_labels_missing(rule, series, NAMESPACES, (label,), {}))
            continue
        # A merged rule is queried even before its first relist.
        if not series and (unseen := _unseen(inventory, rule, plan.metric)):
            causes.append(unseen)
            continue
        if found:
            causes += found[place : place + 1]
            continue
        sentence = (
            f"{rule.config.where} returned no sample for "
            f"{wording.objects(plan.resource, plan.names, plan.namespace)}. It matches "
            f"{printable(step.series)} by {wording.matchers(plan, step.binding)}: check that the "
            "objects are scraped and their series have these label values"
        )
        causes.append(Cause(reason=Reason.NO_SAMPLE, rule=rule.index, sentence=sentence))
    return _most_specific(causes)


def of_query(inventory: Inventory, plan: ExternalPlan, found: Sequence[Cause] = ()) -> Cause:
    """Return why the query of an external metric returned no sample; `found` is as in `of_plan`."""
    rule = plan.step.rule
    listed = any(each.name == plan.step.series for each in inventory.series(rule))
    unseen = None if listed else _unseen(inventory, rule, plan.metric)
    # The query was answered, which says more than a relist that failed or did not run yet.
    if unseen and unseen.reason is Reason.NO_SERIES:
        return unseen
    if found:
        return found[0]
    query = wording.code(plan.promql())
    sentence = (
        f"{rule.config.where} returned no sample: {query} has no result now, or only NaN or Inf "
        "(`onNaN: zero` counts them as 0)"
    )
    return Cause(reason=Reason.NO_SAMPLE, rule=rule.index, sentence=sentence)


def listed_meanwhile() -> Cause:
    """Return the cause for a query by labels that a relist replaced before it was answered."""
    sentence = "the labels of its series became known while it was queried. Retry now"
    return Cause(reason=Reason.NOT_LISTED_YET, sentence=sentence, provisional=True)


def no_query(error: PlanError) -> Cause:
    """Return the cause for a request that has no valid query."""
    sentence = f"{' '.join(str(error).split())}. Correct the rule or the selector"
    return Cause(reason=Reason.NO_QUERY, sentence=sentence)


def rules_not_loaded(namespace: str) -> Cause:
    """Return the cause while ConfigMaps with rules of teams are not loaded; empty for all."""
    place = f"of namespace {printable(namespace)}" if namespace else "of teams"
    sentence = f"the rules {place} are not loaded yet, and no other rule produces the metric. Retry"
    return Cause(reason=Reason.RULES_NOT_LOADED, sentence=sentence, provisional=True)


def rules_unreadable() -> Cause:
    """Return the cause for a metric that no rule produces while those of teams are not known."""
    sentence = (
        "the rules of teams could not be read: the ConfigMaps with them cannot be listed. The "
        "adapter's log and `/readyz/rights` say why"
    )
    return Cause(reason=Reason.RULES_UNREADABLE, sentence=sentence, lasting=True)


def rules_refused(namespace: str, problems: Mapping[str, str]) -> Cause:
    """Return the cause for a metric that no rule produces while ConfigMaps are refused.

    `problems` says why, by the name of the ConfigMap.
    """
    named = sorted(problems.items())[:_MAX_CONFIG_MAPS]
    found = [f"{name}: {wording.truncate(' '.join(each.split()))}" for name, each in named]
    if more := len(problems) - len(found):
        found.append(f"{more} more")
    sentence = (
        f"no rule produces the metric, and ConfigMaps with rules in namespace "
        f"{printable(namespace)} are refused: {'; '.join(found)}"
    )
    return Cause(reason=Reason.RULES_REFUSED, sentence=sentence)


def with_team(causes: Iterable[Cause], of_team: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return why no rule produces a metric, with what is wrong with the rules of its namespace."""
    return _most_specific((*causes, *of_team))


def unknown_resource(resource: str, kinds: Kinds) -> Cause:
    """Return the cause for a resource, as the request spells it, that does not exist."""
    name = resource.partition(".")[0].lower()
    similar = suggestions.similar_names(name, {kind.resource for kind in kinds})
    cure = wording.did_you_mean(similar) or (
        ". Correct the resource, or install its CustomResourceDefinition"
    )
    sentence = f"the cluster has no resource {printable(resource)}{cure}"
    return Cause(reason=Reason.UNKNOWN_RESOURCE, sentence=sentence)


def no_match(resource: GroupResource, *, namespace: str, selector: str) -> Cause:
    """Return the cause for a label selector that matches no object."""
    place = f" in namespace {printable(namespace)}" if namespace else ""
    matching = f"matches the label selector {wording.truncate(selector)}" if selector else "exists"
    sentence = f"no {wording.any_object(resource)}{place} {matching}"
    if resource == PODS:
        sentence += ", except finished ones"
    if selector:
        sentence += f". Compare the selector with the labels of the {resource}"
    if selector and resource == PODS:
        sentence += "; an HPA uses the selector of its scale target"
    return Cause(reason=Reason.NO_OBJECT, sentence=sentence)


def without_value(plan: Plan, values: Collection[str]) -> Cause:
    """Return the cause for a list that lacks some of the objects."""
    return Cause(reason=Reason.NO_SAMPLE, sentence=_lacking(plan, values, "value"))


def without_usage(plan: Plan, usages: Collection[str]) -> Cause:
    """Return the cause for pods or nodes of metrics.k8s.io without a sample: not in `usages`."""
    (step,) = plan.steps
    by = " and ".join(filter(None, (step.binding.resource, step.binding.namespace)))
    sentence = (
        f"{_lacking(plan, usages, plan.metric)}. {step.rule.config.where} returned no sample for "
        "them. A new one is not scraped yet; otherwise check that Prometheus scrapes the kubelets "
        f"(cAdvisor), and compare the labels of its series by {by}"
    )
    return Cause(reason=Reason.NO_SAMPLE, sentence=sentence)


def without_finite_usage(plan: Plan, names: Collection[str]) -> Cause:
    """Return the cause for pods or nodes of metrics.k8s.io that have a sample that is no value."""
    (step,) = plan.steps
    others = set(plan.names).difference(names)
    sentence = (
        f"{_lacking(plan, others, plan.metric)}. {step.rule.config.where} returned NaN or Inf for "
        "them, which is not a value. Correct the query (does it divide by 0?)"
    )
    return Cause(reason=Reason.NOT_FINITE, sentence=sentence)


def _lacking(plan: Plan, found: Collection[str], what: str) -> str:
    """Return how many objects of a plan are not in `found`, and which."""
    lacking = [name for name in plan.names if name not in found]
    place = f" in namespace {printable(plan.namespace)}" if plan.namespace else ""
    return (
        f"{len(lacking)} of {len(plan.names)} {plan.resource}{place} "
        f"{'has' if len(lacking) == 1 else 'have'} no {what}: {wording.names(lacking)}"
    )


def failed_query(
    where: str,
    *,
    refusal: str,
    problem: str,
    query: str = "",
    key: str = "metricsQuery",
    too_large: bool = False,
) -> Cause:
    """Return the cause for a query that failed; `key` is its key in the rule.

    `refusal` is Prometheus' error if it refused this query; otherwise `problem` says why Prometheus
    answers no query, if that is known: `cannot be reached`. `query` is the rendered query, if it is
    short enough to be shown. `too_large` says that it was refused because of a limit.
    """
    if refusal:
        error = wording.truncate(" ".join(refusal.split()))
        shown = f" {wording.code(query)}" if query else ""
        if too_large:
            sentence = (
                f"{where}: the rendered query{shown} exceeds a limit: {error}. Select fewer series "
                f"in `{key}`, or raise the limit where Prometheus or its proxy sets it"
            )
            return Cause(reason=Reason.LIMIT_EXCEEDED, sentence=sentence)
        sentence = (
            f"{where}: Prometheus refused the rendered query{shown} with {error}. Correct `{key}`"
        )
        return Cause(reason=Reason.QUERY_REFUSED, sentence=sentence)
    what = problem or "did not answer the query"
    return Cause(
        reason=Reason.PROMETHEUS_UNAVAILABLE,
        sentence=f"Prometheus {what}",
        lasting=bool(problem),
        logged=True,
    )


def several_samples(error: AmbiguousSampleError) -> Cause:
    """Return the cause for an object with several samples under `aggregate: error`."""
    return Cause(reason=Reason.SEVERAL_SAMPLES, sentence=str(error))


def long_query(where: str, length: int) -> Cause:
    """Return the cause for a query that was refused because of its length, in bytes of a URL."""
    sentence = (
        f"{where}: Prometheus or a proxy before it refused a query of {length} bytes, because it "
        "matches each name. Write the query so that it can be shared (`check` prints what prevents "
        "it), or raise the limit (VictoriaMetrics: -search.maxQueryLen)"
    )
    return Cause(reason=Reason.QUERY_REFUSED, sentence=sentence)


def partial_response(where: str) -> Cause:
    """Return the cause for samples that may be missing from a response."""
    sentence = (
        f"{where}: Prometheus says that its response is partial, so samples may be missing: check "
        "its storage nodes, stores and replicas; the adapter's log quotes it. "
        "`allowPartialResponse` or --allow-partial-responses serves such values"
    )
    return Cause(reason=Reason.PARTIAL_RESPONSE, sentence=sentence)


def failed_fallback(server: str, answer: str) -> Cause:
    """Return the cause for an external metric of which another server has no value either.

    `answer` says what it did, as the predicate of a sentence.
    """
    sentence = f"no rule produces the metric, and {server} of --external-fallback {answer}"
    return Cause(reason=Reason.FALLBACK_FAILED, sentence=sentence)


def negative_value() -> Cause:
    """Return the cause for a negative external metric whose target is an AverageValue."""
    sentence = (
        "the external metric has a value below 0, and the target of the HPA is an AverageValue. "
        "While the values are added up, Kubernetes 1.34 and later take a sum below 0 for an "
        "overflow and scale to maxReplicas. Write clamp_min(..., 0) in `metricsQuery`"
    )
    return Cause(reason=Reason.NEGATIVE_VALUE, sentence=sentence, lasting=True)


def missing_right(right: str, grant: str) -> Cause:
    """Return the cause for objects that the adapter may not list; `grant` says what to do."""
    sentence = f"the adapter has no permission to {right}: {grant}"
    return Cause(reason=Reason.MISSING_RIGHT, sentence=sentence, lasting=True)


def failed_list(resource: GroupResource) -> Cause:
    """Return the cause for objects that the API server did not list."""
    sentence = f"the API server did not list {resource}"
    return Cause(reason=Reason.LIST_FAILED, sentence=sentence, logged=True)


def other_exporter(rule: CompiledRule, found: Generation, presets: Sequence[str]) -> Cause:
    """Return the cause for series of another exporter or model server than the rule reads."""
    flags = " ".join(f"--preset={name}" for name in presets)
    remedy = f"use {flags} instead" if presets else found.advice
    sentence = (
        f"Prometheus has no series {wording.code(rule.config.series_query)}, which "
        f"{rule.config.where} reads, but has those of {found.title}: {remedy}"
    )
    return Cause(reason=Reason.OTHER_EXPORTER, rule=rule.index, sentence=sentence, lasting=True)


def other_scope(resource: GroupResource, *, namespaced: bool) -> Cause:
    """Return the cause for a path whose scope does not fit the resource."""
    if namespaced:
        sentence = (
            f"{resource} are namespaced, and the path has no namespace: use "
            f"namespaces/NAMESPACE/{resource}/NAME/METRIC"
        )
    else:
        # `namespaces/NAME/METRIC` is not a route: Kubernetes parses NAME as the namespace.
        path = "namespaces/NAME/metrics" if resource == NAMESPACES else f"{resource}/NAME"
        sentence = f"{resource} are cluster-scoped, and the path has a namespace: use {path}/METRIC"
    return Cause(reason=Reason.OTHER_SCOPE, sentence=sentence)


def impossible_object(resource: GroupResource, *, namespace: str, name: str) -> Cause:
    """Return the cause for an object whose name, or whose namespace's name, Kubernetes refuses."""
    found = wording.objects(resource, [name], namespace)
    sentence = f"{found}: Kubernetes does not accept this name"
    return Cause(reason=Reason.NO_OBJECT, sentence=sentence)


def no_object(resource: GroupResource, *, namespace: str, name: str) -> Cause:
    """Return the cause for a pod that has finished."""
    pod = wording.objects(resource, [name], namespace)
    sentence = f"{pod} has succeeded or failed, so it has no current value"
    return Cause(reason=Reason.NO_OBJECT, sentence=sentence)


def no_pods(resource: GroupResource, names: Sequence[str], *, namespace: str) -> Cause:
    """Return the cause for workloads of whose pods none is live."""
    workloads = wording.objects(resource, names, namespace)
    sentence = (
        f"{workloads}: its selector matches no running pod. If it is scaled to 0, use an external "
        "metric to scale from 0"
    )
    return Cause(reason=Reason.NO_OBJECT, sentence=sentence, lasting=True)


def no_workload(resource: GroupResource, name: str, *, namespace: str) -> Cause:
    """Return the cause for a workload that is not there."""
    workload = wording.objects(resource, [name], namespace)
    return Cause(reason=Reason.NO_OBJECT, sentence=f"{workload} does not exist")


def too_young(entry: Entry, ages: Mapping[str, float], *, namespace: str) -> Cause:
    """Return the cause for pods that `minPodAge` leaves out; `ages` in seconds, 0 if not Ready."""
    longest = max(ages.values())
    state = f"the oldest has been for {longest:.0f} s" if longest else "none is Ready"
    rule = max(
        (source.rule for source in entry.sources), key=lambda rule: rule.config.min_pod_age or 0.0
    )
    sentence = (
        f"{rule.config.where} leaves out pods until they have been Ready for "
        f"{entry.min_pod_age:g} s (`minPodAge`): {wording.names(ages)} in namespace "
        f"{printable(namespace)}; {state}. Wait, or lower `minPodAge`"
    )
    return Cause(reason=Reason.POD_TOO_YOUNG, rule=rule.index, sentence=sentence, provisional=True)


def has_label(
    inventory: Inventory, rule: CompiledRule, series: Sequence[Series], resource: GroupResource
) -> bool:
    """Return whether a relist saw a label for `resource` on some of the series."""
    bound = rule.mapping.bind(inventory.kinds)
    return any(resource in bound.associations(each.labels) for each in series)


def _unlabelled(
    inventory: Inventory,
    rule: CompiledRule,
    series: Sequence[Series],
    resource: GroupResource,
    labels: LabelsBySeries,
) -> Cause:
    """Return why a rule has series of the metric, but not for `resource`."""
    bound = rule.mapping.bind(inventory.kinds)
    others = sorted({other for each in series for other in bound.associations(each.labels)})
    provided = wording.names(map(str, others))
    expected = bound.labels(resource)
    present = _labels(rule, series, labels)
    unseen = [label for label in expected if label in present]
    if unseen and resource in bound.associations(present):
        sentence = (
            f"{rule.config.where}: {wording.series(series)} has the label {wording.names(unseen)}, "
            "but the last relist did not see it. The metric appears after the next relist"
        )
        return Cause(reason=Reason.NOT_LISTED_YET, rule=rule.index, sentence=sentence)
    if unseen:
        mapped = wording.names(map(str, bound.associations(unseen))) or "an unknown resource"
        sentence = (
            f"{rule.config.where}: label {wording.names(unseen)} is mapped to {mapped}, not to "
            f"{resource}. Change the resource in the request, or add an override to `resources`"
        )
        return Cause(reason=Reason.OTHER_RESOURCE, rule=rule.index, sentence=sentence)
    if expected or not others:
        return _labels_missing(rule, series, resource, expected, labels, provided=provided)
    if resource in WORKLOADS and PODS in others:
        sentence = (
            f"{rule.config.where} provides the metric only for {provided}. Use `type: Pods` in the "
            f"HPA, or set `workloads` in the rule to have it for {resource}"
        )
        return Cause(reason=Reason.OTHER_RESOURCE, rule=rule.index, sentence=sentence, lasting=True)
    sentence = (
        f"{rule.config.where} provides the metric only for {provided}. Request it for these, or "
        f"map a label to {resource} in `resources`"
    )
    return Cause(reason=Reason.OTHER_RESOURCE, rule=rule.index, sentence=sentence)


def _labels(rule: CompiledRule, series: Sequence[Series], labels: LabelsBySeries) -> set[str]:
    """Return the present labels of the series; where unknown, those that relists saw."""
    return {
        label for each in series for label in labels.get((rule.index, each.name)) or each.labels
    }


def _labels_missing(
    rule: CompiledRule,
    series: Sequence[Series],
    resource: GroupResource,
    expected: Sequence[str],
    labels: LabelsBySeries,
    *,
    provided: str = "",
) -> Cause:
    present = sorted(_labels(rule, series, labels))
    wanted = f"expected {wording.names(expected)}" if expected else "`resources` maps none"
    found = f"found {wording.names(present)}" if present else "found none that a rule maps"
    only = f" The metric exists only for {provided}." if provided else ""
    sentence = (
        f"{rule.config.where}: {wording.series(series)} has no label for {resource}: {wanted}; "
        f"{found}.{only} Map the right label in `resources`, or add it in the exporter or scrape "
        "config; idle GPUs have none"
    )
    return Cause(reason=Reason.LABELS_MISSING, rule=rule.index, sentence=sentence)


def _unseen(inventory: Inventory, rule: CompiledRule, metric: str) -> Cause | None:
    """Return why no series of `rule` is named `metric`.

    Returns None if the last relist found series, and none of them must have this name.
    """
    status = inventory.statuses.get(rule.index, NEVER_LISTED)
    certain = candidates.must_produce(rule, metric)
    produces = f"{rule.config.where} {'produces' if certain else 'may produce'} it"
    query = wording.code(rule.config.series_query)
    if status.failed:
        ago = "" if status.listed is None else wording.age(status.listed, inventory.now)
        last = f"{ago} ago" if ago else "never"
        sentence = (
            f"{produces}, but the last relist of {query} failed (last success: {last})"
            f"{_because(status.refusal)}"
        )
        return Cause(
            reason=Reason.RELIST_FAILED,
            rule=rule.index,
            sentence=sentence,
            logged=not status.refusal,
        )
    if status.listed is None:
        sentence = (
            f"{produces}, but its first relist has not finished: the adapter has just started. "
            "Retry in a few seconds"
        )
        return Cause(
            reason=Reason.NOT_LISTED_YET, rule=rule.index, sentence=sentence, provisional=True
        )
    series, ago = inventory.series(rule), f"{wording.age(status.listed, inventory.now)} ago"
    if not series and status.partial:
        return replace(partial_response(produces), rule=rule.index)
    if not series:
        present = inventory.now - status.listed < _NOW
        when = f"has no series of {query} now" if present else f"had no series of {query} {ago}"
        problem = f"Prometheus {when}. Check that the exporter is scraped"
    elif certain:
        problem = (
            "its `seriesFilters` and `name.matches` reject all series of "
            f"{query} ({wording.series(series)}), listed {ago}"
        )
    else:
        return None
    first = status.first_listed
    return Cause(
        reason=Reason.NO_SERIES,
        rule=rule.index,
        sentence=f"{produces}, but {problem}",
        provisional=first is not None and inventory.now - first < _SCRAPE_INTERVAL,
    )


def _because(refusal: str) -> str:
    if refusal:
        return f": {wording.truncate(' '.join(refusal.split()))}. Correct `seriesQuery`"
    return ""


def _wrong_name(
    inventory: Inventory,
    rules: Sequence[CompiledRule],
    metric: str,
    resource: GroupResource | None,
) -> Cause:
    """Return the cause for a name that no rule is certain to produce."""
    kind = "rule" if resource is not None else "external rule"
    if not rules:
        others = len(inventory.ruleset.rules if resource is None else inventory.ruleset.external)
        sentence = f"no {kind} is loaded. Set --config to a rules file, or --preset"
        if others and resource is None:
            sentence = (
                f"{counted(others, 'rule')} for custom metrics, but none for external ones is "
                f"loaded{suggestions.suggest(inventory, rules, metric, resource)}. Add rules to "
                "`externalRules` by --config, or the preset of a gateway"
            )
        elif others:
            sentence = (
                f"{counted(others, 'external rule')}, but none for custom metrics is loaded"
                f"{suggestions.suggest(inventory, rules, metric, resource)}. Add rules to `rules` "
                "by --config, or a preset"
            )
        return Cause(reason=Reason.NO_RULE, sentence=sentence)
    none = f"no {kind} produces a metric named {printable(metric)}"
    if suggestion := suggestions.suggest(inventory, rules, metric, resource):
        return Cause(reason=Reason.WRONG_NAME, sentence=none + suggestion)
    derived = sum(candidates.fixed_name(rule) is None for rule in rules)
    naming = f", {derived} of which name metrics after series" if derived else ""
    sentence = f"{none} ({len(rules)} loaded{naming}). Add a rule, or use a name in discovery"
    return Cause(reason=Reason.NO_RULE, sentence=sentence)


def _most_specific(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the distinct causes in the order of `Reason`, at most eight."""
    ordered = sorted(dict.fromkeys(causes), key=lambda cause: _ORDER[cause.reason])
    if len(ordered) <= _MAX_CAUSES:
        return tuple(ordered)
    rest = ordered[_MAX_CAUSES - 1 :]
    more = Cause(reason=rest[0].reason, sentence=f"{len(rest)} more rules provide no value either")
    return (*ordered[: _MAX_CAUSES - 1], more)
