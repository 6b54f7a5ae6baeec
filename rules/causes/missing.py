"""Causes of a missing metric: which step from rule to sample failed, and what to do about it.

Pure. A cause quotes rules, and the reply of Prometheus to a query that it refused, so only
callers who may read discovery get it. `samples` finds causes by further queries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rules.causes import candidates, suggestions, wording
from rules.causes.candidates import Inventory
from rules.causes.reasons import Reason
from rules.causes.wording import printable
from rules.errors import PlanError
from rules.exporters import generations
from rules.exporters.generations import ExporterGeneration
from rules.findings import Finding, State
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kinds
from rules.query.catalog import Entry, Series
from rules.query.plan import ExternalPlan, Plan
from rules.quoting import counted, listed
from rules.ruleset import CompiledRule

_MAX_CAUSES = 8
_NOW = 5.0
"""Seconds since a relist for which its result is one of now."""
_SCRAPE_INTERVAL = 60.0
"""Prometheus' default, in seconds. An exporter that starts with the adapter is scraped by then."""

_UNKNOWN_FUNCTION = re.compile(r'unknown function with name "(\w+)"')
_OLDER = {"histogram_avg": "histogram_sum(X) / histogram_count(X)"}
"""Function -> what means the same in an older Prometheus."""

LabelsBySeries = Mapping[tuple[int, str], Collection[str]]
"""`CompiledRule.index` and the name of a series -> the labels that Prometheus has for it now."""


_ORDER: Mapping[str, int] = {reason: position for position, reason in enumerate(Reason)}
SEE_LOG = "The adapter's log has the error"
"""Cure of a cause whose error quotes the backend, which only the log may do."""


def of_metric(
    inventory: Inventory, metric: str, resource: GroupResource | None, labels: LabelsBySeries
) -> tuple[Finding, ...]:
    """Return why no series provides `metric` for `resource`; empty if the last relist found one.

    `resource` is None for an external metric. `labels` has the present labels of the series that
    `series_without_label` returns; for others, those that relists queried are reported.
    """
    rules = inventory.ruleset.external if resource is None else inventory.ruleset.rules
    causes: list[Finding] = []
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
        if cause.reason == Reason.WRONG_NAME or not causes:
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


