"""Positions of tokens, and errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import errors
from rules.template import lexer


@pytest.mark.parametrize(
    ("source", "message", "offset"),
    [
        ("<<.A", "unclosed action", 4),
        ("<</* c", "unclosed comment", 2),
        ("<</* c */ >>", "comment ends before closing delimiter", 2),
        ("<<:>>", "unexpected character ':' in action", 2),
        ("<<.A->>", "unexpected character '-' in action", 4),
        ("<<$x+>>", "unexpected character '+' in action", 4),
        ("<<$x=1>>", "unexpected character '=' in action", 4),
        ("<<print`a`>>", "unexpected character '`' in action", 7),
        ("<<.A\x00>>", "unexpected character '\\x00' in action", 4),
        ("<<€>>", "unexpected character '€' in action", 2),
        ('<<"a\n">>', "unterminated quoted string", 2),
        ("<<'a>>", "unterminated character constant", 2),
        ("<<`a>>", "unterminated raw quoted string", 2),
    ],
    ids=ascii,
)
def test_text_that_is_not_a_token_is_an_error(source, message, offset):
    with pytest.raises(errors.TemplateSyntaxError) as caught:
        lexer.lex(source)

    assert (caught.value.message, caught.value.offset) == (message, offset)


@given(st.text(alphabet=st.sampled_from("<>-/*.$\"'`\\ \n(a1=|é")))
def test_the_offset_of_a_token_is_where_its_text_begins(source):
    with contextlib.suppress(errors.TemplateSyntaxError):
        for token in lexer.lex(source):
            assert source[token.offset :].startswith(token.text)
