"""What is wrong or remarkable about the metrics of an HPA and its last sync, and what to do.

The name of a metric tells its unit, which the target must have: the names of the presets do, and
those of most exporters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rules import quantity, rbac
from rules.findings import Finding, State, failure, ok, warning
from rules.hpa import proposal, reading
from rules.hpa.autoscaler import Autoscaler, MetricSpec
from rules.hpa.proposal import Proposal
from rules.hpa.reading import ApiReply, ApiRequest, Observation
from rules.query import nature
from rules.query.nature import PERCENT, SHARE
from rules.quoting import counted, listed

_SHARE_OR_PERCENT = re.compile(r".*utili[sz]ation.*")
_WHOLE = re.compile(r".*_(bytes|milliseconds|milliwatts)(_.*)?")
_ONE, _HUNDRED = 1000, 100_000
"""In thousandths."""
_FAR = 10
"""How many times its target a value has, or maxReplicas a recommendation, if a unit is wrong."""


def ceiling(name: str) -> float | None:
    """Return the highest value that a metric can have by its name; None if there is none."""
    if PERCENT.fullmatch(name):
        return 100.0
    return 1.0 if SHARE.fullmatch(name) else None


def is_share(name: str, value: int) -> bool:
    """Return whether a metric is a percentage by its name, and its highest value a share of 1."""
    return bool(PERCENT.fullmatch(name)) and 0 < value < _ONE


def doubt_of_target(name: str, value: int, *, external: bool) -> Finding | None:
    """Return why the target of a metric has another unit; None if it has not."""
    target = f"the target {quantity.readable(value)} of {name}"
    if _WHOLE.fullmatch(name) and value < _ONE:
        written = f"the target {quantity.decimal(value)} of {name}"
        fact = f"{written} is less than one: m means thousandths"
        return warning("", fact, cure="Write M or Mi for millions")
    if SHARE.fullmatch(name) and value > _ONE * (_FAR if external else 1):
        fact = f"{target} is above 1, and the metric is by its name a share of 1, so it is never"
        cure = "Write 700m for 70 %, or multiply by 100 in metricsQuery"
        return warning("", f"{fact} reached", cure=cure)
    if not PERCENT.fullmatch(name):
        return None
    if value < _ONE:
        cure = "Write the percentage: 20 for 20 %, not 0.2"
        return warning("", f"{target} is less than 1 %", cure=cure)
    # The sum of the series of an external metric may be above 100.
    if value > _HUNDRED * (_FAR if external else 1):
        fact = f"{target} is above 100 %, so it is never reached"
        return warning("", fact, cure="Write the percentage, such as 20")
    return None


def doubt(metric: MetricSpec, value: int, ratio: float) -> Finding | None:
    """Return why the target of a metric and its value have different units; None if they have not.

    `ratio` is the value divided by the target.
    """
    if metric.type in {"Resource", "ContainerResource"}:
        return None
    if found := doubt_of_target(metric.name, metric.value, external=metric.type == "External"):
        return found
    shown = f"{metric.name} is {quantity.readable(value)}"
    if metric.name.endswith("_total") and ratio >= _FAR:
        fact = f"{shown} and by its name a counter, which only rises"
        return warning("", fact, cure="Compute a rate in metricsQuery")
    if not PERCENT.fullmatch(metric.name) and not _SHARE_OR_PERCENT.fullmatch(metric.name):
        return None
    if 0 < value < _ONE and metric.value >= _FAR * _ONE:
        cure = (
            "If the exporter reports 0 to 1, multiply by 100 in metricsQuery, or write the target "
            "as a share of 1"
        )
        return warning("", f"{shown}, less than 1 %", cure=cure)
    if metric.value <= _ONE < value:
        target = quantity.readable(metric.value)
        fact = f"{shown} %, but its target {target}, a share of 1"
        return warning("", fact, cure="Write the percentage")
    return None


_UNBLOCK = (
    "keep one of these HPAs, with the metrics of all; if their targets differ, let each select "
    "pods of its own"
)
"""What to do if HPAs have the same pods, so that the controller scales neither."""
_SELECT = (
    "let its controller set the selector in the status, and set its path as labelSelectorPath in "
    "the CustomResourceDefinition"
)
"""What to do if a scale has no selector."""
_UNBLOCKS = {"AmbiguousSelector": _UNBLOCK, "InvalidSelector": _SELECT}
"""By the reason of the condition ScalingActive."""
_SEE = "docs/troubleshooting.md#what-do-the-reasons-mean explains the reason"


def unblock(observation: Observation) -> str:
    """Return what to do if the controller does not scale whatever the metrics are."""
    return _UNBLOCK if observation.scale.selector else _SELECT


def findings(observation: Observation, see: str) -> Iterator[Finding]:
    """Yield what is wrong or remarkable about each metric; `see` is as for `judge`.

    The subject is the name of the metric.
    """
    for request, reply, proposed in zip(
        observation.requests, observation.replies, observation.proposals, strict=True
    ):
        name = proposed.metric.name
        if reply.status in rbac.STATUSES:
            yield rbac.forbidden(name, reply.status, reply.message)
        elif request is None:
            yield failure(name, proposed.error, cure=proposed.cure or see)
        elif found := judge(name, request, reply, see):
            yield found
        elif proposed.replicas is None:
            state = warning if proposed.error == proposal.UNREADY else failure
            yield state(name, proposed.error, cure=proposed.cure or see)
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
    if reply.status in rbac.STATUSES:
        return rbac.forbidden(name, reply.status, reply.message)
    if reply.cause:
        return failure(name, reply.cause, cure="")
    message, status = " ".join(reply.message.split()), str(reply.status)
    said = not reply.status or message.startswith(status)
    return failure(name, message if said else f"status {status}: {message}", cure=see)


def denied(observation: Observation) -> str:
    """Return which right the caller lacks to read a metric, and what grants it; empty if none."""
    for each in observation.replies:
        if each.status in rbac.STATUSES:
            return rbac.lacking(each.status, each.message)
    return ""


def doubt_of(proposed: Proposal) -> Finding | None:
    """Return why a value is probably not what its author wants; None if it is."""
    metric = proposed.metric
    if found := _doubt_of_sum(proposed):
        return found
    if proposed.others:
        others = counted(len(proposed.others), "pod")
        fact = f"the scale selects one pod of each group: the values of {others} do not count"
        cure = "If they should, use a metric of type Object of the target (`workloads` of the rule)"
        return warning("", fact, cure=cure)
    if proposed.note:
        return Finding(state=State.WARNING, subject=metric.name, fact=proposed.note)
    if proposed.replicas is None:
        return None
    return doubt(metric, proposed.current, proposed.ratio)


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
        if observation.hpa.outdated:
            continue  # it failed with another spec
        status, reason, message = observation.hpa.conditions.get(kind, ("", "", ""))
        if status == "False":
            text = " ".join(message.split()).rstrip(".")
            cure = cure_of(kind, reason, text, readable=True)
            return f"the last sync ended with {reason}: {text}", cure
    return "", ""


def cure_of(kind: str, reason: str, message: str, *, readable: bool = False) -> str:
    """Return what to do about a condition of the controller that is False.

    `readable` says that the caller can read the scale and the metrics.
    """
    if reason in _UNBLOCKS:
        cure = _UNBLOCKS[reason]
        return cure[0].upper() + cure[1:]
    if "forbidden" in message:
        lacks = "You have this right, the HPA controller has not: grant it"
        return f"{lacks if readable else 'Grant this right'} to the user in the message"
    if reason == "FailedGetScale" and not readable:
        return reading.NO_TARGET
    if kind == "AbleToScale":
        return "Correct what the message names"
    stays = "If the condition stays for a minute, the controller gets another answer than you. "
    return f"{stays if readable else ''}{reading.DOCTOR}"
