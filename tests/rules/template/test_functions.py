"""Messages of predefined functions; the golden cases of templates.json have what they return."""

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


def test_html_escapes_what_the_golden_cases_lack():
    source = 'html `<a href="x">\'&\'` "\\x00"'

    assert template.parse(f"<<{source}>>").render({}) == (
        "&lt;a href=&#34;x&#34;&gt;&#39;&amp;&#39;\ufffd"
    )


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
