from __future__ import annotations

import time

import pytest

from rules import ruleset
from rules.diagnosis import candidates
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
    "pinned and not taken": (rule("a", matches="b"), None, [], ["a", "b"]),
    "pinned and filtered": (rule("a", is_not="a"), None, [], ["a"]),
    "said by the file": (rule(ANY, as_="u"), "u", ["u"], ["v"]),
    "said by the file, of one": (rule("a", as_="u"), "u", ["u"], ["a"]),
    "nothing, by the file": (rule(ANY, as_="${none}"), "", [""], ["a"]),
    "after any series": (rule(ANY), None, ["a"], []),
    "after series that match": (rule(ANY, matches="^a.*"), None, ["ab"], []),
    "after series that pass": (rule(ANY, is_not="^b"), None, ["ab"], ["ba"]),
    "after series of a pattern": (rule('{__name__=~"a.*|c"}'), None, ["ab", "c"], ["ba", "cc"]),
    "after series of no pattern": (rule('{__name__!~"a.*",__name__!="c",job="x"}'), None, ["b"],
                                   ["ab", "c"]),
    "after series of a bad pattern": (rule('{__name__=~"["}'), None, ["a"], []),
    "after series of a bad selector": (rule("{{"), None, ["a"], []),
    "after a part of the series": (rule(ANY, matches="^a_(.*)$"), None, ["b"], []),
    "between literals": (rule(ANY, matches="^(.*)_total$", as_="x_${1}_rate"), None,
                         ["x_a_rate", "x__rate"], ["a_rate", "x_a"]),
    "after groups on both sides": (rule(ANY, matches="^(.)_(.*)$", as_="${1}b${2}"), None,
                                   ["abc"], []),
}  # fmt: skip  # more to a line


@pytest.mark.parametrize(("rule", "fixed", "could", "never"), CASES.values(), ids=CASES)
def test_names_that_a_rule_gives_or_may_give(rule, fixed, could, never):
    assert candidates.fixed_name(rule) == fixed
    assert [name for name in could if not candidates.may_produce(rule, name)] == []
    assert [name for name in never if candidates.may_produce(rule, name)] == []


def external(*args, **kwargs):
    return loaded(*args, section="externalRules", **kwargs).external[0]


EXTERNAL = {
    "pinned": (external("Abc"), ["abc", "Abc", "ABC"], ["ab"]),
    "pinned and not taken": (external("Abc", matches="x"), [], ["abc"]),
    "after any series": (external(ANY), ["abc"], []),
    "after series of a pattern": (external('{__name__=~"A.*"}'), ["abc", "ABC"], ["b", "ba"]),
    "after a name's alternatives": (external('{__name__="A",__name__!="b"}'), ["a"], ["b"]),
    "after series of no pattern": (external('{__name__!~"a.*",__name__!="b"}'), ["abc", "b"], []),
    "after series that pass": (external(ANY, is_="^Ab"), ["abc"], ["bc"]),
    "after series that are not kept out": (external(ANY, is_not="^ab"), ["abc"], []),
    "between literals": (
        external(ANY, matches="^(.*)_total$", as_="X_${1}_Rate"), ["x_a_rate"], ["a_rate", "x_a"]
    ),
}  # fmt: skip  # more to a line


@pytest.mark.parametrize(("rule", "could", "never"), EXTERNAL.values(), ids=EXTERNAL)
def test_external_metrics_are_meant_in_whatever_case(rule, could, never):
    assert [name for name in could if not candidates.may_produce(rule, name)] == []
    assert [name for name in never if candidates.may_produce(rule, name)] == []


def test_of_many_rules_each_is_read_once():
    text = "".join(
        f"""
- seriesQuery: '{{__name__=~"read_once_{number}_.*",job!="x",pod!="",namespace!=""}}'
  resources: {{namespaced: false}}
  metricsQuery: m"""
        for number in range(100)
    )
    rules = ruleset.load([("rules.yaml", f"externalRules:{text}")]).external
    taken = []

    for _ in range(4):
        began = time.process_time()
        assert sum(candidates.may_produce(each, "read_once_7_b") for each in rules) == 1
        taken.append(time.process_time() - began)

    first, *then = taken
    assert min(then) < first / 2


def test_series_of_which_metrics_are_made():
    series = [Series(name=name, labels=frozenset()) for name in ("a_total", "x_a_total", "b", "c")]
    named = loaded(ANY, matches="a_total$", as_="a", is_not="^b")
    (one,) = named.rules

    assert candidates.made(named, {0: Listing(series=tuple(series))}) == {
        one.index: {"a": (series[0], series[1])}
    }
    assert candidates.made(named, {}) == {}
