"""Suggestions for the name of a metric that no rule produces."""

from __future__ import annotations

import bisect
import difflib
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rules import presets, ruleset
from rules.causes import candidates, wording
from rules.causes.candidates import Inventory
from rules.kinds import GroupResource
from rules.query.catalog import Catalog, Entry, Series
from rules.ruleset import CompiledRule

_MAX_LENGTH = 250
"""Longer names get no suggestions: the time to compare two names is quadratic in their length."""
_NEIGHBOURS = 50
"""How many names on each side of the sort position are compared, where there are very many."""

_SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("util", "utilisation", "usage", "busy", "load", "duty"), "utilization"),
    **dict.fromkeys(("mem", "fb", "framebuffer", "vram"), "memory"),
    **dict.fromkeys(("temp", "celsius"), "temperature"),
    **dict.fromkeys(("watt", "watts", "milliwatts"), "power"),
    **dict.fromkeys(("gpus", "dcgm", "nvidia", "fi", "dev", "prof", "cycle", "pipe"), ""),
    **dict.fromkeys(("gpu", "percent", "ratio", "bytes", "mib", "current", "over", "time"), ""),
    **dict.fromkeys(("avg", "average", "mean", "container", "pod"), ""),
}
"""Words in the names of GPU metrics -> the word that means the same; empty if it means little."""


class Suggestion(NamedTuple):
    """What to request instead, as the end of a sentence; empty without a suggestion."""

    text: str
    lasting: str
    """The same without what changes while the rules stay the same."""


def suggest(
    inventory: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> Suggestion:
    """Return what to request instead; `resource` is None for an external metric."""
    text = (
        of_series(rules, metric, inventory.series)
        or _other_api(inventory, metric, resource)
        or _preset(metric, resource, {metric})
    )
    if not text:
        similar = _similar(inventory, rules, metric, resource)
        if similar.text:
            return similar
        text = _preset(metric, resource, _same_meaning(metric, preset_metrics())) or _preset(
            metric, resource, similar_names(metric, preset_metrics())
        )
    return Suggestion(text, text)


def similar_names(name: str, known: Collection[str]) -> list[str]:
    """Return up to three of `known` that resemble `name`, the most similar first.

    Of more than 200 names only those that sort next to `name`, forwards or backwards, are compared.
    """
    if len(name) > _MAX_LENGTH:
        return []
    if len(known) > 4 * _NEIGHBOURS:
        known = {*_neighbours(name, known, str), *_neighbours(name, known, lambda each: each[::-1])}
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.7)


def _neighbours(name: str, known: Iterable[str], key: Callable[[str], str]) -> list[str]:
    ordered = sorted(known, key=key)
    position = bisect.bisect_left(ordered, key(name), key=key)
    return ordered[max(0, position - _NEIGHBOURS) : position + _NEIGHBOURS]


def of_series(
    rules: Iterable[CompiledRule],
    metric: str,
    listed: Callable[[CompiledRule], Iterable[Series]] = lambda _: (),
) -> str:
    """Suggest the metric of a rule if `metric` is the name of one of its series.

    `listed` returns the series that a relist found for a rule.
    """
    for rule in rules:
        series = (rule.pinned_series, *(each.name for each in listed(rule)))
        same = next((each for each in series if candidates.matches_name(rule, metric, each)), None)
        name = rule.metric(same) if same is not None else None
        if name is not None:
            where, exposed = rule.config.where, wording.printable(name)
            return f"; that is the name of a series, which {where} exposes as {exposed}"
    return ""


def _other_api(inventory: Inventory, metric: str, resource: GroupResource | None) -> str:
    """Suggest the other API if it has a metric of this name."""
    if resource is not None:
        known = inventory.catalog.external_entry(metric) is not None
        return "; it is an external metric (`type: External` in an HPA)" if known else ""
    same = [each for each in _entries(inventory) if each.metric.lower() == metric.lower()]
    if not same:
        return ""
    name = next((entry.metric for entry in same if entry.metric == metric), same[0].metric)
    subject = "it" if name == metric else wording.printable(name)
    resources = wording.names(str(entry.resource) for entry in same if entry.metric == name)
    return f"; {subject} is a custom metric of {resources}"


