"""Tokens: kinds, positions and errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import errors
from rules.template import lexer


def kinds(source):
    return [token.kind for token in lexer.lex(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ["eof"]),
        ("a > b", ["text", "eof"]),
        ("<<.A.B>>", ["left", "field", "field", "right", "eof"]),
        ("<<.A .>>", ["left", "field", "space", "dot", "right", "eof"]),
        ("<<$ $x>>", ["left", "variable", "space", "variable", "right", "eof"]),
        ("<<$x:=1|f>>", ["left", "variable", "declare", "number", "pipe", "word", "right", "eof"]),
        ("<<$x =,>>", ["left", "variable", "space", "assign", "comma", "right", "eof"]),
        ("<<(nil)>>", ["left", "open", "word", "close", "right", "eof"]),
        ("<<if `if`>>", ["left", "keyword", "space", "string", "right", "eof"]),
        ("<<\"a>>\"'b'`c`>>", ["left", "string", "character", "string", "right", "eof"]),
        ("<<-1.5e-3>>", ["left", "number", "right", "eof"]),
        ("<<.5 0x1F>>", ["left", "number", "space", "number", "right", "eof"]),
        ("x <<- 1  ->> y", ["text", "left", "number", "space", "right", "text", "eof"]),
        ("<</* c */>><<- /* >> */ ->>", ["eof"]),
        ("<<_é1>>", ["left", "word", "right", "eof"]),
    ],
    ids=ascii,
)
def test_a_source_is_divided_into_tokens(source, expected):
    assert kinds(source) == expected


def test_a_token_has_text_and_position():
    tokens = lexer.lex("ab \n<<- .Series ->> c")

    assert tokens[0] == ("text", "ab", 0)
    assert tokens[2] == ("field", ".Series", 8)
    assert tokens[-2] == ("text", "c", 20)


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
