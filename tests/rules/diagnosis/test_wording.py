from __future__ import annotations

import pytest

from rules import ruleset
from rules.diagnosis import wording
from rules.query.catalog import Series


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu_util", "gpu_util"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a\nb", r'"a\nb"'),
        ("\udcff", r'"\xff"'),
        ("ü", "ü"),
        ("x" * 300, "x" * 200 + "…"),
    ],
)
def test_a_name_stands_in_a_line_as_what_it_is(text, shown):
    assert wording.shown(text) == shown


def test_of_many_names_the_first_are_listed():
    assert wording.listed([]) == ""
    assert wording.listed(["a", "b"]) == "a, b"
    assert wording.listed(map(str, range(22))).endswith(", 19 and 2 more")


@pytest.mark.parametrize(
    ("names", "said"), [("a", "a"), ("ab", "a and 1 more name"), ("abc", "a and 2 more names")]
)
def test_of_many_series_the_first_is_named(names, said):
    assert wording.series([Series(name=name, labels=frozenset()) for name in names]) == said


@pytest.mark.parametrize(
    ("moment", "said"),
    [(100, "0s ago"), (101, "0s ago"), (40.5, "59s ago"), (-3600, "1h1m40s ago")],
)
def test_ages_are_in_whole_seconds_and_never_of_the_future(moment, said):
    assert wording.since(moment, 100) == said


def test_a_selector_stands_in_one_line():
    text = 'rules:\n- seriesQuery: |-\n    {a="b",\n     c="d"}\n  metricsQuery: m\n'
    (rule,) = ruleset.load([("rules.yaml", text)]).rules

    assert wording.selector(rule) == '`{a="b", c="d"}`'
    assert wording.place(rule) == "rules[0] (rules.yaml:2)"
