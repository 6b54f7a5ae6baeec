"""Token stream of the parser: look-ahead, expectations and errors with their position."""

from __future__ import annotations

from rules import errors, quoting
from rules.template import lexer, nodes


class TokenStream:
    """Tokens of a source and the current position among them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = lexer.lex(source)
        self.position = 0
        """Index of the next token; a parser that looked ahead may set it back."""

    @property
    def current(self) -> lexer.Token:
        """The next token, which may be space; it is not taken."""
        return self._tokens[self.position]

    def peek(self) -> lexer.Token:
        """Skip space and return the next token without taking it."""
        while self.current.kind == "space":
            self.position += 1
        return self.current

    def next(self) -> lexer.Token:
        """Take the next token that is not space. `eof` is never taken, so it is returned again."""
        token = self.peek()
        if token.kind != "eof":
            self.position += 1
        return token

    def accept(self, *keywords: str) -> lexer.Token | None:
        """Take the next token if it is one of these keywords."""
        token = self.peek()
        return self.next() if token.kind == "keyword" and token.text in keywords else None

    def expect(self, kind: str, context: str) -> lexer.Token:
        """Take the next token, which must be of this kind. Raises TemplateSyntaxError."""
        token = self.next()
        if token.kind != kind:
            raise self.unexpected(token, context)
        return token

    def failure(self, message: str, at: lexer.Token | nodes.Node) -> errors.TemplateSyntaxError:
        """Return an error that points at a token or node."""
        return errors.TemplateSyntaxError(message, source=self._source, offset=at.offset)

    def unexpected(self, token: lexer.Token, context: str) -> errors.TemplateSyntaxError:
        """Return the error for a token that must not be here."""
        return self.failure(f"unexpected {describe(token)} in {context}", token)


def describe(token: lexer.Token) -> str:
    """Return a token as messages show it."""
    return quoting.quote(token.text[:40]) if token.text else "end of template"
