"""Tokens of a template with the delimiters `<<` and `>>` (Go: text/template/parse/lex.go).

Space inside an action is a token, because `.A .B` are two operands and `.A.B` is one. Comments and
trimmed space produce no token.
https://pkg.go.dev/text/template#hdr-Text_and_spaces
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rules import errors, quoting
from rules.template import nodes

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


class TokenStream:
    """Tokens of a source and the current position among them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = lex(source)
        self.position = 0
        """Index of the next token; a parser that looked ahead may set it back."""

    @property
    def current(self) -> Token:
        """The next token, which may be space; it is not taken."""
        return self._tokens[self.position]

    def peek(self) -> Token:
        """Skip space and return the next token without taking it."""
        while self.current.kind == "space":
            self.position += 1
        return self.current

    def next(self) -> Token:
        """Take the next token that is not space. `eof` is never taken, so it is returned again."""
        token = self.peek()
        if token.kind != "eof":
            self.position += 1
        return token

    def accept(self, *keywords: str) -> Token | None:
        """Take the next token if it is one of these keywords."""
        token = self.peek()
        return self.next() if token.kind == "keyword" and token.text in keywords else None

    def expect(self, kind: str, context: str) -> Token:
        """Take the next token, which must be of this kind. Raises TemplateSyntaxError."""
        token = self.next()
        if token.kind != kind:
            raise self.unexpected(token, context)
        return token

    def failure(self, message: str, at: Token | nodes.Node) -> errors.TemplateSyntaxError:
        """Return an error that points at a token or node."""
        return errors.TemplateSyntaxError(message, source=self._source, offset=at.offset)

    def unexpected(self, token: Token, context: str) -> errors.TemplateSyntaxError:
        """Return the error for a token that must not be here."""
        return self.failure(f"unexpected {describe(token)} in {context}", token)


def describe(token: Token) -> str:
    """Return a token as messages show it."""
    return quoting.quote(token.text[:40]) if token.text else "end of template"
