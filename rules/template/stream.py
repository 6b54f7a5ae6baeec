"""The parser's way through its tokens, and how it says what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from rules import errors
from rules.template import lexer, literals

MAX_NESTING = 100
"""How deep actions and parentheses may stand in one another; Go's limit is 10 000 parentheses."""


def shown(token: lexer.Token) -> str:
    """A token as messages show it."""
    return f"<{token.text}>" if token.kind == "keyword" else literals.quote(token.text[:40])


class Stream:
    """The tokens of a source, a place in them, and how deep the parser is nested there."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = lexer.lex(source)
        self.at = 0
        self.depth = 0

    def next(self) -> lexer.Token:
        """The next token, spaces included; the last one again and again."""
        token = self.tokens[self.at]
        if self.at < len(self.tokens) - 1:
            self.at += 1
        return token

    def peek(self) -> lexer.Token:
        """The next token that is no space, left in its place; the spaces are taken."""
        while self.tokens[self.at].kind == "space":
            self.at += 1
        return self.tokens[self.at]

    def take(self) -> lexer.Token:
        self.peek()
        return self.next()

    def is_keyword(self, *words: str) -> bool:
        token = self.peek()
        return token.kind == "keyword" and token.text in words

    def expect(self, kinds: Iterable[lexer.Kind], context: str) -> lexer.Token:
        token = self.take()
        if token.kind not in kinds:
            raise self.unexpected(token, context)
        return token

    def failure(self, message: str, offset: int | None = None) -> errors.TemplateSyntaxError:
        at = self.tokens[self.at].offset if offset is None else offset
        return errors.TemplateSyntaxError(message, source=self.source, offset=at)

    def unexpected(self, token: lexer.Token, context: str) -> errors.TemplateSyntaxError:
        if token.kind == "error":
            return self.failure(token.text, token.offset)
        return self.failure(f"unexpected {shown(token)} in {context}", token.offset)

    def nest(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.failure(f"actions and parentheses are nested deeper than {MAX_NESTING}")