def of_plan(inventory: Inventory, plan: Plan, found: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return why a plan that Prometheus answered gave no value for any object.

    `found` has the causes of the first steps that `samples` found. Until every rule was listed, the
    labels by which it was queried are guesses, so nothing else counts. Nor does anything if these
    labels changed before it was answered.
    """
    causes = []
    rules = {step.rule.index: step.rule for step in plan.steps}
    guessed = [
        unseen
        for rule in rules.values()
        if inventory.status(rule).listed is None
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
        causes.append(
            rule.config.where.finding(
                Reason.NO_SAMPLE,
                f"{rule.config.where} returned no sample for "
                f"{wording.objects(plan.resource, plan.names, plan.namespace)}",
                f"It matches {printable(step.series)} by {wording.matchers(plan, step.binding)}: "
                "check that the objects are scraped and their series have these label values",
                named=False,
            )
        )
    return _most_specific(causes)


def of_query(inventory: Inventory, plan: ExternalPlan, found: Sequence[Finding] = ()) -> Finding:
    """Return why the query of an external metric returned no sample; `found` is as in `of_plan`."""
    rule = plan.step.rule
    listed = any(each.name == plan.step.series for each in inventory.series(rule))
    unseen = None if listed else _unseen(inventory, rule, plan.metric)
    # The query was answered, which says more than a relist that failed or did not run yet.
    if unseen and unseen.reason == Reason.NO_SERIES:
        return unseen
    if found:
        return found[0]
    query = wording.code(plan.promql())
    fact = (
        f"{rule.config.where} returned no sample: {query} has no result now, or only NaN or Inf "
        "(`onNaN: zero` counts them as 0)"
    )
    return rule.config.where.finding(Reason.NO_SAMPLE, fact, named=False)


def listed_meanwhile() -> Finding:
    """Return the cause for a query by labels that a relist replaced before it was answered."""
    fact = "the labels of its series became known while it was queried"
    return Finding(reason=Reason.NOT_LISTED_YET, fact=fact, cure="Retry now", state=State.PENDING)


def no_query(error: PlanError) -> Finding:
    """Return the cause for a request that has no valid query."""
    fact = " ".join(str(error).split())
    return Finding(reason=Reason.NO_QUERY, fact=fact, cure="Correct the rule or the selector")


def rules_not_loaded(namespace: str) -> Finding:
    """Return the cause while ConfigMaps with rules of teams are not loaded; empty for all."""
    place = f"of namespace {printable(namespace)}" if namespace else "of teams"
    fact = f"the rules {place} are not loaded yet, and no other rule produces the metric"
    return Finding(reason=Reason.RULES_NOT_LOADED, fact=fact, cure="Retry", state=State.PENDING)


def rules_unreadable() -> Finding:
    """Return the cause for a metric that no rule produces while those of teams are not known."""
    return Finding(
        reason=Reason.RULES_UNREADABLE,
        fact="the rules of teams could not be read: the ConfigMaps with them cannot be listed",
        cure="The adapter's log and `/readyz/rights` say why",
        lasting=True,
    )


def rules_refused(namespace: str, problems: Mapping[str, str]) -> Finding:
    """Return the cause for a metric that no rule produces while ConfigMaps are refused.

    `problems` says why, by the name of the ConfigMap.
    """
    found = listed(
        (
            f"{name}: {wording.truncate(' '.join(each.split()))}"
            for name, each in sorted(problems.items())
        ),
        separator="; ",
    )
    fact = (
        f"no rule produces the metric, and ConfigMaps with rules in namespace "
        f"{printable(namespace)} are refused: {found}"
    )
    return Finding(reason=Reason.RULES_REFUSED, fact=fact)


def with_team(causes: Iterable[Finding], of_team: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return why no rule produces a metric, with what is wrong with the rules of its namespace."""
    return _most_specific((*causes, *of_team))


def unknown_resource(resource: str, kinds: Kinds) -> Finding:
    """Return the cause for a resource, as the request spells it, that does not exist."""
    name = resource.partition(".")[0].lower()
    similar = suggestions.similar_names(name, {kind.resource for kind in kinds})
    near = wording.did_you_mean(similar)
    cure = "" if near else "Correct the resource, or install its CustomResourceDefinition"
    fact = f"the cluster has no resource {printable(resource)}{near}"
    return Finding(reason=Reason.UNKNOWN_RESOURCE, fact=fact, cure=cure)


def no_match(resource: GroupResource, *, namespace: str, selector: str) -> Finding:
    """Return the cause for a label selector that matches no object."""
    place = f" in namespace {printable(namespace)}" if namespace else ""
    matching = f"matches the label selector {wording.truncate(selector)}" if selector else "exists"
    unfinished = "unfinished " if resource == PODS else ""
    fact = f"no {unfinished}{wording.any_object(resource)}{place} {matching}"
    cure = f"Compare the selector with the labels of the {resource}" if selector else ""
    if selector and resource == PODS:
        cure += "; an HPA uses the selector of its scale target"
    return Finding(reason=Reason.NO_OBJECT, fact=fact, cure=cure)


def without_value(plan: Plan, values: Collection[str]) -> Finding:
    """Return the cause for a list that lacks some of the objects."""
    cure = "`gpu-metrics-adapter explain` says why"
    return Finding(reason=Reason.NO_SAMPLE, fact=_lacking(plan, values, "value"), cure=cure)


def without_usage(plan: Plan, usages: Collection[str]) -> Finding:
    """Return the cause for pods or nodes of metrics.k8s.io without a sample: not in `usages`."""
    (step,) = plan.steps
    by = " and ".join(filter(None, (step.binding.resource, step.binding.namespace)))
    exporter = "node-exporter" if plan.resource == NODES else "the kubelets (cAdvisor)"
    return Finding(
        reason=Reason.NO_SAMPLE,
        fact=f"{_lacking(plan, usages, plan.metric)}. {step.rule.config.where} returned no sample "
        "for them",
        cure=f"A new one is not scraped yet; otherwise check that Prometheus scrapes {exporter}, "
        f"and compare the labels of its series by {by}",
    )


def without_finite_usage(plan: Plan, names: Collection[str]) -> Finding:
    """Return the cause for pods or nodes of metrics.k8s.io that have a sample that is no value."""
    (step,) = plan.steps
    others = set(plan.names).difference(names)
    return Finding(
        reason=Reason.NOT_FINITE,
        fact=f"{_lacking(plan, others, plan.metric)}. {step.rule.config.where} returned NaN or Inf "
        "for them, which is not a value",
        cure="Correct the query (does it divide by 0?)",
    )


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
) -> Finding:
    """Return the cause for a query that failed; `key` is its key in the rule.

    `refusal` is Prometheus' error if it refused this query; otherwise `problem` says why Prometheus
    answers no query, if that is known: `cannot be reached`. `query` is the rendered query, if it is
    short enough to be shown. `too_large` says that it was refused because of a limit.
    """
    if refusal:
        error = wording.truncate(" ".join(refusal.split()))
        shown = f" {wording.code(query)}" if query else ""
        if too_large:
            return Finding(
                reason=Reason.LIMIT_EXCEEDED,
                subject=where,
                fact=f"the rendered query{shown} exceeds a limit: {error}",
                cure=f"Select fewer series in `{key}`, or raise the limit where Prometheus or its "
                "proxy sets it",
            )
        return Finding(
            reason=Reason.QUERY_REFUSED,
            subject=where,
            fact=f"Prometheus refused the rendered query{shown} with {error}",
            cure=_correct(key, refusal),
        )
    return Finding(
        reason=Reason.PROMETHEUS_UNAVAILABLE,
        fact=f"Prometheus {problem or 'did not answer the query'}",
        cure=SEE_LOG,
        lasting=bool(problem),
    )


