"""Causes of missing usage in metrics.k8s.io; `missing` has those of other metrics. Pure."""

from __future__ import annotations

from collections.abc import Collection

from rules.causes import wording
from rules.causes.cause import Cause, Reason
from rules.causes.wording import printable
from rules.query.plan import Plan


def without_usage(plan: Plan, found: Collection[str]) -> Cause:
    """Return the cause for objects of `plan` that are not in `found`, which have samples."""
    lacking = [name for name in plan.names if name not in found]
    place = f" in namespace {printable(plan.namespace)}" if plan.namespace else ""
    (step,) = plan.steps
    by = " and ".join(filter(None, (step.binding.resource, step.binding.namespace)))
    sentence = (
        f"{len(lacking)} of {len(plan.names)} {plan.resource}{place} "
        f"{'has' if len(lacking) == 1 else 'have'} no {plan.metric}: {wording.names(lacking)}. "
        f"{step.rule.config.where} returned no sample for them. A new "
        f"one is not scraped yet; otherwise compare the labels of its series by {by}"
    )
    return Cause(reason=Reason.NO_SAMPLE, sentence=sentence)
