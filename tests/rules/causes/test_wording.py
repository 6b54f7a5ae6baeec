from __future__ import annotations

import pytest

from rules import ruleset
from rules.causes import wording
from rules.kinds import NODES, PODS, GroupResource
from rules.query.catalog import Series


@pytest.mark.parametrize(
    ("text", "printed"),
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
def test_a_name_is_truncated_and_quoted_where_needed(text, printed):
    assert wording.printable(text) == printed


def test_three_names_and_twenty_labels_are_listed():
    assert wording.names([]) == ""
    assert wording.names(["a", "b"]) == "a, b"
    assert wording.names(map(str, range(8))) == "0, 1, 2 and 5 more"
    assert wording.labels(map(str, range(22))).endswith(", 19 and 2 more")


@pytest.mark.parametrize(
    ("names", "text"), [("a", "a"), ("ab", "a and 1 more name"), ("abc", "a and 2 more names")]
)
def test_the_first_of_many_series_is_named(names, text):
    assert wording.series([Series(name=name, labels=frozenset()) for name in names]) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (100, "0s"),
        (101, "0s"),
        (40.5, "59s"),
        (35, "1m5s"),
        (-3500, "1h0m0s"),
        (-3600, "1h1m40s"),
    ],
)
def test_ages_are_whole_seconds_and_never_negative(moment, text):
    assert wording.age(moment, 100) == text


def test_a_selector_is_put_on_one_line():
    text = 'rules:\n- seriesQuery: |-\n    {a="b",\n     c="d"}\n  metricsQuery: m\n'
    (rule,) = ruleset.load([("rules.yaml", text)]).rules

    assert wording.code(rule.config.series_query) == '`{a="b", c="d"}`'
    assert str(rule.config.where) == "rules[0] (rules.yaml:2)"


@pytest.mark.parametrize(
    ("resource", "names", "namespace", "text"),
    [
        (PODS, ["a"], "default", "pod a in namespace default"),
        (PODS, ["a", "b"], "default", "pods a, b in namespace default"),
        (NODES, ["n"], "", "node n"),
        (GroupResource("example.com", "regions"), ["r"], "", "regions.example.com r"),
    ],
)
def test_one_object_is_named_in_the_singular(resource, names, namespace, text):
    assert wording.objects(resource, names, namespace) == text
