"""Errors that are found when a template is parsed."""

from __future__ import annotations

import pytest

from rules import errors, template


def syntax_error(source):
    with pytest.raises(errors.TemplateSyntaxError) as caught:
        template.parse(source)
    return caught.value


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("<<.Series", 1, 10, "unclosed action"),
        ("a\nb <<foo>>", 2, 5, 'function "foo" not defined'),
        ("x\n<<$y>>", 2, 3, "undefined variable $y"),
        ("<<if .Series>>\n", 1, 3, "<<if>> has no <<end>>"),
        ("<<range .GroupBySlice>>a", 1, 3, "<<range>> has no <<end>>"),
        ("a <<end>>", 1, 5, "unexpected <<end>>: no action is open"),
        ("<<else>>", 1, 3, "unexpected <<else>>: no action is open"),
        ("<<if 1>>a<<else>>b<<else>>c<<end>>", 1, 21, "unexpected <<else>> in <<if>>"),
        ("<<if 1>><<else with 2>><<end>>", 1, 16, 'unexpected "with" in <<else>>'),
        ('<<define "a">>x<<else>>y<<end>>', 1, 18, "unexpected <<else>> in <<define>>"),
        ('<<if 1>><<define "a">><<end>><<end>>', 1, 11, "<<define>> inside another action"),
        ('<<define "a">>x<<end>><<define "a">>y<<end>>', 1, 25, 'template "a" is defined twice'),
        ("<<define a>>x<<end>>", 1, 10, 'unexpected "a" in <<define>>'),
        ("<<template .Series>>", 1, 12, 'unexpected ".Series" in <<template>>'),
        ("<<break>>", 1, 3, "<<break>> outside <<range>>"),
        (
            "<<range 3>><<block `a` .>><<continue>><<end>><<end>>",
            1,
            29,
            "<<continue>> outside <<range>>",
        ),
        ("<<range 3>><<break x>><<end>>", 1, 20, 'unexpected "x" in <<break>>'),
        ("<< >>", 1, 4, "missing value for action"),
        ("<<if>>a<<end>>", 1, 5, "missing value for <<if>>"),
        ("<<.Series | 1>>", 1, 13, "stage 2 of the pipeline is not a function"),
        ("<<| .Series>>", 1, 3, 'unexpected "|" in action'),
        ("<<.Series, 1>>", 1, 10, 'unexpected "," in operand'),
        ("<<1(2)>>", 1, 4, 'unexpected "(" in operand'),
        ('<<"a".B>>', 1, 3, 'unexpected . after "\\"a\\""'),
        ("<<nil.B>>", 1, 3, 'unexpected . after "nil"'),
        ("<<'ab'>>", 1, 3, "malformed character constant: 'ab'"),
        ('<<"\\q">>', 1, 3, "invalid escape \\q"),
        ("<<1_>>", 1, 3, "illegal number syntax: 1_"),
        ("<<$x, $y := 1>>", 1, 5, "too many declarations in action"),
        ("<<range $a, $b, $c := 1>><<end>>", 1, 15, "too many declarations in <<range>>"),
        ("<<range $a, 1>><<end>>", 1, 13, "range expects $index, $element := pipeline"),
        (
            "<<range $i, $x .GroupBySlice>><<end>>",
            1,
            13,
            "range expects $index, $element := pipeline",
        ),
        ("<<if 1>><<$x := 1>><<end>><<$x>>", 1, 29, "undefined variable $x"),
        ('<<$x := 1>><<define "a">><<$x>><<end>>', 1, 28, "undefined variable $x"),
        ("<<(1>>", 1, 5, 'unexpected ">>" in parenthesized pipeline'),
        ("<<1)>>", 1, 4, 'unexpected ")" in action'),
        ("<<.Series..GroupBy>>", 1, 10, 'unexpected "." in operand'),
        ("<<call .Series>>", 1, 3, 'function "call" not defined'),
        ("<<if 1>>a<<else 2>><<end>>", 1, 17, 'unexpected "2" in <<else>>'),
        ("<<if 1>>a<<else>>", 1, 3, "<<if>> has no <<end>>"),
        ("<<define `a`>>", 1, 3, "<<define>> has no <<end>>"),
        ("<<template `a` | `b`>>", 1, 16, 'unexpected "|" in <<template>>'),
    ],
)
def test_an_error_points_at_its_place(source, line, column, message):
    error = syntax_error(source)

    assert (error.line, error.column, error.message) == (line, column, message)


def test_an_error_shows_the_line_and_a_caret():
    error = syntax_error("sum(\n  <<.Series | upper>>)\n")

    assert str(error) == (
        '2:15: function "upper" not defined\n'
        "    <<.Series | upper>>)\n"
        "                ^"
    )  # fmt: skip  # more to a line


@pytest.mark.parametrize(
    "source",
    ["<<" + "(" * 5000 + "1" + ")" * 5000 + ">>", "<<if 1>>" * 5000 + "<<end>>" * 5000],
    ids=["parentheses", "actions"],
)
def test_nesting_is_limited(source):
    error = syntax_error(source)

    assert error.message == "actions and parentheses are nested deeper than 100"


def test_a_hundred_levels_and_a_thousand_branches_are_allowed():
    deep = template.parse("<<if 1>>" * 100 + "x" + "<<end>>" * 100)
    long = template.parse("<<if 0>>" + "<<else if 0>>" * 1000 + "<<else>>z<<end>>")

    assert (deep.render({}), long.render({})) == ("x", "z")
