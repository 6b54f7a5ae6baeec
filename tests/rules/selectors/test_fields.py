from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.errors import SelectorError
from rules.selectors.fields import FieldRequirement, parse_fields


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        (",", []),
        ("metadata.name=a", [("metadata.name", "=", "a")]),
        ("metadata.name==a,", [("metadata.name", "=", "a")]),
        ("b=1,a!=2", [("a", "!=", "2"), ("b", "=", "1")]),
        ("a=", [("a", "=", "")]),
        ("=a", [("", "=", "a")]),
        (r"a=x\,y\=z\\", [("a", "=", r"x,y=z" + "\\")]),
        ("a!=b!", [("a", "!=", "b!")]),
        ("a=b\nc", [("a", "=", "b\nc")]),
    ],
)
def test_field_selector_is_parsed_into_requirements(text, requirements):
    parsed = [(each.field, each.operator, each.value) for each in parse_fields(text)]

    assert parsed == requirements


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
        ("a=b,foo", "invalid selector: 'a=b,foo'; can't understand 'foo'"),
        (r"a\,b", r"invalid selector: 'a\,b'; can't understand 'a\,b'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_invalid_field_selector_is_refused_in_the_words_of_kubernetes(text, message):
    with pytest.raises(SelectorError) as error:
        parse_fields(text)

    assert str(error.value) == message


@given(st.text(), st.sampled_from(["=", "!="]))
def test_escaped_value_is_unescaped(value, operator):
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")

    assert parse_fields(f"spec.nodeName{operator}{escaped}") == (
        FieldRequirement(field="spec.nodeName", operator=operator, value=value),
    )


@given(st.text("a=!,\\", max_size=12))
def test_any_text_is_a_field_selector_or_a_selector_error(text):
    with contextlib.suppress(SelectorError):
        assert all(each.operator in ("=", "!=") for each in parse_fields(text))