def _correct(key: str, refusal: str) -> str:
    """Return the cure for a query that Prometheus refused."""
    if (function := _UNKNOWN_FUNCTION.search(refusal)) is None:
        return f"Correct `{key}`"
    older = _OLDER.get(function[1])
    instead = f" by {older}" if older else ""
    return (
        f"Correct `{key}`: this Prometheus may be too old for {function[1]}. "
        f"Upgrade it, or replace the function{instead}"
    )


def long_query(where: str, length: int) -> Finding:
    """Return the cause for a query that was refused because of its length, in bytes of a URL."""
    return Finding(
        reason=Reason.QUERY_REFUSED,
        subject=where,
        fact=f"Prometheus or a proxy before it refused a query of {length} bytes, because it "
        "matches each name",
        cure="Write the query so that it can be shared (`check` prints what prevents it), or raise "
        "the limit (VictoriaMetrics: -search.maxQueryLen)",
    )


def partial_response(where: str) -> Finding:
    """Return the cause for samples that may be missing from a response."""
    return Finding(
        reason=Reason.PARTIAL_RESPONSE,
        subject=where,
        fact="Prometheus says that its response is partial, so samples may be missing",
        cure="check its storage nodes, stores and replicas; the adapter's log quotes it. "
        "`allowPartialResponse` or --allow-partial-responses serves such values",
    )


def window_not_full(where: str, reason: str) -> Finding:
    """Return the cause for a query that Prometheus has no data for yet; `reason` says why."""
    return Finding(
        reason=Reason.WINDOW_NOT_FULL,
        subject=where,
        fact=f"Prometheus {reason}",
        cure="Wait; if this stays, read the log of the container",
    )


