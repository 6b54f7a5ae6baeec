"""Sums of the items of an external metric: what the HPA controller makes of them without a word."""

from __future__ import annotations

from rules import quantity
from rules.hpa.proposal import Proposal, total
from rules.query import nature
from rules.quoting import counted


def doubt(proposed: Proposal) -> str:
    """Return why the sum of an external metric is not what its author wants; else empty.

    The end says what to do.
    """
    metric, items = proposed.metric, proposed.items
    if items and min(items) < 0 and metric.target == "AverageValue":
        lowest = quantity.decimal(min(items))
        what = f"is {lowest}" if len(items) == 1 else f"has an item of {lowest}"
        return (
            f"{metric.name} {what}: while the items are added up, Kubernetes 1.34 and later take a "
            "sum below 0 for an overflow and scale to maxReplicas. Write clamp_min(..., 0) in "
            "metricsQuery"
        )
    if len(items) < 2:
        return ""
    found = nature.doubt_of_sum(metric.name, proposed.query)
    number = counted(len(items), "item")
    shown = f"{metric.name} is {quantity.decimal(total(metric, items))} as the sum of {number}"
    return f"{shown}, but {found}" if found else ""


def needs_query(proposed: Proposal) -> bool:
    """Return whether only the query can tell that the items must not be added up."""
    return len(proposed.items) > 1 and not nature.of_name(proposed.metric.name)
