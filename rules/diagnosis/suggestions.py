"""What was meant by the name of a metric that no rule gives."""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Callable, Collection, Iterable, Sequence

from rules.diagnosis import candidates, wording
from rules.diagnosis.inventory import Inventory
from rules.kinds import GroupResource
from rules.ruleset import CompiledRule

_LONGEST = 250
"""Characters of a name that others are compared with: the time is quadratic in them."""
_NEIGHBOURS = 50
"""Names on each side of where one would stand in an order, that it is compared with."""


def meant(
    seen: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
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
    """Up to three of `known` that resemble `name`, the nearest first.

    Of very many only those are looked at that begin or end most like it: each look takes time.
    """
    if len(name) > _LONGEST:
        return []
    if len(known) > 4 * _NEIGHBOURS:
        known = {*_around(name, known, str), *_around(name, known, lambda each: each[::-1])}
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.7)


def _around(name: str, known: Iterable[str], key: Callable[[str], str]) -> list[str]:
    """Those next to `name` in the order of `key`."""
    ordered = sorted(known, key=key)
    place = bisect.bisect_left(ordered, key(name), key=key)
    return ordered[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]


def _renamed(seen: Inventory, rules: Sequence[CompiledRule], metric: str) -> str:
    """For a series' name, where a rule gives its metric another one."""
    for rule in rules:
        there = (candidates.pinned_series(rule), *(each.name for each in seen.series(rule)))
        found = next((each for each in there if candidates.matches_name(rule, metric, each)), None)
        name = candidates.name_of(rule, found) if found is not None else None
        if name is not None:
            made = f"{wording.place(rule)} makes {wording.shown(name)}"
            return f": it is the name of a series, of which {made}"
    return ""


def _in_other_group(seen: Inventory, metric: str, resource: GroupResource | None) -> str:
    if resource is not None:
        there = seen.catalog.external_entry(metric)
        return ": it is an external metric (`type: External` of an autoscaler)" if there else ""
    same = [entry for entry in seen.catalog.entries if entry.metric.lower() == metric.lower()]
    if not same:
        return ""
    of = wording.listed(str(entry.resource) for entry in same)
    spelled = sorted({wording.shown(entry.metric) for entry in same} - {wording.shown(metric)})
    called = f", {', '.join(spelled)}," if spelled else ","
    return f": it is a custom metric{called} of {of}"


def _similar(
    seen: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> str:
    there = set(seen.catalog.external)
    if resource is not None:
        there = {entry.metric for entry in seen.catalog.entries}
    possible = {name for rule in rules if (name := candidates.fixed_name(rule)) is not None}
    spelled = {name: name for name in there | possible}
    if resource is None:  # in whatever case it is asked for
        metric, spelled = metric.lower(), {name.lower(): name for name in sorted(spelled)}
    described = []
    for name in (spelled[each] for each in close(metric, spelled)):
        of = ""
        if name not in there:
            of = " (no series now)"
        elif resource is not None:
            entries = (each for each in seen.catalog.entries if each.metric == name)
            of = f" (of {wording.listed(str(each.resource) for each in entries)})"
        described.append(wording.shown(name) + of)
    return wording.question(described)
