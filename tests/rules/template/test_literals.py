"""Literals that are refused; the golden cases of templates.json have the values of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import errors, quoting, template
from rules.template import literals


@pytest.mark.parametrize(
    "source",
    [r'"\xff"', "1i", "0x1p4", "1e400", r"'\"'", r'"\'"', "9" * 5000, "0x1" + "p9999999"],
    ids=lambda source: ascii(source)[:20],
)
def test_text_that_is_not_a_literal_is_an_error(source):
    with pytest.raises(errors.TemplateSyntaxError):
        template.parse(f"<<{source}>>")


@given(st.text())
def test_a_quoted_string_has_the_value_that_was_quoted(text):
    assert literals.string(quoting.quote(text)) == text