def failed_fallback(server: str, answer: str) -> Finding:
    """Return the cause for an external metric of which another server has no value either.

    `answer` says what it did, as the predicate of a sentence.
    """
    fact = f"no rule produces the metric, and {server} of --external-fallback {answer}"
    return Finding(reason=Reason.FALLBACK_FAILED, fact=fact)


def negative_value() -> Finding:
    """Return the cause for a negative external metric whose target is an AverageValue."""
    return Finding(
        reason=Reason.NEGATIVE_VALUE,
        fact="the external metric has a value below 0, and the target of the HPA is an "
        "AverageValue. While the values are added up, Kubernetes 1.34 and later take a sum below 0 "
        "for an overflow and scale to maxReplicas",
        cure="Write clamp_min(..., 0) in `metricsQuery`",
        lasting=True,
    )


def missing_right(right: str, grant: str) -> Finding:
    """Return the cause for objects that the adapter may not list; `grant` says what to do."""
    fact = f"the adapter has no permission to {right}"
    return Finding(reason=Reason.MISSING_RIGHT, fact=fact, cure=grant, lasting=True)


def failed_list(resource: GroupResource) -> Finding:
    """Return the cause for objects that the API server did not list."""
    fact = f"the API server did not list {resource}"
    return Finding(reason=Reason.LIST_FAILED, fact=fact, cure=SEE_LOG)


def other_exporter(
    rule: CompiledRule, found: ExporterGeneration, presets: Sequence[str]
) -> Finding:
    """Return the cause for series of another exporter or model server than the rule reads."""
    flags = " ".join(f"--preset={name}" for name in presets)
    return rule.config.where.finding(
        Reason.OTHER_EXPORTER,
        f"Prometheus now has no series {wording.code(rule.config.series_query)}, which "
        f"{rule.config.where} reads, but has those of {found.title}",
        f"use {flags} instead" if presets else f"{generations.UNREAD}. {found.advice}",
        named=False,
        lasting=True,
    )


def other_scope(resource: GroupResource, *, namespaced: bool) -> Finding:
    """Return the cause for a path whose scope does not fit the resource."""
    if namespaced:
        fact = f"{resource} are namespaced, and the path has no namespace"
        path = f"namespaces/NAMESPACE/{resource}/NAME"
    else:
        # `namespaces/NAME/METRIC` is not a route: Kubernetes parses NAME as the namespace.
        path = "namespaces/NAME/metrics" if resource == NAMESPACES else f"{resource}/NAME"
        fact = f"{resource} are cluster-scoped, and the path has a namespace"
    return Finding(reason=Reason.OTHER_SCOPE, fact=fact, cure=f"use {path}/METRIC")


def impossible_object(resource: GroupResource, *, namespace: str, name: str) -> Finding:
    """Return the cause for an object whose name, or whose namespace's name, Kubernetes refuses."""
    found = wording.objects(resource, [name], namespace)
    fact = "Kubernetes does not accept this name"
    return Finding(reason=Reason.NO_OBJECT, subject=found, fact=fact)


def no_object(resource: GroupResource, *, namespace: str, name: str) -> Finding:
    """Return the cause for a pod that has finished."""
    pod = wording.objects(resource, [name], namespace)
    fact = f"{pod} has succeeded or failed, so it has no current value"
    return Finding(reason=Reason.NO_OBJECT, fact=fact)


def no_pods(resource: GroupResource, names: Sequence[str], *, namespace: str) -> Finding:
    """Return the cause for workloads of whose pods none is live."""
    return Finding(
        reason=Reason.NO_OBJECT,
        subject=wording.objects(resource, names, namespace),
        fact="its selector matches no running pod",
        cure="If it is scaled to 0, use an external metric to scale from 0",
        lasting=True,
    )


