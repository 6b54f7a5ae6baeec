"""Interface of the package, and properties that hold for every template."""

from __future__ import annotations

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st

from rules import errors, template
from rules.ruleset import QUERY_FIELDS

QUERY = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="default",pod=~"a|b"',
    "LabelValuesByName": {"namespace": "default", "pod": "a|b"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}


def test_a_template_renders_again_with_other_data():
    parsed = template.parse("<<$x := .GroupBy>><<$x>>")

    first, second = parsed.render(QUERY), parsed.render({"GroupBy": "node"})

    assert (first, second) == ("pod", "node")


_PIECES = st.sampled_from(
    [
        *("<<", ">>", "<<-", "|", ":=", "=", ",", "(", ")", "/*", "*/", "\\", '"', "1", "-1.5"),
        *(".", "$", "$x", ".Series", ".GroupBySlice", ".LabelValuesByName", ".x", '"%d"', "`é`"),
        *("if", "else", "end", "range", "with", "define", "template", "block", "break", "nil"),
        *("print", "printf", "index", "slice", "eq", "lt", "js", "html", "true", "0x", "1e"),
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
    assert template.parse(text).render(QUERY) == text


@given(_SOURCES, st.dictionaries(st.sampled_from(sorted(QUERY)), st.text()))
@example("<<js .Series>>", {"Series": "\udcff"})
def test_only_the_two_template_errors_are_raised(source, fields):
    with contextlib.suppress(errors.TemplateSyntaxError):
        parsed = template.parse(source)
        parsed.unknown_fields(QUERY_FIELDS)
        for data in (QUERY, QUERY | fields):
            with contextlib.suppress(errors.TemplateExecError):
                assert isinstance(parsed.render(data), str)
