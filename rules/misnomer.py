"""What was meant by the name of a metric that no rule gives."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from rules import candidates, wording
from rules.kinds import GroupResource
from rules.ruleset import CompiledRule
from rules.seen import Seen

_LONGEST = 250
"""Characters of a name that others are compared with: the time is quadratic in them."""


def meant(
    seen: Seen, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> str:
    """What to ask for instead, as the end of a sentence; empty where nothing comes near.

    Without a resource the metric is an external one.
    """
    return (
        _renamed(seen, rules, metric)
        or _in_other_group(seen, metric, resource)
        or _similar(seen, rules, metric, resource)
    )


def close(name: str, known: Collection[str]) -> list[str]:
    """Up to three of `known` that resemble `name`, the nearest first."""
    if len(name) > _LONGEST:
        return []
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.7)


def _renamed(seen: Seen, rules: Sequence[CompiledRule], metric: str) -> str:
    """For a series' name, where a rule gives its metric another one."""
    for rule in rules:
        there = candidates.pinned_series(rule) == metric or any(
            series.name == metric for series in seen.series(rule)
        )
        name = candidates.name_of(rule, metric) if there else None
        if name is not None:
            made = f"{wording.place(rule)} makes {wording.shown(name)}"
            return f": it is the name of a series, of which {made}"
    return ""


def _in_other_group(seen: Seen, metric: str, resource: GroupResource | None) -> str:
    if resource is not None:
        there = seen.catalog.external_entry(metric)
        return ": it is an external metric (`type: External` of an autoscaler)" if there else ""
    of = [str(entry.resource) for entry in seen.catalog.entries if entry.metric == metric]
    return f": it is a custom metric, of {wording.listed(of)}" if of else ""


def _similar(
    seen: Seen, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> str:
    there: dict[str, list[str]] = {}
    if resource is None:
        there = {name: [] for name in seen.catalog.external}
    else:
        for entry in seen.catalog.entries:
            there.setdefault(entry.metric, []).append(str(entry.resource))
    possible = {name for rule in rules if (name := candidates.fixed_name(rule)) is not None}
    described = []
    for name in close(metric, there.keys() | possible):
        of = f" (of {wording.listed(there[name])})" if there.get(name) else ""
        described.append(wording.shown(name) + (of if name in there else " (no series now)"))
    return wording.question(described)
