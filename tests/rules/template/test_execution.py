"""Errors and limits of a rendering; the golden cases of templates.json have what actions do."""

from __future__ import annotations

import pytest

from rules import errors, template

DATA = {
    "Series": "container_cpu",
    "LabelMatchers": 'app="x"',
    "LabelValuesByName": {"pod": "web-0", "app": "x", "empty": ""},
    "GroupBy": "pod,node",
    "GroupBySlice": ("pod", "node"),
}


def failure(source, data=DATA):
    parsed = template.parse(source)
    with pytest.raises(errors.TemplateExecError) as caught:
        parsed.render(data)
    return str(caught.value)


ERRORS = [
    (
        "a\n <<.Nope>>",
        (
            "2:4: no field .Nope; the data has "
            ".Series, .LabelMatchers, .LabelValuesByName, .GroupBy, .GroupBySlice"
        ),
    ),
    ("<<.Series.X>>", "1:3: no field .X in string"),
    ("<<.Series 1>>", "1:3: cannot give an argument to a value that is not a function"),
    ("<<1 2>>", "1:3: cannot give an argument to a value that is not a function"),
    ("<<1 | $>>", "1:7: cannot give an argument to a value that is not a function"),
    ("<<nil>>", "1:3: nil is not a command"),
    ("<<$x = 1>>", "1:3: undefined variable: $x"),
    ("<<and 0 ($x := 1)>><<$x>>", "1:22: undefined variable: $x"),
    ("<<range $x = .GroupBySlice>><<end>>", "1:9: undefined variable: $x"),
    ("<<range 1.5>><<end>>", "1:9: range cannot iterate over float64"),
    ("<<range `abc`>><<end>>", "1:9: range cannot iterate over string"),
    ("<<range true>><<end>>", "1:9: range cannot iterate over bool"),
    ("<<range .>><<end>>", "1:9: range cannot iterate over template data"),
    ("<<range $i, $x := 3>><<end>>", "1:9: range over the number 3 sets only one variable"),
    ("<<template `a`>>", '1:3: template "a" not defined'),
    ("<<len>>", "1:3: wrong number of arguments for len: 0, not 1"),
    ("<<1 | eq 1 | lt>>", "1:14: wrong number of arguments for lt: 1, not 2"),
    ("<<index>>", "1:3: wrong number of arguments for index: 0, not at least 1"),
    ("<<slice 1 2 3 4>>", "1:3: wrong number of arguments for slice: 4, not 1 to 3"),
    ("<<or>>", "1:3: wrong number of arguments for or: 0, not at least 1"),
    ("<<len 1>>", "1:3: len: int has no length"),
]


@pytest.mark.parametrize(("source", "message"), ERRORS, ids=str)
def test_an_error_says_where_and_what(source, message):
    assert failure(source) == message


def test_an_error_that_execution_does_not_reach_is_not_raised():
    source = "<<if false>><<.Nope>><<nil>><<len>><<1 2>><<template `a`>><<end>>ok"

    assert template.parse(source).render(DATA) == "ok"


def test_a_range_over_a_missing_key_is_empty():
    source = "<<range .LabelValuesByName.nope>>x<<else>>none<<end>>"

    assert template.parse(source).render(DATA) == "none"


def test_data_that_is_not_unicode_text_is_refused():
    assert "not valid Unicode" in failure("<<.Series>>", {"Series": "\ud800"})


LIMITS = {
    "steps": ("<<range 1000000000000>><<end>>", "more than 100000 steps"),
    "output": ("<<range 99>><<printf `%900000d` 1>><<end>>", "beyond 1048576 characters"),
    "variable": (
        "<<$x := `aa`>><<range 40>><<$x = print $x $x>><<end>>",
        "print: text grows beyond 1048576 characters",
    ),
    "operands": (f"<<range 1000>><<$x := print {'1 ' * 1000}>><<end>>", "more than 100000 steps"),
    "sorting": (
        "<<range 99999>><<range $.LabelValuesByName>><<break>><<end>><<end>>",
        "more than 100000 steps",
    ),
    "work": (
        "<<$x := printf `%900000d` 1>><<range 99999>><<$y := urlquery $x>><<end>>",
        "1:53: urlquery: functions of the template get more than 8388608 characters",
    ),
    "repeated arguments": (
        f"<<$x := printf `%900000d` 1>><<$y := print {'$x ' * 1000}>>",
        "print: functions of the template get more than 8388608 characters",
    ),
    "repeated operand": (
        f"<<$x := printf `%900000d` 1>><<printf `{'%[1]s' * 1000}` $x>>",
        "printf: text grows beyond 1048576 characters",
    ),
    "repeated padding": (
        f"<<printf `{'%900000d' * 1000}` {'1 ' * 1000}>>",
        "printf: text grows beyond 1048576 characters",
    ),
    "padding of a list": (
        "<<printf `%900000v` .GroupBySlice>>",
        "printf: text grows beyond 1048576 characters",
    ),
    "padding of a map": (
        "<<printf `%900000v` .LabelValuesByName>>",
        "printf: text grows beyond 1048576 characters",
    ),
    "recursion": ("<<define `a`>><<template `a`>><<end>><<template `a`>>", "too deeply"),
    "invocation of itself": ("<<template `metrics-query`>>", "too deeply"),
    "recursion in actions": (
        f"{'<<if 1>>' * 30}<<template `metrics-query`>>{'<<end>>' * 30}",
        "too deeply",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "message"), LIMITS.values(), ids=LIMITS)
def test_a_rendering_is_limited(source, message):
    assert message in failure(source)
