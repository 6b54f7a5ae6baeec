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
        (r"up{a=~`x\.\n`}", [("__name__", "=", "up"), ("a", "=~", r"x\.\n")]),
        ('up{__name__!~"x"}', [("__name__", "=", "up"), ("__name__", "!~", "x")]),
        ('{a="b" or c="d"}', []),
    ],
)
def test_selector_is_parsed_into_matchers(text, matchers):
    parsed = promql.selector(text)

    assert [(each.label, each.operator, each.value) for each in parsed] == matchers


@pytest.mark.parametrize(
    "text", ["", "{}", "up[5m]", "rate(up[5m])", "1", "up offset 5m", "up @ 5", "(up)", "up{", "é"]
)
def test_text_that_is_not_a_series_selector_is_refused(text):
    with pytest.raises(PlanError, match="not a series selector"):
        promql.selector(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("up", "up"),
        ('up{job="x"}', "up"),
        ('{__name__="up",a!=""}', "up"),
        ('{"up",a!=""}', "up"),
        ('{__name__="up",__name__!~"x.*"}', "up"),
        ('up{__name__!~"x.*"}', "up"),
        (r"{__name__=`up`,a=~`\d`}", "up"),
        ('up{a="b"} # comment', "up"),
        ('{__name__=~"up"}', None),
        ('{__name__="up",__name__="down"}', None),
        ('{a="b"}', None),
        ('{__name__!=""}', None),
    ],
)
def test_name_is_pinned_by_equality_only(text, name):
    assert promql.pinned_name(promql.selector(text)) == name


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("foo", 'foo{x="y",z!=""}'),
        ("foo{}", 'foo{x="y",z!=""}'),
        (" foo { } ", 'foo{x="y",z!=""}'),
        ('{a="b",}', '{a="b",x="y",z!=""}'),
        ('{a="b" , }', '{a="b",x="y",z!=""}'),
        ('{a="}"} # {', '{a="}",x="y",z!=""}'),
        ("{a='\\'}', b=`\\`}", '{a=\'\\\'}\', b=`\\`,x="y",z!=""}'),
        ('{or="x"}', '{or="x",x="y",z!=""}'),
        ('foo{__name__!~"b"}', '{__name__="foo",__name__!~"b",x="y",z!=""}'),
        ("foo{`__name__`!~`b`}", '{__name__="foo",`__name__`!~`b`,x="y",z!=""}'),
    ],
)
def test_matchers_are_added_to_a_selector(text, result):
    assert promql.with_matchers(text, ['x="y"', 'z!=""']) == result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# c",
        "up offset 5m",
        '{a="b"} or {c="d"}',
        '{a="b" or c="d"}',
        "{a=`b` or c=`d`}",
        "up{}[5m]",
        "up[5m]",
        "up{",
        "a b{}",
    ],
)
def test_matchers_cannot_be_added_to_other_expressions(text):
    with pytest.raises(PlanError, match="cannot add matchers to"):
        promql.with_matchers(text, ['x="y"'])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (" foo\n", "foo"),
        ("foo{}", "foo"),
        ('foo{a="#"} # note', 'foo{a="#"}'),
        ('# note\nfoo{a="b"}', 'foo{a="b"}'),
        ('foo{__name__!~"b"}', '{__name__="foo",__name__!~"b"}'),
        ('foo{a="__name"}', 'foo{a="__name"}'),
        ('{a="b" or c="d"}', '{a="b" or c="d"}'),
        ("rate(foo[5m]) # note", "rate(foo[5m])"),
    ],
)
def test_selector_is_rewritten_for_use_in_an_expression(text, result):
    assert promql.in_expression(text) == result


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
def test_label_name_is_quoted_unless_it_is_classic(name, matcher):
    assert promql.matcher(name, "=", "x") == matcher


def problem_of(query: str) -> str | None:
    try:
        promql.parse(query)
    except PlanError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "query",
    [
        'sum(rate(up{a="b"}[5m])) by (pod) # why\n',
        r"label_replace(up{a=~`\d+`}, `b`, `$1`, `c`, `(.*)\.x`)",
    ],
)
def test_valid_query_has_no_problem(query):
    assert problem_of(query) is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sum(", "unclosed left parenthesis"),
        ("nope(up)", "unknown function"),
        ("(" * 20_000, "more than 2000 tokens"),
        ("+".join("a" * 20_000), "more than 2000 tokens"),
    ],
    ids=["open", "function", "deep", "long"],
)
def test_invalid_query_has_a_problem(query, problem):
    assert problem in (problem_of(query) or "")


def test_a_query_is_read_only_until_it_has_too_many_tokens(monkeypatch):
    tokens, read = promql._tokens, []
    monkeypatch.setattr(promql, "_tokens", lambda text: (read.append(t) or t for t in tokens(text)))

    assert problem_of("(" * 800_000)
    assert len(read) < 3000


@pytest.mark.parametrize("end", ["", "\\"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_an_unclosed_string_is_read_once(quote, end):
    text = quote + f"\\{quote}#" * 20_000 + end

    assert len(list(promql._tokens(text))) == 1
    assert promql.without_comments(text) == text
    assert promql.keyword_offset(f"a + {text}", ["+"], 0) == 2


def test_long_regular_expression_counts_as_one_token():
    names = "|".join(f"pod-{number}" for number in range(5000))

    assert problem_of(f'sum(up{{pod=~"{names}"}}) by (pod)') is None


@pytest.mark.parametrize(
    ("query", "keywords", "offset"),
    [
        ("sum(a)", ["sum"], 0),
        ("a + sum by (x) (b)", ["+", "sum"], 4),
        ("a{b='sum('} + a[5m] @ end() + max(b) # min(", ["+", "+", "max"], 30),
        ("a >= bool 1 and on (sum) b", [">=", "and"], 12),
        ("SUM(a) AND b", ["sum", "and"], 7),
        ("a * on (x) group_left (y) `sum(` - (b)", ["*", "-"], 33),
        ("a offset -5m - b", ["-"], 13),
        ("sum:a + b", ["+"], 6),
        ("sum(a)", ["max"], None),
        ("a", ["max"], None),
    ],
)
def test_keyword_offset(query, keywords, offset):
    assert promql.keyword_offset(query, keywords, len(keywords) - 1) == offset


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("avg by (pod) (\n  gpu_util\n)\n", "avg by (pod) ( gpu_util )"),
        ('a{model="A  B"}', 'a{model="A  B"}'),
        ("avg(a) # mean\n+ b", "avg(a) + b"),
        ('a{b="#\\"c"}', 'a{b="#\\"c"}'),
    ],
)
def test_a_query_is_one_line_that_means_the_same(query: str, line: str) -> None:
    assert promql.one_line(query) == line


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('avg by (pod) (x{a="b > 3"} <= 100)', ('x{a="b > 3"}', "<= 100")),
        ("sum(x) > 1000 or vector(0)", ("sum(x)", "> 1000")),
        ("max by (a) (x) + 1 and on (a) (y) > 0", ("(y)", "> 0")),
        ("f(a, b / c >= 2)", ("b / c", ">= 2")),
        ("x > 2 * y", None),
        ("x > 1.5 * y", None),
        ("x > 1.5", ("x", "> 1.5")),
        ("x > bool 3", None),
        ("x > 1 and y < 2", None),
        ('x{a=~"b"}', None),
    ],
)
def test_what_a_query_compares_with_a_number_is_known(query, found):
    assert promql.comparison(query) == found