def _similar(
    inventory: Inventory, rules: Sequence[CompiledRule], metric: str, resource: GroupResource | None
) -> Suggestion:
    """Suggest metrics with similar names."""
    listed = {name for catalog in _catalogs(inventory) for name in catalog.external}
    if resource is not None:
        listed = {entry.metric for entry in _entries(inventory)}
    fixed = {name for rule in rules if (name := candidates.fixed_name(rule)) is not None}
    spelling = {name: name for name in listed | fixed}
    if resource is None:  # external metrics are requested in any case
        metric, spelling = metric.lower(), {name.lower(): name for name in sorted(spelling)}
    described = []
    same_meaning = _same_meaning(metric, fixed) if resource is not None else []
    similar = [spelling[each] for each in same_meaning or similar_names(metric, spelling)]
    for name in similar:
        remark = ""
        if name not in listed:
            remark = " (no series now)"
        elif resource is not None:
            # Those of workloads go without saying.
            entries = (
                each for each in _entries(inventory) if each.metric == name and each.pods is None
            )
            remark = f" (of {wording.names(str(each.resource) for each in entries)})"
        described.append(wording.printable(name) + remark)
    names = map(wording.printable, similar)
    return Suggestion(wording.did_you_mean(described), wording.did_you_mean(names))


def _catalogs(inventory: Inventory) -> Iterator[Catalog]:
    if inventory.catalog.cluster is not None:
        yield inventory.catalog.cluster
    yield inventory.catalog


def _entries(inventory: Inventory) -> Iterator[Entry]:
    return itertools.chain.from_iterable(each.entries for each in _catalogs(inventory))


def _preset(metric: str, resource: GroupResource | None, names: Collection[str]) -> str:
    """Suggest a preset that has a metric with one of `names`; presets have custom metrics only."""
    known = preset_metrics()
    name = next((each for each in names if each in known), None)
    if name is None or resource is None:
        return ""
    subject = "it" if name == metric else f"did you mean {name}? It"
    return (
        f"; {subject} is in the presets {wording.names(known[name])}: "
        "`gpu-metrics-adapter presets detect` says which of them fits, or why none does"
    )


def of_preset_series(metric: str) -> str:
    """Suggest the metric of a preset if `metric` is the name of one of its series."""
    found: dict[str, list[str]] = {}
    for name, rule, preset in _preset_rules():
        if rule.pinned_series == metric:
            found.setdefault(name, []).append(preset)
    if not found:
        return ""
    name, those = next(iter(found.items()))
    flags = " or ".join(f"--preset={each}" for each in those)
    return f"; that is the name of a series. Load {flags}, and request {name} with type Pods"


@functools.cache
def _preset_rules() -> tuple[tuple[str, CompiledRule, str], ...]:
    """Return the rules of all presets that fix the name of their metric: name, rule and preset."""
    return tuple(
        (name, rule, preset)
        for preset in presets.names()
        for rule in ruleset.load([(preset, presets.text(preset))]).rules
        if (name := candidates.fixed_name(rule))
    )


@functools.cache
def preset_metrics() -> Mapping[str, tuple[str, ...]]:
    """Return the metrics that presets name, each with the presets that have it.

    The first call takes 0.5 s: a server makes it in a thread.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, preset in dict.fromkeys((name, preset) for name, _, preset in _preset_rules()):
        found[name] = (*found.get(name, ()), preset)
    return found


def _same_meaning(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three of `known` that are made of words with the meaning of those in `name`."""
    if len(name) > _MAX_LENGTH or not (wanted := _meaning(name)):
        return []
    return sorted(each for each in known if each != name and _meaning(each) == wanted)[:3]


@functools.lru_cache(maxsize=4096)
def _meaning(name: str) -> frozenset[str]:
    words = re.split(r"[^a-z]+", name.lower())
    meaning = frozenset(_SYNONYMS.get(word, word) for word in words) - {""}
    return meaning - {"utilization"} if "power" in meaning else meaning
