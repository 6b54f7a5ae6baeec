"""Tokens of a template with the delimiters `<<` and `>>` (Go: text/template/parse/lex.go).

Space inside an action is a token, because `.A .B` are two operands and `.A.B` is one. Comments and
trimmed space produce no token.
https://pkg.go.dev/text/template#hdr-Text_and_spaces
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rules import errors

KEYWORDS = frozenset({
    "block", "break", "continue", "define", "else", "end", "if", "range", "template", "with",
})  # fmt: skip  # more to a line

_SPACE = " \t\r\n"
_LEFT = re.compile(r"<<(?P<trim>-[ \t\r\n])?(?P<comment>/\*)?")
_RIGHT = re.compile(r"[ \t\r\n]->>[ \t\r\n]*|>>")
# A name must be followed by one of these, as in Go.
_NAME_END = r"(?=[ \t\r\n.,|:()]|>>|\Z)"
_TOKEN = re.compile(
    rf"""(?P<right>{_RIGHT.pattern})
      | (?P<space>(?:(?![ \t\r\n]->>)[ \t\r\n])+)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)
      | (?P<character>'(?:[^'\\\n]|\\[^\n])*')
      | (?P<number>[+-]?\.?[0-9](?:[eE][+-]|[\w.])*)
      | (?P<variable>\$\w*){_NAME_END}
      | (?P<field>\.\w+){_NAME_END}
      | (?P<dot>\.){_NAME_END}
      | (?P<word>\w+){_NAME_END}
      | (?P<declare>:=)
      | (?P<assign>=)
      | (?P<pipe>\|)
      | (?P<comma>,)
      | (?P<open>\()
      | (?P<close>\))
    """,
    re.VERBOSE,
)
_NAME = re.compile(r"[.$]?\w*")
_UNTERMINATED = {
    '"': "unterminated quoted string",
    "'": "unterminated character constant",
    "`": "unterminated raw quoted string",
}


class Token(NamedTuple):
    """Piece of the source."""

    kind: str
    """`text`, `left`, `eof`, `keyword`, or a group of `_TOKEN`."""
    text: str
    offset: int
    """In characters."""


def lex(source: str) -> list[Token]:
    """Return the tokens of a template; the last is `eof`. Raises TemplateSyntaxError."""
    tokens: list[Token] = []
    at = 0
    while left := _LEFT.search(source, at):
        text = source[at : left.start()]
        if left["trim"]:
            text = text.rstrip(_SPACE)
        if text:
            tokens.append(Token("text", text, at))
        if left["comment"]:
            at = _skip_comment(source, left)
        else:
            tokens.append(Token("left", left[0], left.start()))
            at = _lex_action(source, left.end(), tokens)
    if at < len(source):
        tokens.append(Token("text", source[at:], at))
    tokens.append(Token("eof", "", len(source)))
    return tokens


def _lex_action(source: str, at: int, tokens: list[Token]) -> int:
    """Append the tokens up to and including the right delimiter; return where they end."""
    while match := _TOKEN.match(source, at):
        kind, at = str(match.lastgroup), match.end()
        if match[0] in KEYWORDS:
            kind = "keyword"
        tokens.append(Token(kind, match[0], match.start()))
        if kind == "right":
            return at
    if at == len(source):
        message = "unclosed action"
    elif source[at] in _UNTERMINATED:
        message = _UNTERMINATED[source[at]]
    else:
        name = _NAME.match(source, at)
        assert name is not None  # it may be empty
        at = name.end()
        message = f"unexpected character {source[at : at + 1]!r} in action"
    raise errors.TemplateSyntaxError(message, source=source, offset=at)


def _skip_comment(source: str, left: re.Match[str]) -> int:
    """Return where a comment with its delimiters ends."""
    start = left.start("comment")
    end = source.find("*/", left.end())
    if end < 0:
        raise errors.TemplateSyntaxError("unclosed comment", source=source, offset=start)
    right = _RIGHT.match(source, end + 2)
    if right is None:
        message = "comment ends before closing delimiter"
        raise errors.TemplateSyntaxError(message, source=source, offset=start)
    return right.end()
