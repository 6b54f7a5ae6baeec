"""Filters, and messages; the golden cases of expand.json have the names of metrics."""

from __future__ import annotations

import pytest

from rules import naming
from rules.document.config import SeriesFilter
from rules.errors import PatternError


@pytest.mark.parametrize(
    ("matches", "as_", "message"),
    [
        ("(a)(b)", "", "'(a)(b)' has 2 groups: set name.as"),
        ("(", "", "missing )"),
        ("(", "$1", "missing )"),
    ],
)
def test_an_invalid_name_is_an_error(matches, as_, message):
    with pytest.raises(PatternError) as raised:
        naming.compile(matches, as_)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("entries", "accepted"),
    [
        ((), ["http_total", "http_sum", "up"]),
        ((SeriesFilter(is_="^http"),), ["http_total", "http_sum"]),
        ((SeriesFilter(is_not="_total$"),), ["http_sum", "up"]),
        ((SeriesFilter(is_="^http"), SeriesFilter(is_not="_total$")), ["http_sum"]),
        ((SeriesFilter(is_="^http"), SeriesFilter(is_="p")), ["http_total", "http_sum"]),
        ((SeriesFilter(is_not="^http"), SeriesFilter(is_not="u")), []),
    ],
)
def test_a_series_must_pass_every_filter(entries, accepted):
    filters = [naming.compile_filter(entry) for entry in entries]

    names = ["http_total", "http_sum", "up"]
    assert [n for n in names if all(each.accepts(n) for each in filters)] == accepted


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (SeriesFilter(), "has neither is nor isNot: add one"),
        (SeriesFilter(is_="a", is_not="b"), "has both is and isNot: remove one"),
        (SeriesFilter(is_="("), "missing )"),
        (SeriesFilter(is_not="a(?=b)"), "(?="),
    ],
)
def test_an_invalid_filter_is_an_error(entry, message):
    with pytest.raises(PatternError) as raised:
        naming.compile_filter(entry)

    assert message in str(raised.value)
