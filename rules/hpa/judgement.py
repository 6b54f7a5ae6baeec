"""What is wrong or remarkable about the metrics of an HPA and its last sync, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rules.findings import Finding, State, failure, ok, skipped, warning
from rules.hpa import proposal, reading, units
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.proposal import Proposal
from rules.hpa.reading import ApiReply, ApiRequest, Observation
from rules.query import nature
from rules.quoting import counted, listed

_FAR = 10
"""How many times maxReplicas a recommendation is, if a unit is probably wrong."""
UNBLOCK = (
    "keep one of these HPAs, with the metrics of all; if their targets differ, let each select "
    "pods of its own"
)
"""What to do if HPAs have the same pods, so that the controller scales neither."""
FORBIDDEN = frozenset({401, 403})
_SEE = "docs/troubleshooting.md#what-do-the-reasons-mean explains the reason"


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


def judge(name: str, request: ApiRequest, reply: ApiReply, see: str) -> Finding | None:
    """Return why a metric has no value, or not for all objects; None if it has.

    `see` is what to do if the API server answers instead of the adapter.
    """
    if reading.is_without_usage(request, reply):
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
    if found := _doubt_of_sum(proposed):
        return found
    if proposed.note:
        return Finding(state=State.WARNING, subject=metric.name, fact=proposed.note)
    if proposed.replicas is None:
        return None
    return units.doubt(metric, proposed.current, proposed.ratio)


def needs_query(proposed: Proposal) -> bool:
    """Return whether only the query can tell that the items must not be added up."""
    return len(proposed.items) > 1 and not nature.of_name(proposed.metric.name)


def _doubt_of_sum(proposed: Proposal) -> Finding | None:
    """Return why the sum of an external metric is not what its author wants; None if it is."""
    metric, items = proposed.metric, proposed.items
    if items and min(items) < 0 and metric.target == "AverageValue":
        lowest = metric.readable(min(items))
        fact = f"{metric.name} has an item of {lowest}. While the items are added up, "
        if len(items) == 1:
            fact = f"The value is below 0 ({lowest}): "
        fact += (
            "Kubernetes 1.34 and later take a sum below 0 for an overflow and scale towards "
            "maxReplicas; older ones do not scale up"
        )
        return warning("", fact, cure="Write clamp_min(..., 0) in metricsQuery")
    if len(items) < 2 or not (found := nature.doubt_of_sum(metric.name, proposed.query)):
        return None
    number = f"{counted(len(items), 'item')} ({listed(map(metric.readable, items))})"
    shown = f"{metric.name} is {metric.readable(proposal.total(metric, items))}"
    fact = f"{shown}: the controller adds {number}, but each is {found.fact}"
    return replace(found, fact=fact)


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


def last_failure(observation: Observation) -> tuple[str, str]:
    """Return how the last sync of the controller failed and what to do; empty if it did not.

    The caller has other rights than the controller, and reads at another time.
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
