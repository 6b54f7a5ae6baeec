"""Describes an observation of an HPA for people: the steps of the computation, and a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rules.findings import Finding, State, failure, ok, skipped, warning
from rules.hpa import proposal, reading, sums, units
from rules.hpa.autoscaler import Autoscaler, Document, ScalingRules
from rules.hpa.decision import Decision
from rules.hpa.proposal import Proposal
from rules.hpa.reading import Observation, Reply, Request
from rules.metrics_apis import CUSTOM, EXTERNAL, USAGE
from rules.quoting import counted

_MAX_NAMES = 5
_FAR = 10
"""How many times maxReplicas a recommendation is, if a unit is probably wrong."""
_OVERFLOW = "more than 2147483647 overflows in the controller, and counts as none"
UNBLOCK = (
    "keep one of these HPAs, with the metrics of all; if their targets differ, let each select "
    "pods of its own"
)
"""What to do if HPAs have the same pods, so that the controller scales neither."""
FORBIDDEN = frozenset({401, 403})
_SEE = "docs/troubleshooting.md#what-do-the-reasons-mean explains the reason"
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
        yield f"  last sync  {counted(hpa.current, 'replica')}, {hpa.desired} desired: {reasons}"
    for title, rules in (("scale up", hpa.up), ("scale down", hpa.down)):
        if rules is not None:
            yield f"  {title:<11}{_rules(rules)}"
    for number, each in enumerate(observation.proposals, 1):
        yield f"Metric {number}: {each.metric}"
        for line in _proposal(each, scale.spec):
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


def verdict(observation: Observation, decision: Decision, why: Sequence[str] = ()) -> str:
    """Return in one sentence what the controller does now, and what to do about it.

    `why` has what `explain` says about the metrics without a value that it can explain.
    """
    hpa, current = observation.hpa, observation.scale.spec
    subject = f"{hpa.namespace}/{hpa.name}"
    keeps = f"{subject} keeps {counted(current, 'replica')} of {hpa.target}"
    if observation.blocked:
        return f"{keeps}: {observation.blocked}. {UNBLOCK[0].upper()}{UNBLOCK[1:]}"
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


def findings(observation: Observation, see: str) -> Iterator[Finding]:
    """Yield what is wrong or remarkable about each metric; `see` is as for `judge`.

    The subject is the name of the metric.
    """
    for request, reply, proposed in zip(
        observation.requests, observation.replies, observation.proposals, strict=True
    ):
        name = proposed.metric.name
        if request is None:
            yield failure(name, proposed.error, cure=proposed.cure or see)
        elif found := judge(name, request, reply, see):
            yield found
        elif doubt := doubt_of(proposed):
            yield replace(doubt, subject=name)
        elif len(proposed.items) > 1:
            yield ok(name, f"the HPA controller adds up {len(proposed.items)} items")


def judge(name: str, request: Request, reply: Reply, see: str) -> Finding | None:
    """Return why a metric has no value, or not for all objects; None if it has.

    `see` is what to do if the API server answers instead of the adapter.
    """
    if reply.status == 404 and USAGE.has(request.path):
        return failure(name, reading.NOT_SERVED, cure=reading.NO_USAGE)
    if not reply.failed:
        if reply.document.get("items"):
            return warning(name, reply.cause, cure=_SEE) if reply.cause else None
        return failure(name, f"no value. {reply.cause}", cure="" if reply.cause else _SEE)
    if reply.status in FORBIDDEN:
        return skipped(name, "this account may not read the metric")
    if reply.cause:
        return failure(name, reply.cause, cure="")
    message, status = " ".join(reply.message.split()), str(reply.status)
    said = not reply.status or message.startswith(status)
    return failure(name, message if said else f"status {status}: {message}", cure=see)


def doubt_of(proposed: Proposal) -> Finding | None:
    """Return why a value is probably not what its author wants; None if it is."""
    metric = proposed.metric
    if found := sums.doubt(proposed):
        return found
    if proposed.note:
        return Finding(state=State.WARNING, subject=metric.name, fact=proposed.note)
    if proposed.replicas is None:
        return None
    return units.doubt(metric, proposed.current, proposed.ratio)


def advice(hpa: Autoscaler, limit: str, recommended: int, *, scales: bool = False) -> str:
    """Return what to do about a limit; `recommended` are the replicas that metrics recommend."""
    if limit == "TooManyReplicas" and recommended >= _FAR * hpa.maximum:
        return (
            f"That is {_FAR} times maxReplicas or more: check that the target has the unit of the "
            "metric"
        )
    if scales or not limit:
        return "Nothing to do"
    if limit == "TooFewReplicas":
        return "Lower minReplicas to allow fewer" if hpa.minimum > 1 else "Nothing to do"
    if limit == "TooManyReplicas":
        return "Raise maxReplicas to allow more"
    return "Change spec.behavior to allow it"


def _goal(decision: Decision, current: int) -> str:
    """Return where a range leads: to the recommendation, unless what is unknown goes beyond it."""
    goal = min(max(decision.recommended or 0, decision.low), decision.high)
    if {decision.low, decision.high} == {goal, current}:
        return str(goal)
    return f"between {decision.low} and {decision.high}"


def last_failure(observation: Observation) -> tuple[str, str]:
    """Return how the last sync of the controller failed and what to do; empty if it did not.

    Whoever explains has other rights than the controller, and reads at another time.
    """
    for kind in ("AbleToScale", "ScalingActive"):
        if kind == "ScalingActive" and not observation.proposals:
            continue  # now the controller does not read metrics either
        status, reason, message = observation.hpa.conditions.get(kind, ("", "", ""))
        if status == "False":
            text = " ".join(message.split()).rstrip(".")
            return f"the last sync ended with {reason}: {text}", _cure(kind, text)
    return "", ""


def cure_of(kind: str, reason: str, message: str) -> str:
    """Return what to do about a condition of the controller that is False."""
    if reason == "AmbiguousSelector":
        return UNBLOCK[0].upper() + UNBLOCK[1:]
    if "forbidden" in message:
        return "Grant this right to the user in the message"
    if reason == "FailedGetScale":
        return reading.NO_TARGET
    if kind == "AbleToScale":
        return "Correct what the message names"
    return reading.DOCTOR


def _cure(kind: str, message: str) -> str:
    if "forbidden" in message:
        return (
            "You have this right, the HPA controller has not: grant it to the user in the message"
        )
    if kind == "AbleToScale":
        return "Correct what the message names"
    return (
        "If the condition stays for a minute, the controller gets another answer than you. Run: "
        "gpu-metrics-adapter doctor"
    )


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


def explains(request: Request) -> bool:
    """Return whether the adapter can explain a metric: it serves custom and external metrics."""
    return any(each.has(request.path) for each in (CUSTOM, EXTERNAL))


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
    if len(proposed.items) > 1:
        first = ", ".join(map(metric.written, proposed.items[:_MAX_NAMES]))
        more = ", ..." if len(proposed.items) > _MAX_NAMES else ""
        yield f"the controller adds up {len(proposed.items)} items: {first}{more}"
    if proposed.items and proposal.total(metric, proposed.items) == proposal.LARGEST:
        negative = "is below 0, which the controller takes for an overflow"
        yield f"the sum {negative if min(proposed.items) < 0 else 'overflows'}"
    if groups.missing:
        yield f"without a value: {_names(groups.missing)}"
        yield "  (they count as the target before a scale-down, and as 0 before a scale-up)"
    if groups.unready:
        yield f"not ready: {_names(groups.unready)} (they count as 0 before a scale-up)"
    if groups.ignored:
        yield f"ignored, because they end or failed: {_names(groups.ignored)}"
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
    return f"{metric.written(current)} of {metric.written(metric.value)}"


def _rules(rules: ScalingRules) -> str:
    policies = ", ".join(
        f"{each.value}{' %' if each.type == 'Percent' else ' pods'} in {each.period} s"
        for each in rules.policies
    )
    return f"{rules.select} of {policies}; window {rules.window} s"


def _names(names: Sequence[str]) -> str:
    first = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{first} and {more} more" if more > 0 else first
