"""Regular expressions and expansions with the syntax and results of Go's `regexp` package.

The engine is RE2, the model for Go's. Syntax that RE2 accepts and Go refuses is refused here too,
so that a rules file that works here also works in the original. Patterns are not anchored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import re2

from rules.errors import PatternError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # PatternError reports them
# Go allows 3.4 million instructions, and RE2's default of 8 MiB only 0.7 million, of which it needs
# more: it matches bytes, so `\pL` takes 1200. 64 MiB allow about 4 million.
_OPTIONS.max_mem = 64 << 20

# Walks over a pattern that RE2 accepted, past text that only looks like a group.
_TOKEN = re.compile(
    r"""
    \\Q .*? (?: \\E | \Z )
    | \\ (?P<escaped> . )
    | \[ \^? \]? (?: \[: \^? \w+ :\] | \\ . | [^\]\\] )* \]
    | \( \? P? < (?P<name> [^>]* ) >
    | (?P<unnamed> \( (?! \? ) )
    """,
    re.DOTALL | re.VERBOSE,
)
_REFERENCE = re2.compile(r"\$(?:(\$)|([\pL\p{Nd}_]+)|\{([\pL\p{Nd}_]+)\})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")  # Go takes longer ones for names
_ERRORS = "surrogatepass"
_MAX_DEPTH = 1000
"""As in Go; RE2 needs gigabytes for deeper nesting."""


Match = tuple[str | None, ...]
"""The whole match, then each capturing group; None for a group that did not participate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled regular expression."""

    text: str
    names: tuple[str, ...]
    """Names of the capturing groups, in order; "" for an unnamed group."""
    regexp: Any = field(repr=False, compare=False)
    """The compiled RE2."""

    def search(self, text: str) -> Match | None:
        """Return the leftmost match in `text`, as Go's `FindStringSubmatch` does."""
        data = text.encode(errors=_ERRORS)
        found = self.regexp.search(data)
        # RE2 works on bytes, so \B can match inside a character; in Go it cannot.
        while found and found.start() < len(data) and data[found.start()] & 0xC0 == 0x80:
            found = self.regexp.search(data, found.start() + 1)
        if not found:
            return None
        groups = (found.group(), *found.groups())
        return tuple(g if g is None else g.decode(errors=_ERRORS) for g in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A text with references to the groups of one pattern."""

    parts: tuple[str | tuple[int, ...], ...]
    """Literal text, and references as group numbers: several where groups share a name."""

    def of(self, match: Match) -> str:
        """Expand the references; of several groups the first non-empty one counts."""
        return "".join(
            part
            if isinstance(part, str)
            else next((group for number in part if (group := match[number])), "")
            for part in self.parts
        )


def compile(text: str) -> Pattern:  # noqa: A001 (patterns.compile, as re.compile)
    r"""Compile a regular expression of Go's syntax (https://github.com/google/re2/wiki/Syntax).

    Raises PatternError for what RE2 refuses; for `\C` and non-ASCII group names, which Go refuses;
    and for more than about 4 million instructions (`\pL{1000}` four times), which Go may accept.
    """
    if _depth(text) > _MAX_DEPTH:
        raise _error(text, "expression nests too deeply")
    try:
        regexp = re2.compile(text, _OPTIONS)
    except re2.error as error:
        (reason,) = error.args
        raise _error(text, reason.decode(errors="replace")) from error
    names: list[str] = []
    for token in _TOKEN.finditer(text):
        name = token["name"]
        if token["escaped"] == "C":
            raise _error(text, r"invalid escape sequence: \C")
        if name and not name.isascii():
            raise _error(text, f"invalid named capture group: (?P<{name}>")
        if name or token["unnamed"]:
            names.append(name or "")
    return Pattern(text=text, names=tuple(names), regexp=regexp)


def expansion(text: str, pattern: Pattern) -> Expansion:
    """Parse a replacement text for matches of `pattern`, by the rules of Go's `Regexp.Expand`.

    `$name` takes the longest run of letters, digits and `_`; `${name}` is exact; `$$` is `$`; any
    other `$` is literal; a group that does not exist is empty.
    https://pkg.go.dev/regexp#Regexp.Expand
    """
    parts: list[str | tuple[int, ...]] = []
    end = 0
    for reference in _REFERENCE.finditer(text):
        parts.append(text[end : reference.start()])
        end = reference.end()
        dollar, name, exact = reference.groups()
        parts.append(dollar or _groups(name or exact, pattern))
    parts.append(text[end:])
    return Expansion(parts=tuple(filter(None, parts)))


def _groups(reference: str, pattern: Pattern) -> tuple[int, ...]:
    """Return the numbers of the groups that `reference` names; none if no group has the name."""
    if _NUMBER.fullmatch(reference):
        return (int(reference),) if int(reference) <= len(pattern.names) else ()
    return tuple(number for number, name in enumerate(pattern.names, 1) if name == reference)


def _depth(text: str) -> int:
    """Return the nesting depth of parentheses; escaped ones and those in classes count too."""
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _error(text: str, reason: str) -> PatternError:
    return PatternError(f"cannot compile the regular expression {text!r}: {reason}")
