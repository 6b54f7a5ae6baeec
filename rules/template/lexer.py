r"""A template's source cut into tokens, with Go's rules for delimiters, trimming and comments.

In an action spaces are tokens too: `.A .B` are two operands, `.A.B` is one. What cannot be cut ends
the stream with one `error` token, so that what is wrong earlier is reported first.
https://pkg.go.dev/text/template#hdr-Text_and_spaces
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

LEFT = "<<"
RIGHT = ">>"

_SPACES = " \t\r\n"

Kind = Literal[
    "text", "left", "right", "space", "assign", "declare", "pipe", "string", "character",
    "number", "variable", "field", "dot", "identifier", "keyword", "bool", "nil", "open", "close",
    "other", "error", "eof",
]  # fmt: skip  # more to a line

_KEYWORDS = frozenset({
    "block", "break", "continue", "define", "else", "end", "if", "range", "template", "with",
})  # fmt: skip  # more to a line

_TRIMMED_RIGHT = re.compile(r"[ \t\r\n]->>")
_SPACE_RUN = re.compile(r"[ \t\r\n]+?(?=[ \t\r\n]->>|[^ \t\r\n]|\Z)")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_CHARACTER = re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")


class Token(NamedTuple):
    """A piece of the source; of an `error`, `text` is what is wrong."""

    kind: Kind
    text: str
    offset: int


class _UnreadableError(Exception):
    def __init__(self, message: str, offset: int) -> None:
        self.token = Token("error", message, offset)
        super().__init__(message)


def _is_alphanumeric(char: str) -> bool:
    """Go's letters (L), decimal digits (Nd) and the underscore; empty at the end of the source."""
    return char == "_" or char.isalpha() or char.isdecimal()


def _named(char: str) -> str:
    """A character as Go's %#U names it."""
    return f"U+{ord(char):04X}" + (f" '{char}'" if char.isprintable() else "")


class _Lexer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        try:
            while self.text():
                self.action()
            self.emit("eof", len(self.source))
        except _UnreadableError as error:
            self.tokens.append(error.token)
        return self.tokens

    def emit(self, kind: Kind, end: int) -> None:
        self.tokens.append(Token(kind, self.source[self.at : end], self.at))
        self.at = end

    def text(self) -> bool:
        """Take text and comments up to an action; False at the end of the source."""
        while True:
            found = self.source.find(LEFT, self.at)
            end = len(self.source) if found < 0 else found
            text = self.source[self.at : end]
            start = end + len(LEFT)
            trims = self.source[start : start + 1] == "-" and self.is_space(start + 1)
            if found >= 0 and trims:
                text = text.rstrip(_SPACES)
            if text:
                self.tokens.append(Token("text", text, self.at))
            self.at = end
            if found < 0:
                return False
            inside = start + 2 if trims else start
            if not self.source.startswith("/*", inside):
                self.emit("left", start)
                self.at = inside
                return True
            self.comment(inside)

    def is_space(self, at: int) -> bool:
        return at < len(self.source) and self.source[at] in _SPACES

    def comment(self, start: int) -> None:
        end = self.source.find("*/", start + 2)
        if end < 0:
            raise _UnreadableError("unclosed comment", start)
        self.at = end + 2
        if not self.right():
            raise _UnreadableError("comment ends before closing delimiter", start)
        self.tokens.pop()

    def right(self) -> bool:
        """Take a right delimiter with its trim marker and what that trims."""
        trimmed = _TRIMMED_RIGHT.match(self.source, self.at)
        if trimmed is not None:
            self.emit("right", trimmed.end())
            while self.is_space(self.at):
                self.at += 1
            return True
        if self.source.startswith(RIGHT, self.at):
            self.emit("right", self.at + len(RIGHT))
            return True
        return False

    def action(self) -> None:
        """Take everything up to and including the right delimiter."""
        depth = 0
        while True:
            start = self.at
            if self.right():
                if depth:
                    raise _UnreadableError("unclosed left paren", start)
                return
            if start == len(self.source):
                raise _UnreadableError("unclosed action", start)
            char = self.source[start]
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth < 0:
                raise _UnreadableError("unexpected right paren", start)
            self.token(char)

    def token(self, char: str) -> None:
        at = self.at
        following = self.source[at + 1 : at + 2]
        if char in _SPACES:
            spaces = _SPACE_RUN.match(self.source, at)
            assert spaces is not None
            self.emit("space", spaces.end())
        elif char in "=|()":
            kinds: dict[str, Kind] = {"=": "assign", "|": "pipe", "(": "open", ")": "close"}
            self.emit(kinds[char], at + 1)
        elif char == ":":
            if following != "=":
                raise _UnreadableError("expected :=", at)
            self.emit("declare", at + 2)
        elif char in "\"'`":
            self.quoted(char)
        elif char == "$":
            self.name("variable", at + 1)
        elif char == "." and not ("0" <= following <= "9"):
            self.name("field", at + 1)
        elif char in "+-." or "0" <= char <= "9":
            self.number()
        elif _is_alphanumeric(char):
            self.name("identifier", at)
        elif " " < char <= "~":
            self.emit("other", at + 1)
        else:
            raise _UnreadableError(f"unrecognized character in action: {_named(char)}", at)

    def quoted(self, quote: str) -> None:
        if quote == "`":
            end = self.source.find("`", self.at + 1) + 1
            if not end:
                raise _UnreadableError("unterminated raw quoted string", self.at)
            self.emit("string", end)
            return
        match = (_QUOTED if quote == '"' else _CHARACTER).match(self.source, self.at)
        if match is None:
            what = "quoted string" if quote == '"' else "character constant"
            raise _UnreadableError(f"unterminated {what}", self.at)
        self.emit("string" if quote == '"' else "character", match.end())

    def name(self, kind: Kind, start: int) -> None:
        """Take a word; what follows it must be able to end one."""
        end = start
        while _is_alphanumeric(self.source[end : end + 1]):
            end += 1
        if not (
            end == len(self.source)
            or self.source[end] in " \t\r\n.,|:)("
            or self.source.startswith(RIGHT, end)
        ):
            raise _UnreadableError(f"bad character {_named(self.source[end])}", end)
        word = self.source[self.at : end]
        if kind == "field" and end == start:
            kind = "dot"
        elif kind == "identifier":
            if word in _KEYWORDS:
                kind = "keyword"
            elif word in {"true", "false"}:
                kind = "bool"
            elif word == "nil":
                kind = "nil"
        self.emit(kind, end)

    def number(self) -> None:
        end = self.number_end(self.at)
        if self.source[end : end + 1] in {"+", "-"}:
            end = self.number_end(end)
            if self.source[end - 1] != "i":
                raise _UnreadableError(
                    f'bad number syntax: "{self.source[self.at : end]}"', self.at
                )
        self.emit("number", end)

    def number_end(self, start: int) -> int:
        match = _NUMBER.match(self.source, start)
        assert match is not None
        end = match.end()
        if _is_alphanumeric(self.source[end : end + 1]):
            text = self.source[self.at : end + 1]
            raise _UnreadableError(f'bad number syntax: "{text}"', self.at)
        return end


def lex(source: str) -> list[Token]:
    """All tokens of the source; the last is `eof`, or `error` where it cannot be read on."""
    return _Lexer(source).run()
