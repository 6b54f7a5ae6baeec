"""Sums of the items of an external metric: what the HPA controller makes of them without a word."""

from __future__ import annotations

from dataclasses import replace

from rules import quantity
from rules.findings import Finding, warning
from rules.hpa.proposal import Proposal, total
from rules.query import nature
from rules.quoting import counted

_SHOWN = 3


def doubt(proposed: Proposal) -> Finding | None:
    """Return why the sum of an external metric is not what its author wants; None if it is."""
    metric, items = proposed.metric, proposed.items
    if items and min(items) < 0 and metric.target == "AverageValue":
        lowest = quantity.decimal(min(items))
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
    some = ", ".join(map(quantity.decimal, items[:_SHOWN])) + (", ..." if items[_SHOWN:] else "")
    number = f"{counted(len(items), 'item')} ({some})"
    shown = f"{metric.name} is {quantity.decimal(total(metric, items))}"
    fact = f"{shown}: the controller adds {number}, but each is {found.fact}"
    return replace(found, fact=fact)


def needs_query(proposed: Proposal) -> bool:
    """Return whether only the query can tell that the items must not be added up."""
    return len(proposed.items) > 1 and not nature.of_name(proposed.metric.name)