def absent_object(resource: GroupResource, name: str, *, namespace: str) -> Finding:
    """Return the cause for an object that does not exist."""
    absent = wording.objects(resource, [name], namespace)
    place = " or the namespace" if namespace else ""
    hpa = "" if resource == PODS else ": an HPA has the name in `describedObject`"
    return Finding(
        reason=Reason.NO_OBJECT,
        fact=f"{absent} does not exist",
        cure=f"Correct the name{place}{hpa}",
        lasting=True,
    )


def unread_scale(resource: GroupResource, name: str, *, namespace: str) -> Finding:
    """Return the cause for a scale target whose selector is not known."""
    return Finding(
        reason=Reason.NO_OBJECT,
        subject=wording.objects(resource, [name], namespace),
        fact="its scale has not been read yet, does not exist, or has no selector",
        cure=f"Let an HPA refer to it, and let the adapter get {resource.resource}/scale: "
        "it reads each scale once a minute",
    )


def too_young(entry: Entry, ages: Mapping[str, float], *, namespace: str) -> Finding:
    """Return the cause for pods that `minPodAge` leaves out; `ages` in seconds, 0 if not Ready."""
    longest = max(ages.values())
    oldest = f"the oldest has been for {longest:.0f} s" if longest else "none is Ready"
    rule = max(
        (source.rule for source in entry.sources), key=lambda rule: rule.config.min_pod_age or 0.0
    )
    return rule.config.where.finding(
        Reason.POD_TOO_YOUNG,
        f"{rule.config.where} leaves out pods until they have been Ready for "
        f"{entry.min_pod_age:g} s (`minPodAge`): {wording.names(ages)} in namespace "
        f"{printable(namespace)}; {oldest}",
        "Wait, or lower `minPodAge`",
        named=False,
        state=State.PENDING,
    )


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
) -> Finding:
    """Return why a rule has series of the metric, but not for `resource`."""
    bound, where = rule.mapping.bind(inventory.kinds), rule.config.where
    others = sorted({other for each in series for other in bound.associations(each.labels)})
    provided = wording.names(map(str, others))
    expected = bound.labels(resource)
    present = _labels(rule, series, labels)
    unseen = [label for label in expected if label in present]
    if unseen and resource in bound.associations(present):
        return where.finding(
            Reason.NOT_LISTED_YET,
            f"{wording.series(series)} has the label {wording.names(unseen)}, but the last relist "
            "did not see it",
            "The metric appears after the next relist",
        )
    if unseen:
        mapped = wording.names(map(str, bound.associations(unseen))) or "an unknown resource"
        return where.finding(
            Reason.OTHER_RESOURCE,
            f"label {wording.names(unseen)} is mapped to {mapped}, not to {resource}",
            "Change the resource in the request, or add an override to `resources`",
        )
    if expected or not others:
        return _labels_missing(rule, series, resource, expected, labels, provided=provided)
    by_pods = resource in inventory.kinds.workloads and PODS in others
    return where.finding(
        Reason.OTHER_RESOURCE,
        f"{where} provides the metric only for {provided}",
        f"Use `type: Pods` in the HPA, or set `workloads` in the rule to have it for {resource}"
        if by_pods
        else f"Request it for these, or map a label to {resource} in `resources`",
        named=False,
        lasting=by_pods,
    )


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
) -> Finding:
    present = sorted(_labels(rule, series, labels))
    wanted = f"expected {wording.labels(expected)}" if expected else "`resources` maps none"
    found = f"found {wording.labels(present)}" if present else "found none that a rule maps"
    only = f". The metric exists only for {provided}" if provided else ""
    return rule.config.where.finding(
        Reason.LABELS_MISSING,
        f"{wording.series(series)} has no label for {resource}: {wanted}; {found}{only}",
        "Map the right label in `resources`, or add it in the exporter or scrape config; idle GPUs "
        "have none",
    )


