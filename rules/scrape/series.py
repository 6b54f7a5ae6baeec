"""Names of the series that presets and exporters have, and patterns that match them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from rules import presets, promql, ruleset, syntax
from rules.exporters.generations import GENERATIONS
from rules.ruleset import CompiledRule
from rules.syntax import Matcher, VectorSelector

_STAND_IN = "series"
"""Stands for the name in `seriesQuery` while a query is rendered."""
_OF_TARGET = "up"
"""Written by Prometheus for each target, so that a page must not have it."""
_OBJECT = {
    "Series": _STAND_IN,
    "LabelMatchers": 'pod="pod"',
    "LabelValuesByName": {"pod": "pod"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}
_FAMILY = 5
"""Names with the same first word that become one pattern."""


@functools.cache
def read_by(preset: str) -> tuple[str, ...]:
    """Return the names of the series that a preset reads, and patterns for names, sorted."""
    rules = ruleset.load([(preset, presets.text(preset))])
    return tuple(sorted({name for rule in (*rules.rules, *rules.external) for name in _read(rule)}))


def _read(rule: CompiledRule) -> Iterator[str]:
    yield from _names(rule.matchers)
    query = promql.parse(rule.query.render(_OBJECT))
    for each in syntax.every(query, VectorSelector):
        if each.name not in {_STAND_IN, _OF_TARGET}:
            yield from (each.name,) if each.name else _names(each.matchers)


def _names(matchers: Iterable[Matcher]) -> Iterator[str]:
    for each in matchers:
        if each.label == "__name__" and each.operator in {"=", "=~"}:
            yield each.value.removeprefix("^").removesuffix("$")


@functools.cache
def of_devices() -> str:
    """Return a pattern for the series of all exporters of accelerators.

    Many names that begin with the same word, as no series of a server does, become one pattern.
    """
    names = {name for each in GENERATIONS if not each.server for name in each.series}
    others = {_word(name) for each in GENERATIONS if each.server for name in each.series}
    families: dict[str, list[str]] = {}
    for name in sorted(names):
        families.setdefault(_word(name), []).append(name)
    parts: list[str] = []
    for word, members in families.items():
        alone = len(members) >= _FAMILY and word not in others
        parts += [f"{word}_.+"] if alone else members
    return "|".join(parts)


def _word(name: str) -> str:
    return name.replace(":", "_").partition("_")[0]
