"""Limits of a team's rules: each at its edge, on both sides, and how far real rules are from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules import limits, teams
from rules.errors import ConfigError
from rules.limits import Limits
from rules.query.label_binding import LabelBinding
from rules.ruleset import RuleSet
from rules.teams import ConfigMap

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
BINDING = LabelBinding(resource="pod", namespace="namespace")


def text(
    *,
    series: str = "m",
    query: str = QUERY,
    overrides: int = 0,
    filters: int = 0,
    pattern: str = "",
    name: str = "",
    template: str = "",
) -> str:
    labels = "".join(f", l{number}: {{resource: pod}}" for number in range(overrides - 2))
    resources = (
        f"template: '{template}'"
        if template
        else "overrides: {namespace: {resource: namespace}, pod: {resource: pod}" + labels + "}"
    )
    return (
        f"- seriesQuery: '{series}'\n"
        f"  seriesFilters: [{', '.join(['{is: m}'] * filters)}]\n"
        f"  resources: {{{resources}}}\n"
        f"  name: {{matches: '{pattern}', as: '{name}'}}\n"
        f"  metricsQuery: '{query}'\n"
    )


def load(*rules: str, limited: Limits = limits.DEFAULT) -> RuleSet:
    data = (("r.yaml", "rules:\n" + "".join(rules)),)
    return teams.load(ConfigMap(namespace="a", name="n", data=data), label="ns", limits=limited)


def of_query(size: int) -> str:
    """Return a rule whose query for one object has this many characters of its own."""
    own = len("sum({}) by (pod)") + len("m")
    return text(query=QUERY + " " * (size - own))


def named(size: int) -> str:
    """Return a rule whose metric has a name of this many characters."""
    return text(series="m" * 125, name="n" * (size - 250) + "$0$0")


EDGES: dict[str, tuple[int, Callable[[int], list[str]]]] = {
    "team_rules": (100, lambda size: [text()] * size),
    "team_overrides": (50, lambda size: [text(overrides=size)]),
    "team_filters": (20, lambda size: [text(filters=size)]),
    "team_pattern": (500, lambda size: [text(pattern="|" * size)]),
    "team_name": (200, lambda size: [text(name="n" * size)]),
    "team_metric_name": (250, lambda size: [named(size)]),
    "team_template_actions": (200, lambda size: [text(query=QUERY + "<<``>>" * (size - 3))]),
    "team_query": (16 << 10, lambda size: [of_query(size)]),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_limit_refuses_what_is_beyond_it_and_nothing_else(name):
    value, rules = EDGES[name]

    assert getattr(limits.DEFAULT, name) == value
    load(*rules(value))
    with pytest.raises(ConfigError) as raised:
        load(*rules(value + 1))

    flag = f"--limit={limits.name_of(name)}={value + 1}"
    message = str(raised.value)
    assert f"has {value + 1} " in message
    assert f" is {value}: " in message
    assert flag in message
    more = limits.DEFAULT.with_values({limits.name_of(name): value + 1})
    load(*rules(value + 1), limited=more)