def _unseen(inventory: Inventory, rule: CompiledRule, metric: str) -> Finding | None:
    """Return why no series of `rule` is named `metric`.

    Returns None if the last relist found series, and none of them must have this name.
    """
    status = inventory.status(rule)
    certain = candidates.must_produce(rule, metric)
    produces = f"{rule.config.where} {'produces' if certain else 'may produce'} it"
    query = wording.code(rule.config.series_query)
    if status.failed:
        ago = "" if status.listed is None else wording.age(status.listed, inventory.now)
        last = f"{ago} ago" if ago else "never"
        fact = f"{produces}, but the last relist of {query} failed (last success: {last})"
        if status.refusal:
            fact += f": {wording.truncate(' '.join(status.refusal.split()))}"
        cure = "Correct `seriesQuery`" if status.refusal else SEE_LOG
        return rule.config.where.finding(Reason.RELIST_FAILED, fact, cure, named=False)
    if status.listed is None:
        return rule.config.where.finding(
            Reason.NOT_LISTED_YET,
            f"{produces}, but its first relist has not finished: the adapter has just started",
            "Retry in a few seconds",
            named=False,
            state=State.PENDING,
        )
    series, ago = inventory.series(rule), f"{wording.age(status.listed, inventory.now)} ago"
    if not series and status.partial:
        return replace(partial_response(produces), where=rule.config.where.place)
    if not series:
        present = inventory.now - status.listed < _NOW
        when = f"has no series of {query} now" if present else f"had no series of {query} {ago}"
        problem, cure = f"Prometheus {when}", "Check that the exporter is scraped"
    elif certain:
        cure = ""
        problem = (
            "its `seriesFilters` and `name.matches` reject all series of "
            f"{query} ({wording.series(series)}), listed {ago}"
        )
    else:
        return None
    first = status.first_listed
    new = first is not None and inventory.now - first < _SCRAPE_INTERVAL
    return rule.config.where.finding(
        Reason.NO_SERIES,
        f"{produces}, but {problem}",
        cure,
        named=False,
        state=State.PENDING if new else State.FAILURE,
    )


def _wrong_name(
    inventory: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> Finding:
    """Return the cause for a name that no rule is certain to produce."""
    kind = "rule" if resource is not None else "external rule"
    suggestion = suggestions.suggest(inventory, rules, metric, resource)
    if not rules:
        others = len(inventory.ruleset.rules if resource is None else inventory.ruleset.external)
        fact, cure = f"no {kind} is loaded", "Set --config to a rules file, or --preset"
        if others and resource is None:
            fact = (
                f"{counted(others, 'rule')} for custom metrics, but none for external ones is "
                f"loaded{suggestion.text}"
            )
            cure = "Add rules to `externalRules` by --config, or the preset of a gateway"
        elif others:
            fact = (
                f"{counted(others, 'external rule')}, but none for custom metrics is loaded"
                f"{suggestion.text}"
            )
            cure = "Add rules to `rules` by --config, or a preset"
        summary = f"no {kind} is loaded{suggestion.lasting}" if others and suggestion.text else ""
        return Finding(reason=Reason.NO_RULE, fact=fact, cure=cure, summary=summary)
    none = f"no {kind} produces a metric named {printable(metric)}"
    if suggestion.text:
        summary = none + suggestion.lasting
        return Finding(reason=Reason.WRONG_NAME, fact=none + suggestion.text, summary=summary)
    derived = sum(candidates.fixed_name(rule) is None for rule in rules)
    naming = f", {derived} of which name metrics after series" if derived else ""
    return Finding(
        reason=Reason.NO_RULE,
        fact=f"{none} ({len(rules)} loaded{naming})",
        cure="Add a rule, or use a name in discovery",
    )


def _most_specific(causes: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the distinct causes in the order of `Reason`, at most eight."""
    ordered = sorted(dict.fromkeys(causes), key=lambda cause: _ORDER[cause.reason])
    if len(ordered) <= _MAX_CAUSES:
        return tuple(ordered)
    rest = ordered[_MAX_CAUSES - 1 :]
    more = Finding(reason=rest[0].reason, fact=f"{len(rest)} more rules provide no value either")
    return (*ordered[: _MAX_CAUSES - 1], more)
