"""Rules of a team at the edge of each limit."""

from __future__ import annotations

from collections.abc import Callable

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def text(*, series="m", query=QUERY, overrides=0, filters=0, pattern="", name="", template=""):
    """Return the text of one rule."""
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
    "team_query_depth": (50, lambda size: [text(query="+".join("m" * size))]),
    "team_text": (64 << 10, lambda size: [text(), "#" * (size - len("rules:\n" + text()))]),
}
"""Limit -> its value, and a function of a size that returns rules of that size."""
