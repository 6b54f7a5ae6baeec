from __future__ import annotations

import pytest

from rules import promql
from rules.errors import PlanError


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("up", [("__name__", "=", "up")]),
        ("up{}", [("__name__", "=", "up")]),
        ('up{job="x",}', [("__name__", "=", "up"), ("job", "=", "x")]),
        ('{a!="",b=~"c|d",e!~"f"}', [("a", "!=", ""), ("b", "=~", "c|d"), ("e", "!~", "f")]),
        ("{a='it\\'s'} # why", [("a", "=", "it's")]),
        ('{"a.b"="c"}', [("a.b", "=", "c")]),
        ('{a="b" or c="d"}', []),
    ],
)
def test_a_series_selector_is_understood(text, matchers):
    found = promql.selector(text).matchers

    assert [(each.label, each.operator, each.value) for each in found] == matchers


@pytest.mark.parametrize(
    "text", ["", "{}", "up[5m]", "rate(up[5m])", "1", "up offset 5m", "up @ 5", "(up)", "up{", "é"]
)
def test_what_is_no_series_selector_is_refused(text):
    with pytest.raises(PlanError, match="is no series selector"):
        promql.selector(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("up", "up"),
        ('up{job="x"}', "up"),
        ('{__name__="up",a!=""}', "up"),
        ('{"up",a!=""}', "up"),
        ('{__name__="up",__name__!~"x.*"}', "up"),
        ('{__name__=~"up"}', None),
        ('{__name__="up",__name__="down"}', None),
        ('{a="b"}', None),
        ('{__name__!=""}', None),
        ("up offset 5m", None),
        ("holt_winters(up[5m],0.1,0.2)", None),
    ],
)
def test_a_name_is_pinned_by_equality_alone(text, name):
    assert promql.pinned_name(text) == name


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("foo", 'foo{x="y",z!=""}'),
        ("foo{}", 'foo{x="y",z!=""}'),
        (" foo { } ", 'foo{x="y",z!=""}'),
        ('{a="b",}', '{a="b",x="y",z!=""}'),
        ('{a="b" , }', '{a="b" ,x="y",z!=""}'),
        ('{a="}"} # {', '{a="}",x="y",z!=""}'),
        ("{a='\\'}', b=`\\`}", '{a=\'\\\'}\', b=`\\`,x="y",z!=""}'),
        ('{or="x"}', '{or="x",x="y",z!=""}'),
    ],
)
def test_matchers_are_added_to_the_text_of_a_selector(text, result):
    assert promql.with_matchers(text, ['x="y"', 'z!=""']) == result.replace('" ,x', '",x')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# c",
        "up offset 5m",
        '{a="b"} or {c="d"}',
        '{a="b" or c="d"}',
        "up{}[5m]",
        "up{",
        "a b{}",
    ],
)
def test_matchers_cannot_be_added_to_anything_else(text):
    with pytest.raises(PlanError, match="is no series selector that matchers can be added to"):
        promql.with_matchers(text, ['x="y"'])


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a", '"a"'),
        ('"\\', '"\\"\\\\"'),
        ("\n\t\a", '"\\n\\t\\a"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("é😀", '"é😀"'),
        ("\u2028\u00ad", '"\\u2028\\u00ad"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_values_are_quoted_as_go_does(text, quoted):
    assert promql.quote(text) == quoted


@pytest.mark.parametrize(
    ("name", "matcher"),
    [
        ("pod", 'pod="x"'),
        ("_a1", '_a1="x"'),
        ("app.kubernetes.io/name", '"app.kubernetes.io/name"="x"'),
        ("1st", '"1st"="x"'),
        ("é", '"é"="x"'),
    ],
)
def test_labels_that_are_not_classic_ones_are_quoted(name, matcher):
    assert promql.matcher(name, "=", "x") == matcher


def test_a_query_that_parses_has_no_problem():
    assert promql.problem_of('sum(rate(up{a="b"}[5m])) by (pod) # why\n') is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sum(", "unclosed left parenthesis"),
        ("nope(up)", "unknown function"),
        ("(" * 20_000, "more than 2000 names and signs"),
        ("+".join("a" * 20_000), "more than 2000 names and signs"),
    ],
    ids=["open", "function", "deep", "long"],
)
def test_a_query_that_does_not_parse_has_a_reason(query, problem):
    assert problem in (promql.problem_of(query) or "")


def test_long_names_and_many_objects_are_no_long_query():
    names = "|".join(f"pod-{number}" for number in range(5000))

    assert promql.problem_of(f'sum(up{{pod=~"{names}"}}) by (pod)') is None
