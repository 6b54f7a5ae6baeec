"""The predefined functions: each case is what Go 1.26 answers."""

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
LABEL = {"Group": "apps", "Resource": "deployment"}

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
    ("slice (slice .GroupBySlice 0 1) 0 3", "[pod node 世界]"),
    ("len (slice .GroupBySlice 0 1 2)", "1"),
    ("slice (slice .GroupBySlice 1 1 2) 0 1", "[node]"),
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
    ("eq 1i 1i", "true"),
    ("ne `a` `b`", "true"),
    ("lt 1 2", "true"),
    ("lt `Z` `a`", "true"),
    ('lt "\\uffff" "\\xff"', "true"),
    ("le 1.5 1.5", "true"),
    ("le 97 (index `a` 0)", "true"),
    ("gt 1 2", "false"),
    ("ge `b` `b`", "true"),
]


@pytest.mark.parametrize(("source", "output"), CASES, ids=str)
def test_a_function_answers_as_in_go(source, output):
    assert template.parse(f"<<{source}>>").render(QUERY) == output


REFUSED = [
    ("index nil", "index of untyped nil"),
    ("index 1 1", "can't index item of type int"),
    ("index . `Series`", "can't index item of type naming.queryTemplateArgs"),
    ("index .LabelValuesByName 1", "value has type int; should be string"),
    ("index .LabelValuesByName nil", "value has type <nil>; should be string"),
    ("index .GroupBySlice `0`", "cannot index slice/array with type string"),
    ("index .GroupBySlice true", "cannot index slice/array with type bool"),
    ("index .GroupBySlice 3", "index out of range: 3"),
    ("index .GroupBySlice -1", "index out of range: -1"),
    ("slice nil", "can't slice item of type <nil>"),
    ("slice .LabelValuesByName", "can't slice item of type map[string]string"),
    ("slice .Series 0 1 2", "cannot 3-index slice a string"),
    ("slice .GroupBySlice 0 1 2 3", "too many slice indexes: 4"),
    ("slice .GroupBySlice 2 1", "invalid slice index: 2 > 1"),
    ("slice .GroupBySlice 0 2 1", "invalid slice index: 2 > 1"),
    ("slice .GroupBySlice 9", "index out of range: 9"),
    ("slice (slice .GroupBySlice 0 1 2) 0 3", "index out of range: 3"),
    ("len nil", "len of type <nil>"),
    ("call nil", "call of nil"),
    ("call .Series", "non-function of type string"),
    ("eq 1", "missing argument for comparison"),
    ("eq 1 1.0", "incompatible types for comparison: int and float64"),
    ("eq .GroupBySlice .GroupBySlice", "non-comparable type []string"),
    ("eq .GroupBySlice .LabelValuesByName", "non-comparable types"),
    ("eq . .", "non-comparable type naming.queryTemplateArgs"),
    ("lt true false", "invalid type for comparison"),
    ("lt 1i 1i", "invalid type for comparison"),
    ("lt nil 1", "invalid type for comparison"),
    ("lt 1 `a`", "incompatible types for comparison: int and string"),
    ("lt .GroupBySlice .GroupBySlice", "invalid type for comparison"),
]


@pytest.mark.parametrize(("source", "words"), REFUSED, ids=str)
def test_arguments_that_do_not_fit_are_refused(source, words):
    parsed = template.parse(f"<<{source}>>")

    with pytest.raises(errors.TemplateExecError) as caught:
        parsed.render(QUERY)

    assert words in str(caught.value)


LABELS = [
    ("print .", "deployment.apps"),
    ("printf `%d` .", "{%!d(string=apps) %!d(string=deployment)}"),
    ("eq . .", "true"),
    ("printf `%+v` .", "deployment.apps"),
    ("printf `%#v` .", 'schema.GroupResource{Group:"apps", Resource:"deployment"}'),
    ("printf `%w` .", "%!w(schema.GroupResource={apps deployment})"),
]


@pytest.mark.parametrize(("source", "output"), LABELS, ids=str)
def test_a_labels_data_prints_as_a_group_resource(source, output):
    assert template.parse(f"<<{source}>>").render(LABEL) == output


def test_a_core_resource_prints_without_group():
    assert template.parse("<<.>>").render({"Group": "", "Resource": "pod"}) == "pod"


def test_bytes_that_are_not_utf8_survive_and_unite():
    rendered = template.parse('<<slice "é" 0 1>><<slice "é" 1>><<slice "é" 1>>').render(QUERY)

    assert rendered == "é\udca9"
