"""Predefined functions, as in Go 1.26."""

from __future__ import annotations

import pytest

from rules import errors, template

QUERY = {
    "Series": "container_cpu",
    "LabelMatchers": "",
    "LabelValuesByName": {"pod": "web-0", "app": "x", 'k"ey': "é"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod", "node", "世界"],
}

CASES = [
    ("and 1 0 2", "0"),
    ("and 1 2", "2"),
    ("or 0 `` 3 (index nil)", "3"),
    ("or 0 ``", ""),
    ("and nil", "<no value>"),
    ("1 | and 1", "1"),
    ("1 | or 2", "2"),
    ("print (or nil nil)", "<nil>"),
    ("not .Series", "false"),
    ("not nil", "true"),
    ("len .Series", "13"),
    ("len `世界`", "6"),
    ("len .LabelValuesByName", "3"),
    ("len .GroupBySlice", "3"),
    ("index .LabelValuesByName `pod`", "web-0"),
    ("index .LabelValuesByName `nope`", ""),
    ("index .GroupBySlice 1", "node"),
    ("index .Series 0", "99"),
    ("index .GroupBySlice 2 0", "228"),
    ("index .Series", "container_cpu"),
    ("slice .Series 3", "tainer_cpu"),
    ("slice .Series 3 5", "ta"),
    ("slice `世界` 0 3", "世"),
    ("slice .GroupBySlice 1", "[node 世界]"),
    ("print `a` 1 2 `b` 3 true nil 1.5", "a1 2b3 true <nil> 1.5"),
    ("print", ""),
    ("println 1 `a` .GroupBySlice", "1 a [pod node 世界]\n"),
    ('html `<a href="x">\'&\'` "\\x00"', "&lt;a href=&#34;x&#34;&gt;&#39;&amp;&#39;\ufffd"),
    ("html .LabelValuesByName.nope 1", "&lt;no value&gt;1"),
    ("js `a<b>&\"'=\\`", "a\\u003Cb\\u003E\\u0026\\\"\\'\\u003D\\\\"),
    ('js "\\n\\x7f é\\u200b\\U000E0001"', "\\u000A\x7f é\\u200B\\uE0001"),
    ("urlquery `a b/é~` 1", "a+b%2F%C3%A9~1"),
    ("eq 1 2 1", "true"),
    ("eq .Series `a` .GroupBy", "false"),
    ("eq 97 (index `a` 0)", "true"),
    ("eq 1.5 1.5", "true"),
    ("eq true true false", "true"),
    ("eq nil nil", "true"),
    ("eq nil .GroupBySlice", "false"),
    ("eq 1 nil", "false"),
    ("ne `a` `b`", "true"),
    ("lt 1 2", "true"),
    ("lt `Z` `a`", "true"),
    ("le 1.5 1.5", "true"),
    ("le 97 (index `a` 0)", "true"),
    ("gt 1 2", "false"),
    ("ge `b` `b`", "true"),
]


@pytest.mark.parametrize(("source", "output"), CASES, ids=str)
def test_a_function_returns_the_same_as_in_go(source, output):
    assert template.parse(f"<<{source}>>").render(QUERY) == output


ERRORS = [
    ("index nil", "index: cannot index nil"),
    ("index 1 1", "index: cannot index int"),
    ("index . `Series`", "index: cannot index template data"),
    ("index .LabelValuesByName 1", "index: cannot use int as a key"),
    ("index .LabelValuesByName nil", "index: cannot use nil as a key"),
    ("index .GroupBySlice `0`", "index: cannot use string as an index"),
    ("index .GroupBySlice true", "index: cannot use bool as an index"),
    ("index .GroupBySlice 3", "index: index out of range: 3"),
    ("index .GroupBySlice -1", "index: index out of range: -1"),
    ("slice nil", "slice: cannot slice nil"),
    ("slice .LabelValuesByName", "slice: cannot slice map"),
    ("slice .GroupBySlice 2 1", "slice: invalid slice index: 2 > 1"),
    ("slice .GroupBySlice 9", "slice: index out of range: 9"),
    ("slice (slice .GroupBySlice 0 1) 0 2", "slice: index out of range: 2"),
    ("slice `é` 1", "slice: cuts a character in two: bytes 1 to 2 of 'é'"),
    ("len nil", "len: nil has no length"),
    ("printf 1", "printf: format is not a string but int"),
    (".LabelValuesByName.x | printf", "printf: format is not a string but nil"),
    ("eq 1 1.0", "eq: cannot compare int with float64"),
    ("eq .GroupBySlice .GroupBySlice", "eq: cannot compare list with list"),
    ("eq .GroupBySlice .LabelValuesByName", "eq: cannot compare list with map"),
    ("ne . .", "ne: cannot compare template data with template data"),
    ("lt true false", "lt: cannot order bool and bool"),
    ("le nil 1", "le: cannot order nil and int"),
    ("gt 1 `a`", "gt: cannot order int and string"),
    ("ge .GroupBySlice .GroupBySlice", "ge: cannot order list and list"),
]


@pytest.mark.parametrize(("source", "message"), ERRORS, ids=str)
def test_arguments_that_do_not_fit_are_an_error(source, message):
    parsed = template.parse(f"<<{source}>>")

    with pytest.raises(errors.TemplateExecError) as caught:
        parsed.render(QUERY)

    position, _, text = str(caught.value).partition(": ")
    assert (position.partition(":")[0], text) == ("1", message)
