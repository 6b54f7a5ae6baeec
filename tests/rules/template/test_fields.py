"""Static check of fields."""

from __future__ import annotations

import pytest

from rules import template
from rules.ruleset import QUERY_FIELDS
from rules.template.analysis import FieldUse


def unknown(source):
    fields = template.parse(source).unknown_fields(QUERY_FIELDS)
    return [field.name for field in fields]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("<<.Series>><<.GroupBySlice>><<.>><<$>>", []),
        ("<<.Nope>>", [".Nope"]),
        ("ab <<$.Nope.X>>", ["$.Nope"]),
        ("<<.Series.Foo.Bar>>", [".Series.Foo"]),
        ("<<.GroupBySlice.Foo>>", [".GroupBySlice.Foo"]),
        ("<<.LabelValuesByName.pod>>", []),
        ("<<.LabelValuesByName.pod.x>>", []),
        ("<<(.Series).X>>", ["(…).X"]),
        ("<<(print .Nope | len).X>>", [".Nope"]),
        ("<<index .LabelValuesByNam `x`>>", [".LabelValuesByNam"]),
        ("<<print.Nope>>", []),
    ],
)
def test_a_field_that_the_data_lacks_is_reported(source, names):
    assert unknown(source) == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("<<if .A>><<.B>><<else if .C>><<else>><<.D>><<end>>", [".A", ".B", ".C", ".D"]),
        ("<<with .Series>><<.Nope>><<$.Nope>><<else>><<.No>><<end>>", ["$.Nope", ".No"]),
        ("<<with .LabelValuesByName>><<.pod>><<end>>", []),
        ("<<with .>><<.Nope>><<end>>", [".Nope"]),
        ("<<with index .GroupBySlice 0>><<.Nope>><<end>>", []),
        ("<<range .GroupBySlice>><<.Nope>><<$.Nope>><<end>>", ["$.Nope"]),
        ("<<range .Nope>><<break>><<end>>", [".Nope"]),
        ("<<range .GroupBySlice>><<else>><<.Nope>><<end>>", [".Nope"]),
    ],
)
def test_dot_is_followed_into_bodies(source, names):
    assert unknown(source) == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("<<define `a`>><<.Nope>><<$.No>><<end>><<template `a` .>>", [".Nope", "$.No"]),
        ("<<define `a`>><<.pod>><<$.pod>><<end>><<template `a` .LabelValuesByName>>", []),
        ("<<define `a`>><<.Nope>><<end>><<template `a`>>", []),
        ("<<define `a`>><<.Nope>><<template `a` .>><<end>><<template `a` $>>", [".Nope"]),
        ("<<define `a`>><<.Nope>><<end>>", []),
        ("<<template `missing` .>>", []),
        ("<<block `a` .>><<.Nope>><<end>>", [".Nope"]),
        ("<<block `a` .Series>><<end>><<$.Nope>>", ["$.Nope"]),
    ],
)
def test_the_data_is_followed_into_templates(source, names):
    assert unknown(source) == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("<<range $i, $x := .GroupBySlice>><<$x.Nope>><<end>>", []),
        ("<<$x := .>><<$x.Nope>>", []),
        ("<<$ := .LabelValuesByName>><<$.pod>>", []),
        ("<<$ = .LabelValuesByName>><<$.pod>>", []),
        ("<<with $ := .LabelValuesByName>><<$.pod>><<end>>", []),
        ("<<range $ := .GroupBySlice>><<$.pod>><<end>>", []),
        ("<<$ := $.Nope>><<$.pod>>", ["$.Nope"]),
        ("<<$.Nope>><<$ := .Series>>", ["$.Nope"]),
        ("<<$ := .Series>><<define `a`>><<$.Nope>><<end>><<template `a` .>>", ["$.Nope"]),
        ("<<define `a`>><<$ := .Series>><<end>><<template `a` .>><<$.Nope>>", ["$.Nope"]),
    ],
)
def test_a_variable_is_not_followed_once_it_is_set(source, names):
    assert unknown(source) == names


def test_an_unknown_field_has_a_position():
    unknown = template.parse("kube_<<.Series>>").unknown_fields({"Group": str, "Resource": str})

    assert unknown == [FieldUse(name=".Series", offset=7)]
