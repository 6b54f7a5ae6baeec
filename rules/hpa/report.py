"""Describes an observation of an HPA for people: the steps of the computation, and a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from rules.hpa import proposal, reaction, reading
from rules.hpa.autoscaler import Document, ScalingRules
from rules.hpa.decision import Decision
from rules.hpa.judgement import advice, denied, doubt_of, last_failure, unblock
from rules.hpa.proposal import Proposal
from rules.hpa.reaction import Reaction
from rules.hpa.reading import Observation
from rules.quoting import counted, listed

_OVERFLOW = "more than 2147483647 overflows in the controller, and counts as none"
_LIMITS = {
    "TooManyReplicas": "limited by maxReplicas",
    "TooFewReplicas": "limited by minReplicas",
    "ScaleUpLimit": "limited by how fast a scale-up may be",
    "ScaleDownLimit": "limited by how fast a scale-down may be",
    "Stabilized": "held by the stabilization window",
}


def lines(observation: Observation, decision: Decision) -> Iterator[str]:
    """Yield the steps, a line each; lines below another one are indented."""
    hpa, scale = observation.hpa, observation.scale
    yield f"HPA {hpa.namespace}/{hpa.name}"
    yield f"  target     {hpa.target}, {hpa.minimum} to {hpa.maximum} replicas"
    yield f"  scale      {scale.spec} wanted, {scale.status} present, selector {scale.selector}"
    yield f"  pods       {_pods(observation)}"
    down, up = (each * 100 for each in hpa.tolerances)
    yield f"  tolerance  {down:.4g} % below the target, {up:.4g} % above"
    if hpa.conditions:
        reasons = ", ".join(reason for _, reason, _ in hpa.conditions.values())
        if hpa.outdated:
            reasons += ", before the spec changed"
        yield f"  last sync  {counted(hpa.current, 'replica')}, {hpa.desired} desired: {reasons}"
    for title, rules in (("scale up", hpa.up), ("scale down", hpa.down)):
        if rules is not None:
            yield f"  {title:<11}{_rules(rules)}"
    for number, each in enumerate(observation.proposals, 1):
        yield f"Metric {number}: {each.metric}"
        for line in _proposal(each, scale.spec):
            yield f"  {line}"
    if any(_reactions(observation)):
        yield "Reaction to a change of load"
        for line in reaction.lines(_reactions(observation), observation.pods):
            yield f"  {line}"
    yield "Decision"
    if decision.inactive:
        yield f"  {decision.inactive}"
    if decision.recommended is not None and decision.decisive is not None:
        yield f"  recommended: {decision.recommended}, by {decision.decisive.metric}"
    if decision.limit:
        yield f"  {_LIMITS[decision.limit]}: {decision.low}"
    if decision.unknown:
        yield f"  depends on {decision.unknown}, which only the controller knows"
    several = "" if decision.replicas is not None else f" to {decision.high}"
    yield f"  desired: {decision.low}{several}"


def _reactions(observation: Observation) -> list[Reaction | None]:
    return [each.reaction for each in observation.proposals]


def verdict(observation: Observation, decision: Decision, why: Sequence[str] = ()) -> str:
    """Return in one sentence what the controller does now, and what to do about it.

    `why` has what `explain` says about the metrics without a value that it can explain.
    """
    hpa, current = observation.hpa, observation.scale.spec
    subject = f"{hpa.namespace}/{hpa.name}"
    if lacking := denied(observation):
        return f"cannot tell about {subject}: {lacking}"
    keeps = f"{subject} keeps {counted(current, 'replica')} of {hpa.target}"
    if observation.blocked:
        cure = unblock(observation)
        return f"{keeps}: {observation.blocked}. {cure[0].upper()}{cure[1:]}"
    failed = [each for each in observation.proposals if each.replicas is None]
    if decision.inactive and failed:
        if why:
            return f"{keeps}: {why[0]}"
        error = f"{failed[0].error}{_hint(observation, failed[0])}"
        return f"{keeps}, because {decision.inactive}: {error}"
    if decision.inactive and decision.replicas == current:
        return f"{keeps}: {decision.inactive}. Set its replicas to at least 1"
    refused, cure = last_failure(observation)
    if decision.inactive and refused:
        return f"{keeps}, although {decision.inactive}: {refused}. {cure}"
    if decision.inactive:
        return f"{subject} scales {hpa.target} to {decision.replicas}: {decision.inactive}"
    assert decision.decisive is not None  # as it is active
    present = _present(decision.decisive)
    if refused:
        return f"{keeps}: {refused}. For you, {present}. {cure}"
    some = f"; {failed[0].metric} has no value and is ignored" if failed else ""
    found = next(filter(None, map(doubt_of, observation.proposals)), None)
    doubt = "" if found is None else re.sub("^the ", "The ", found.sentence)
    if decision.replicas is None:
        return (
            f"{subject} scales {hpa.target} from {current} to {_goal(decision, current)}, now or "
            f"later: it depends on {decision.unknown}; {present}{some}. "
            f"{doubt or 'Wait, or shorten the window in spec.behavior'}"
        )
    what = doubt or advice(
        hpa, decision.limit, decision.recommended or 0, scales=decision.replicas != current
    )
    if decision.replicas != current:
        limit = f", {_LIMITS[decision.limit]}" if decision.limit else ""
        return (
            f"{subject} scales {hpa.target} from {current} to "
            f"{counted(decision.replicas, 'replica')}{limit}: {present}{some}. "
            f"{what}"
        )
    if decision.limit:
        return (
            f"{keeps}, {_LIMITS[decision.limit]}: the metrics recommend {decision.recommended}; "
            f"{present}{some}. {what}"
        )
    return f"{keeps}: {present}{some}. {what}"


def _goal(decision: Decision, current: int) -> str:
    """Return where a range leads: to the recommendation, unless what is unknown goes beyond it."""
    goal = min(max(decision.recommended or 0, decision.low), decision.high)
    if {decision.low, decision.high} == {goal, current}:
        return str(goal)
    return f"between {decision.low} and {decision.high}"


def _present(proposed: Proposal) -> str:
    within = ", within the tolerance" if proposed.within else ""
    return f"{proposed.metric} is {_values(proposed)}{within}"


def _hint(observation: Observation, failed: Proposal) -> str:
    """Return what to do about a metric that cannot be explained, as the end of a sentence."""
    if failed.cure:
        return f". {failed.cure}"
    if observation.requests[observation.proposals.index(failed)] is None:
        return f". {reading.DOCTOR}"
    return ""


def document(observation: Observation, decision: Decision, verdict: str) -> Document:
    """Return the observation and the decision as a document for clients."""
    hpa, scale = observation.hpa, observation.scale
    return {
        "kind": "HorizontalPodAutoscalerExplanation",
        "apiVersion": "explain.gpu-metrics-adapter/v1",
        "namespace": hpa.namespace,
        "name": hpa.name,
        "target": str(hpa.target),
        "minReplicas": hpa.minimum,
        "maxReplicas": hpa.maximum,
        "currentReplicas": scale.spec,
        "pods": len(observation.pods),
        "metrics": [_metric(each) for each in observation.proposals],
        "reaction": reaction.document(_reactions(observation), observation.pods),
        "recommendedReplicas": decision.recommended,
        "desiredReplicas": decision.replicas,
        "desiredRange": [decision.low, decision.high],
        "limit": decision.limit,
        "verdict": verdict,
    }


def _metric(proposed: Proposal) -> Document:
    metric, groups = proposed.metric, proposed.groups
    known = proposed.replicas is not None
    return {
        "type": metric.type,
        "name": metric.name,
        "targetType": metric.target,
        "target": metric.written(metric.value),
        "current": metric.written(proposed.current) if known else None,
        "text": _values(proposed) if known else metric.readable_of_target(None),
        "ahead": proposed.ahead,
        "ratio": proposed.ratio if math.isfinite(proposed.ratio) else None,
        "withinTolerance": proposed.within,
        "missingPods": list(groups.missing),
        "unreadyPods": list(groups.unready),
        "ignoredPods": list(groups.ignored),
        "proposedReplicas": None if proposed.replicas is None else max(0, proposed.replicas),
        "error": proposed.error,
    }


def _pods(observation: Observation) -> str:
    phases: dict[str, int] = {}
    for pod in observation.pods:
        state = "being deleted" if pod.deleted else pod.phase
        if state == "Running":
            state = "ready" if pod.ready == "True" else "not ready"
        phases[state] = phases.get(state, 0) + 1
    states = ", ".join(f"{number} {state}" for state, number in phases.items())
    return f"{len(observation.pods)} match the selector" + (f": {states}" if states else "")


def _proposal(proposed: Proposal, current: int) -> Iterator[str]:
    metric, groups = proposed.metric, proposed.groups
    if proposed.replicas is None:
        yield f"no value: {proposed.error}"
        return
    yield f"current {_values(proposed)} ({metric.target}), ratio {proposed.ratio:.4g}"
    if proposed.ahead:
        yield f"ahead: {proposed.ahead}"
    if len(proposed.items) > 1:
        items = listed(map(metric.readable, proposed.items))
        yield f"the controller adds up {len(proposed.items)} items: {items}"
    if proposed.items and proposal.total(metric, proposed.items) == proposal.LARGEST:
        negative = "is below 0, which the controller takes for an overflow"
        yield f"the sum {negative if min(proposed.items) < 0 else 'overflows'}"
    if groups.missing:
        yield f"without a value: {listed(groups.missing)}"
        yield "  (they count as the target before a scale-down, and as 0 before a scale-up)"
    if proposed.others:
        yield f"not selected by the scale: {listed(proposed.others)}"
    if groups.unready:
        yield f"not ready: {listed(groups.unready)} (they count as 0 before a scale-up)"
    if groups.ignored:
        yield f"ignored, because they end or failed: {listed(groups.ignored)}"
    if proposed.adjusted is not None:
        yield f"ratio with these pods: {proposed.adjusted:.4g}"
    if proposed.within:
        yield "within the tolerance"
    if proposed.ready is not None and not proposed.within and proposed.adjusted is None:
        yield f"the ratio is multiplied by {counted(proposed.ready, 'pod')}"
    change = "no change" if proposed.replicas == current else f"from {current}"
    if proposed.replicas < 0:
        change = "the value is negative" if proposed.ratio < 0 else _OVERFLOW
    yield f"proposes {counted(max(0, proposed.replicas), 'replica')} ({change})"


def _values(proposed: Proposal) -> str:
    metric = proposed.metric
    current = proposed.current
    if proposed.items and proposal.total(metric, proposed.items) == proposal.LARGEST:
        current = sum(proposed.items)  # the controller's own number is 9223372036854775807m
    return metric.readable_of_target(current)


def _rules(rules: ScalingRules) -> str:
    policies = ", ".join(
        f"{each.value}{' %' if each.type == 'Percent' else ' pods'} in {each.period} s"
        for each in rules.policies
    )
    return f"{rules.select} of {policies}; window {rules.window} s"
