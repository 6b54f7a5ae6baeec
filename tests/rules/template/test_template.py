"""The package's face: parsing with errors that point, rendering, unknown fields, promises."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules import errors, template
from rules.template import nodes

QUERY = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="default",pod=~"a|b"',
    "LabelValuesByName": {"namespace": "default", "pod": "a|b"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}


def render(source, data=QUERY):
    return template.parse(source).render(data)


def refused(source):
    with pytest.raises(errors.TemplateSyntaxError) as caught:
        template.parse(source)
    return caught.value


def failed(source, data=QUERY):
    parsed = template.parse(source)
    with pytest.raises(errors.TemplateExecError) as caught:
        parsed.render(data)
    return str(caught.value)


def test_a_query_renders():
    query = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"

    assert render(query) == 'sum(http_requests_total{namespace="default",pod=~"a|b"}) by (pod)'


def test_a_label_renders():
    label = {"Group": "apps", "Resource": "deployment"}

    assert render("kube_<<.Group>>_<<.Resource>>", label) == "kube_apps_deployment"


def test_a_template_renders_again_with_other_data():
    parsed = template.parse("<<$x := .GroupBy>><<$x>>")

    first, second = parsed.render(QUERY), parsed.render({"GroupBy": "node"})

    assert (first, second) == ("pod", "node")


def test_the_tree_is_data_with_offsets():
    parsed = template.parse("a <<.Series>>")

    text, action = parsed.root.nodes

    assert text == nodes.Text(offset=0, text="a ")
    assert isinstance(action, nodes.Action)
    assert action.pipe.commands[0].operands == (nodes.Field(offset=4, names=("Series",)),)
    assert parsed.source == "a <<.Series>>"


@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        ("<<.Series", 1, 10, "unclosed action"),
        ("a\nb <<foo>>", 2, 5, 'function "foo" not defined'),
        ("x\n<<$y>>", 2, 3, 'undefined variable "$y"'),
        ("<<if .Series>>\n", 2, 1, "not closed by <<end>>"),
        ("<<range .GroupBySlice>>a", 1, 25, "not closed by <<end>>"),
        ("a <<end>>", 1, 5, "unexpected <<end>>"),
        ("<<else>>", 1, 3, "unexpected <<else>>"),
        ("<<if 1>>a<<else>>b<<else>>c<<end>>", 1, 21, "unexpected <<else>>"),
        ("<<if 1>><<else with 2>><<end>>", 1, 16, "unexpected <with>"),
        ('<<define "a">>x<<else>>y<<end>>', 1, 18, "unexpected <<else>> in define clause"),
        ('<<if 1>><<define "a">><<end>><<end>>', 1, 11, "unexpected <define>"),
        ('<<define "a">>x<<end>><<define "a">>y<<end>>', 1, 23, "defined twice"),
        ("<<define a>>x<<end>>", 1, 10, "in define clause"),
        ("<<template .Series>>", 1, 12, "in template clause"),
        ("<<break>>", 1, 3, "<<break>> outside <<range>>"),
        ("<<range 3>><<block `a` .>><<continue>><<end>><<end>>", 1, 29, "outside <<range>>"),
        ("<<range 3>><<break x>><<end>>", 1, 20, "unexpected"),
        ("<< >>", 1, 4, "missing value for command"),
        ("<<if>>a<<end>>", 1, 5, "missing value for if"),
        ("<<.Series | 1>>", 1, 13, "non executable command in pipeline stage 2"),
        ("<<| .Series>>", 1, 3, 'unexpected "|" in command'),
        ("<<.Series, 1>>", 1, 10, 'unexpected "," in operand'),
        ("<<1(2)>>", 1, 4, 'unexpected "(" in operand'),
        ('<<"a".B>>', 1, 3, "unexpected . after"),
        ("<<nil.B>>", 1, 3, "unexpected . after"),
        ("<<'ab'>>", 1, 3, "malformed character constant"),
        ('<<"\\q">>', 1, 3, "invalid syntax"),
        ("<<1_>>", 1, 3, "illegal number syntax"),
        ("<<$x, $y := 1>>", 1, 5, "too many declarations in command"),
        ("<<range $a, $b, $c := 1>><<end>>", 1, 15, "too many declarations in range"),
        ("<<range $a, 1>><<end>>", 1, 13, "range can only initialize variables"),
        ("<<range $i, $x .GroupBySlice>><<end>>", 1, 13, 'undefined variable "$x"'),
        ("<<if 1>><<$x := 1>><<end>><<$x>>", 1, 29, "undefined variable"),
        ('<<$x := 1>><<define "a">><<$x>><<end>>', 1, 28, "undefined variable"),
        ("ok\ud800", 1, 3, "no Unicode text"),
    ],
)
def test_a_syntax_error_points_at_its_place(source, line, column, words):
    error = refused(source)

    assert (error.line, error.column) == (line, column)
    assert words in error.message


def test_a_syntax_error_shows_the_line_and_a_caret():
    error = refused("sum(\n  <<.Series | upper>>)\n")

    assert str(error) == (
        '2:15: function "upper" not defined\n'
        "    <<.Series | upper>>)\n"
        "                ^"
    )  # fmt: skip  # more to a line


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n <<.Nope>>", "2:4: there is no field Nope; the data has Series, LabelMatchers, "),
        ("<<.Series.X>>", "1:3: can't evaluate field X in type string"),
        ("<<.Series 1>>", "1:3: Series has arguments but cannot be invoked as function"),
        ("<<1 | .LabelValuesByName.pod>>", "pod has arguments but cannot be invoked"),
        ("<<1 2>>", "1:3: can't give argument to non-function"),
        ("<<1 | $>>", "can't give argument to non-function"),
        ("<<nil>>", "1:3: nil is not a command"),
        ("<<18446744073709551615>>", "1:3: 18446744073709551615 overflows int"),
        ("<<$x = 1>>", "1:3: undefined variable: $x"),
        ("<<and 0 ($x := 1)>><<$x>>", "1:22: undefined variable: $x"),
        ("<<range $x = .GroupBySlice>><<end>>", "undefined variable: $x"),
        ("<<range 1.5>><<end>>", "1:9: range can't iterate over float64"),
        ('<<range "abc">><<end>>', "range can't iterate over string"),
        ("<<range true>><<end>>", "range can't iterate over bool"),
        ("<<range .>><<end>>", "range can't iterate over naming.queryTemplateArgs"),
        ("<<range $i, $x := 3>><<end>>", "can't use 3 to iterate over more than one variable"),
        ('<<template "a">>', '1:3: template "a" not defined'),
        ("<<len>>", "1:3: wrong number of args for len: want 1 got 0"),
        ("<<1 | eq 1 | lt>>", "wrong number of args for lt: want 2 got 1"),
        ("<<index>>", "wrong number of args for index: want at least 1 got 0"),
        ("<<or>>", "wrong number of args for or: want at least 1 got 0"),
        ("<<len 1>>", "1:3: error calling len: len of type int"),
        ("<<printf 1>>", "wrong type for printf's format: string, not int"),
        ("<<printf nil>>", "cannot assign nil to string"),
        ("<<.LabelValuesByName.x | printf>>", "wrong type for printf's format: string, not <nil>"),
    ],
)
def test_an_execution_error_says_where_and_what(source, message):
    assert message in failed(source)


def test_what_is_never_reached_never_fails():
    assert render("<<if false>><<.Nope>><<nil>><<len>><<1 2>><<end>>ok") == "ok"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("\ud800", "the data is no Unicode text"),
        ({1}, "holds text, lists and maps, not set"),
    ],
)
def test_data_that_is_no_template_data_is_refused(value, words):
    assert words in failed("<<.Series>>", {"Series": value})


# Limits.


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<<range 1000000000000>><<end>>", "more than 1000000 steps"),
        ("<<range 9999>><<$x := printf `%900000d` 1>><<end>>", "more than 1000000 steps"),
        ("<<range 99>><<printf `%900000d` 1>><<end>>", "grows beyond 1048576 characters"),
        ("<<$x := `aa`>><<range 40>><<$x = print $x $x>><<end>>", "grows beyond 1048576"),
        ("<<$x := printf `%900000d` 1>><<printf `%s%s` $x $x>>", "grows beyond 1048576"),
        ("<<$x := `&`>><<range 19>><<$x = print $x $x>><<end>><<html $x>>", "grows beyond 1048576"),
        ("<<define `a`>><<template `a`>><<end>><<template `a`>>", "more than 150 deep"),
        ("<<template `metrics-query`>>", "more than 150 deep"),
        (
            f"{'<<if 1>>' * 30}<<template `metrics-query`>>{'<<end>>' * 30}",
            "too deeply",
        ),
    ],
    ids=[
        "steps", "work", "output", "doubling", "printf", "html", "recursion", "itself",
        "deep recursion",
    ],
)  # fmt: skip  # more to a line
def test_a_rendering_is_bounded(source, words):
    assert words in failed(source)


@pytest.mark.parametrize(
    "source",
    [
        "<<" + "(" * 5000 + "1" + ")" * 5000 + ">>",
        "<<if 1>>" * 5000 + "<<end>>" * 5000,
    ],
    ids=["parentheses", "actions"],
)
def test_nesting_is_bounded(source):
    assert "nested deeper than 100" in refused(source).message


def test_a_hundred_levels_and_a_thousand_arms_are_fine():
    assert render("<<if 1>>" * 100 + "x" + "<<end>>" * 100) == "x"
    assert render("<<if 0>>" + "<<else if 0>>" * 1000 + "<<else>>z<<end>>") == "z"


# Unknown fields.


@pytest.mark.parametrize(
    ("source", "found"),
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
        ("<<if .A>><<.B>><<else if .C>><<else>><<.D>><<end>>", [".A", ".B", ".C", ".D"]),
        ("<<with .Series>><<.Nope>><<$.Nope>><<else>><<.Nope>><<end>>", ["$.Nope", ".Nope"]),
        ("<<with .>><<.Nope>><<end>>", [".Nope"]),
        ("<<range .GroupBySlice>><<.Nope>><<$.Nope>><<end>>", ["$.Nope"]),
        ("<<range .Nope>><<break>><<end>>", [".Nope"]),
        ("<<range $i, $x := .GroupBySlice>><<$x.Nope>><<end>>", []),
        ("<<$x := .>><<$x.Nope>>", []),
        ("<<define `a`>><<.Nope>><<$.No>><<end>><<template `a` .>>", [".Nope", "$.No"]),
        ("<<define `a`>><<.Nope>><<end>><<template `a` .Series>><<template `a`>>", []),
        ("<<define `a`>><<.Nope>><<template `a` .>><<end>><<template `a` $>>", [".Nope"]),
        ("<<define `a`>><<.Nope>><<end>>", []),
        ("<<template `missing` .>>", []),
        ("<<block `a` .>><<.Nope>><<end>>", [".Nope"]),
        ("<<print.Nope>>", []),
    ],
)
def test_fields_that_cannot_be_are_found_without_rendering(source, found):
    unknown = template.parse(source).unknown_fields(template.QUERY_FIELDS)

    assert [field.name for field in unknown] == found


def test_an_unknown_field_has_its_place():
    unknown = template.parse("kube_<<.Series>>").unknown_fields(template.LABEL_FIELDS)

    assert unknown == [template.UnknownField(name=".Series", offset=7)]


# Promises.

_PIECES = st.sampled_from(
    [
        *("<<", ">>", "<<-", "|", ":=", "=", ",", "(", ")", "/*", "*/", "\\", '"', "1", "-1.5"),
        *(".", "$", "$x", ".Series", ".GroupBySlice", ".LabelValuesByName", ".x", '"%d"', "`é`"),
        *("if", "else", "end", "range", "with", "define", "template", "block", "break", "nil"),
        *("print", "printf", "index", "slice", "eq", "lt", "js", "html", "true", "0x", "1i"),
    ]
)
_SOURCES = st.one_of(
    st.text(),
    st.lists(_PIECES).map(" ".join),
    st.lists(_PIECES).map("".join),
    st.lists(_PIECES).map(lambda pieces: f"<<{' '.join(pieces)}>>"),
)


@given(st.text().filter(lambda text: "<<" not in text))
def test_text_without_actions_renders_to_itself(text):
    assert render(text) == text


@settings(max_examples=300, deadline=None)
@given(_SOURCES, st.dictionaries(st.sampled_from(sorted(QUERY)), st.text()))
@example("<<js .Series>>", {"Series": "\udcff"})
def test_nothing_but_the_two_errors_is_ever_raised(source, fields):
    with contextlib.suppress(errors.TemplateSyntaxError):
        parsed = template.parse(source)
        parsed.unknown_fields(template.QUERY_FIELDS)
        for data in (QUERY, QUERY | fields):
            with contextlib.suppress(errors.TemplateExecError):
                assert isinstance(parsed.render(data), str)
