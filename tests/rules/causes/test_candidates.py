from __future__ import annotations

import pytest

from rules import ruleset
from rules.causes import candidates
from rules.query.catalog import Listing, Series


def loaded(series_query, *, matches="", as_="", is_not="", is_="", section="rules"):
    filters = f"seriesFilters: [{{isNot: '{is_not}'}}]" if is_not else ""
    filters = f"seriesFilters: [{{is: '{is_}'}}]" if is_ else filters
    text = f"""
{section}:
- seriesQuery: '{series_query}'
  resources: {{template: '<<.Resource>>'}}
  name: {{matches: '{matches}', as: '{as_}'}}
  metricsQuery: m
  {filters}
"""
    return ruleset.load([("rules.yaml", text)])


def rule(*args, **kwargs):
    return loaded(*args, **kwargs).rules[0]


ANY = '{job="x"}'
CASES = {
    "pinned": (rule("a"), "a", ["a"], ["b"]),
    "pinned by a matcher": (rule('{__name__="a"}'), "a", ["a"], ["b"]),
    "pinned and renamed": (rule("a_total", matches="(.*)_total", as_="${1}_rate"), "a_rate",
                           ["a_rate"], ["b_rate", "a_total"]),
    "pinned and rejected by name.matches": (rule("a", matches="b"), None, [], ["a", "b"]),
    "pinned and rejected by seriesFilters": (rule("a", is_not="a"), None, [], ["a"]),
    "fixed by name.as": (rule(ANY, as_="u"), "u", ["u"], ["v"]),
    "fixed by name.as, and pinned": (rule("a", as_="u"), "u", ["u"], ["a"]),
    "an empty name": (rule(ANY, as_="${none}"), "", [""], ["a"]),
    "from any series": (rule(ANY), None, ["a"], []),
    "from series accepted by name.matches": (rule(ANY, matches="^a.*"), None, ["ab"], []),
    "from series accepted by seriesFilters": (rule(ANY, is_not="^b"), None, ["ab"], ["ba"]),
    "from series of a pattern": (rule('{__name__=~"a.*|c"}'), None, ["ab", "c"], ["ba", "cc"]),
    "from excluded names": (rule('{__name__!~"a.*",__name__!="c",job="x"}'), None, ["b"],
                            ["ab", "c"]),
    "from series of an invalid pattern": (rule('{__name__=~"["}'), None, ["a"], []),
    "from series of a pattern that RE2 refuses": (rule('{__name__=~"a{1001}"}'), None, ["b"], []),
    "from series of an invalid selector": (rule("{{"), None, ["a"], []),
    "from a part of the name": (rule(ANY, matches="^a_(.*)$"), None, ["b"], []),
    "between literals": (rule(ANY, matches="^(.*)_total$", as_="x_${1}_rate"), None,
                         ["x_a_rate", "x__rate"], ["a_rate", "x_a"]),
    "groups on both sides": (rule(ANY, matches="^(.)_(.*)$", as_="${1}b${2}"), None,
                             ["abc"], []),
}  # fmt: skip  # more to a line


@pytest.mark.parametrize(("rule", "fixed", "possible", "impossible"), CASES.values(), ids=CASES)
def test_names_that_a_rule_produces_or_may_produce(rule, fixed, possible, impossible):
    assert candidates.fixed_name(rule) == fixed
    assert [name for name in possible if not candidates.may_produce(rule, name)] == []
    assert [name for name in impossible if candidates.may_produce(rule, name)] == []


def external(*args, **kwargs):
    return loaded(*args, section="externalRules", **kwargs).external[0]


EXTERNAL = {
    "pinned": (external("Abc"), ["abc", "Abc", "ABC"], ["ab"]),
    "pinned and rejected by name.matches": (external("Abc", matches="x"), [], ["abc"]),
    "from any series": (external(ANY), ["abc"], []),
    "from series of a pattern": (external('{__name__=~"A.*"}'), ["abc", "ABC"], ["b", "ba"]),
    "pinned, with a second matcher": (external('{__name__="A",__name__!="b"}'), ["a"], ["b"]),
    "from excluded names": (external('{__name__!~"a.*",__name__!="b",job="x"}'), ["abc", "b"], []),
    "from series accepted by seriesFilters": (external(ANY, is_="^Ab"), ["abc"], ["bc"]),
    "from series not rejected": (external(ANY, is_not="^ab"), ["abc"], []),
    "between literals": (
        external(ANY, matches="^(.*)_total$", as_="X_${1}_Rate"), ["x_a_rate"], ["a_rate", "x_a"]
    ),
}  # fmt: skip  # more to a line


@pytest.mark.parametrize(("rule", "possible", "impossible"), EXTERNAL.values(), ids=EXTERNAL)
def test_external_metrics_are_compared_case_insensitively(rule, possible, impossible):
    assert [name for name in possible if not candidates.may_produce(rule, name)] == []
    assert [name for name in impossible if candidates.may_produce(rule, name)] == []


def test_the_metrics_of_a_listing():
    series = [Series(name=name, labels=frozenset()) for name in ("a_total", "x_a_total", "b", "c")]
    rules = loaded(ANY, matches="a_total$", as_="a", is_not="^b")
    (one,) = rules.rules

    assert candidates.series_by_metric(rules, {0: Listing(series=tuple(series))}) == {
        one.index: {"a": (series[0], series[1])}
    }
    assert candidates.series_by_metric(rules, {}) == {}
