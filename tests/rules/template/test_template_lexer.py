"""The lexer: kinds, places and what ends a stream early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.template import lexer


def kinds(source):
    return [token.kind for token in lexer.lex(source)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", ["eof"]),
        ("a > b", ["text", "eof"]),
        ("<<.A.B>>", ["left", "field", "field", "right", "eof"]),
        ("<<.A .>>", ["left", "field", "space", "dot", "right", "eof"]),
        ("<<$ $x>>", ["left", "variable", "space", "variable", "right", "eof"]),
        (
            "<<$x:=1|f>>",
            ["left", "variable", "declare", "number", "pipe", "identifier", "right", "eof"],
        ),
        ("<<$x =,>>", ["left", "variable", "space", "assign", "other", "right", "eof"]),
        ("<<(nil)>>", ["left", "open", "nil", "close", "right", "eof"]),
        ("<<if true>>", ["left", "keyword", "space", "bool", "right", "eof"]),
        ("<<\"a>>\"'b'`c`>>", ["left", "string", "character", "string", "right", "eof"]),
        ("<<-1.5e3>>", ["left", "number", "right", "eof"]),
        ("x <<- 1  ->> y", ["text", "left", "number", "space", "right", "text", "eof"]),
        ("<</* c */>>", ["eof"]),
        ("<<_é1>>", ["left", "identifier", "right", "eof"]),
    ],
    ids=ascii,
)
def test_a_source_is_cut_into_tokens(source, found):
    assert kinds(source) == found


def test_a_token_knows_its_text_and_its_place():
    tokens = lexer.lex("ab \n<<- .Series ->> c")

    assert tokens[0] == ("text", "ab", 0)
    assert tokens[2] == ("field", ".Series", 8)
    assert tokens[-2] == ("text", "c", 20)


@pytest.mark.parametrize(
    ("source", "message", "offset"),
    [
        ("<<.A", "unclosed action", 4),
        ("<<(1>>", "unclosed left paren", 4),
        ("<<1)>>", "unexpected right paren", 3),
        ("<</* c", "unclosed comment", 2),
        ("<</* c */ >>", "comment ends before closing delimiter", 2),
        ("<<:>>", "expected :=", 2),
        ("<<.A->>", "bad character U+002D '-'", 4),
        ("<<$x+>>", "bad character U+002B '+'", 4),
        ("<<.A\x00>>", "bad character U+0000", 4),
        ("<<€>>", "unrecognized character in action: U+20AC '€'", 2),
        ('<<"a\n">>', "unterminated quoted string", 2),
        ("<<'a>>", "unterminated character constant", 2),
        ("<<`a>>", "unterminated raw quoted string", 2),
        ("<<1x>>", 'bad number syntax: "1x"', 2),
        ("<<1+2>>", 'bad number syntax: "1+2"', 2),
    ],
    ids=ascii,
)
def test_what_cannot_be_cut_ends_the_stream(source, message, offset):
    assert lexer.lex(source)[-1] == ("error", message, offset)


@given(st.text(alphabet=st.sampled_from("<>-/*.$\"'`\\ \n(a1=|é")))
def test_tokens_stand_where_they_say(source):
    for token in lexer.lex(source)[:-1]:
        assert source[token.offset :].startswith(token.text)
