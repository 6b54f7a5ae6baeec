"""What the text of a query shows, and the query of its rule."""

import pytest

from rules import promql, syntax
from rules.migration import queries


@pytest.mark.parametrize(
    "text",
    [
        "sum(x)",
        "sum(x) / count(x)",
        "sum by () (x)",
        "sum by (a) (sum(x))",
        "histogram_quantile(0.9, sum(rate(x_bucket[1m])) by (le))",
        "histogram_quantile(0.9, sum(rate(x[1m])))",
        "vector(1)",
        "sum(x) * 2 > bool 3",
        "-sum(x)",
        "(sum(x))",
        "absent(x{a='b'})",
        "absent_over_time(x[5m])",
        "topk(1, x)",
        "max_over_time(sum(x)[5m:1m])",
        "sum(x) or vector(0)",
        "sum(x) > 5 or sum(y)",
        "absent(x{a='b'}) or on() vector(0)",
        "sum(x) and x",
        "sum(x) unless x",
        "x * on() sum(y)",
        "round(sum(x))",
        "label_replace(sum(x), 'a', 'b', '', '')",
        "day_of_week()",
        "clamp_min(sum(x), 3)",
    ],
)
def test_queries_with_one_element_at_most(text):
    assert queries.analyze(text).is_single


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x * 2",
        "2 * x",
        "rate(x[5m])",
        "x offset 5m",
        "sum by (a) (x)",
        "sum without (a) (x)",
        "sum without () (x)",
        "topk(2, x)",
        "topk(scalar(y), x)",
        "count_values('a', x)",
        "histogram_quantile(0.9, sum(rate(x_bucket[1m])) by (le, pod))",
        "x or sum(y)",
        "sum(y) or x",
        "absent(x{a='b'}) or absent(y{a='c'})",
        "x and sum(y)",
        "x * on(a) group_left sum(y)",
        "sum(y) * on(a) group_right x",
        "max_over_time(x[5m:1m])",
        "label_replace(x, 'a', 'b', '', '')",
        "sort(x)",
        "x / y",
    ],
)
def test_queries_that_may_have_several_elements(text):
    assert not queries.analyze(text).is_single


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("5", "scalar"),
        ("time()", "scalar"),
        ("scalar(x)", "scalar"),
        ("-scalar(x) + 1", "scalar"),
        ("(5)", "scalar"),
        ("'a'", "string"),
        ("x[5m]", "matrix"),
        ("(x[5m:1m])", "matrix"),
        ("x + 1", "vector"),
        ("1 > x", "vector"),
        ("vector(1)", "vector"),
        ("sum(", "unknown"),
    ],
)
def test_the_kind_of_a_result_is_known(text, kind):
    found = queries.analyze(text)

    assert (found.kind, bool(found.problem)) == (kind, kind == "unknown")


@pytest.mark.parametrize(
    ("text", "nature"),
    [
        ("avg(x)", "mean"),
        ("quantile(0.9, x)", "percentile"),
        ("histogram_quantile(0.9, sum by (le) (x))", "percentile"),
        ("sum(x) / sum(y)", "ratio"),
        ("sum(rate(t_seconds_sum[2m])) / sum(rate(t_seconds_count[2m]))", "mean"),
        ("sum(x) / 1024", ""),
        ("sum(x)", ""),
    ],
)
def test_means_percentiles_and_ratios_are_known(text, nature):
    assert queries.analyze(text).nature == nature


def test_the_first_series_lists_a_rule():
    assert queries.analyze("rate(rate[5m]) + x").series == "rate"
    assert queries.analyze("vector(1)").series == ""
    assert queries.analyze('{__name__=~"a.*"}').series == ""


@pytest.mark.parametrize("ignore_null", [True, False])
@pytest.mark.parametrize(
    "text", ["sum(x) # all", "# a\nsum(x) # b\n + sum(y)", 'x{a="#"}', "a or b"]
)
def test_the_query_of_a_rule_parses_and_contains_the_query(text, ignore_null):
    rule = queries.of_rule(text, ignore_null=ignore_null)

    assert promql.parse(text) in syntax.walk(promql.parse(rule))
